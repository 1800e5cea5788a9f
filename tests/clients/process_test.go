package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// wait bounds what a client or server takes.
const wait = time.Minute

// log keeps what a process writes, to be shown if its test fails.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// launch starts a process that ends with the test, and returns the first line that it writes for which found is true.
func launch(t *testing.T, found func(line string) bool, cmd *exec.Cmd) string {
	t.Helper()
	said := new(log)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout // after StdoutPipe: both into one pipe
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		in := bufio.NewReader(out)
		for {
			line, err := in.ReadString('\n')
			_, _ = said.Write([]byte(line))
			if err != nil {
				break
			}
			if found(line) {
				select {
				case lines <- line:
				default:
				}
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), said)
		}
	})
	select {
	case line := <-lines:
		return line
	case <-ended:
		t.Fatalf("%s ended:\n%s", cmd, said)
	case <-time.After(wait):
		t.Fatalf("%s does not start:\n%s", cmd, said)
	}
	return ""
}

// guarding starts the program as a guard of an upstream, on a store of its own, and returns its address without the scheme.
func guarding(t *testing.T, kind, upstream, options string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "guard.yaml")
	if err := os.WriteFile(file, []byte(options), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, kind, "--json", "--data", filepath.Join(dir, "data"), "--upstream", upstream, "--config", file, "--listen", "127.0.0.1:0")
	cmd.Env = environ()
	initialise(t, filepath.Join(dir, "data"))
	line := launch(t, func(line string) bool { return strings.Contains(line, `"address"`) }, cmd)
	var said struct{ Address string }
	if err := json.Unmarshal([]byte(line), &said); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(said.Address, "http://")
}

func initialise(t *testing.T, data string) {
	t.Helper()
	cmd := exec.Command(program, "init", "--data", data)
	cmd.Env = environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
}

func environ() []string {
	here, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(),
		"NODE_OPTIONS=--require=" + filepath.Join(here, "node18.cjs"),
	}
}

// script runs a script of this folder with node, where it finds its packages, and returns what it wrote.
func script(t *testing.T, name string, arguments ...string) []byte {
	t.Helper()
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(modules, "run-") //nolint:usetesting // node finds packages above the script alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := filepath.Join(dir, name)
	if err := os.WriteFile(at, source, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{at}, arguments...)...)
	cmd.Env = environ()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}
