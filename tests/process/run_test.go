package process_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runs is a log of commands that ran, one line each.
type runs struct{ path string }

func (r runs) count(t *testing.T, key string) int {
	t.Helper()
	b, err := os.ReadFile(r.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte(key+"\n"))
}

// arguments of a run that notes its key and ends with 5.
func (r runs) arguments(key string, more ...string) []string {
	args := append([]string{"run", "--key", key}, more...)
	return append(args, "--", "sh", "-c", fmt.Sprintf("echo %s >> %s; echo out; exit 5", key, r.path))
}

func TestOfManyRunsOfOneKeyOneRunsTheCommand(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.start(nil).terminate()
	log := runs{filepath.Join(t.TempDir(), "log")}
	const shells = 8
	type result struct {
		code int
		out  string
		errs string
	}
	results := make(chan result, shells)
	for range shells {
		go func() {
			code, out, errs := m.run(log.arguments("k", "--wait")...)
			results <- result{code, out, errs}
		}()
	}
	for range shells {
		if r := <-results; r.code != 5 || r.out != "out\n" {
			t.Errorf("exit code %d, %q, %q", r.code, r.out, r.errs)
		}
	}
	if n := log.count(t, "k"); n != 1 {
		t.Fatalf("the command ran %d times", n)
	}
}

func TestARunKilledAtAnyMomentIsNeverRunTwice(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.start(nil).terminate()
	log := runs{filepath.Join(t.TempDir(), "log")}
	var ran, unknown, fresh int
	for i := range 24 {
		key := fmt.Sprintf("k%d", i)
		cmd := exec.Command(program, log.arguments(key, "--lease", "1s")...)
		cmd.Env = append(m.environ(), "COUNTERFOIL_DATA="+m.dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Duration(rand.IntN(120))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // killed or not, the next run tells
		kill.Stop()
		code, out, errs := m.run(log.arguments(key, "--lease", "1s", "--wait")...)
		n := log.count(t, key)
		switch {
		case n > 1:
			t.Fatalf("%s ran %d times: %d %s", key, n, code, errs)
		case code == 5 && out == "out\n" && n == 1:
			ran++
		case code == 75 && strings.Contains(errs, "counterfoil operation resolve"):
			unknown++
		default:
			t.Fatalf("%s: exit code %d, %q, %q after %d runs", key, code, out, errs, n)
		}
		if n == 0 {
			fresh++
		}
	}
	t.Logf("%d ran or were replayed, %d are unknown, of which %d never ran", ran, unknown, fresh)
}
