package testserver_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/counterfoil/counterfoil/internal/testserver"
)

func TestMissingProgramFailsWithTheCommandThatInstallsIt(t *testing.T) {
	t.Parallel()
	fake := &failing{TB: t, said: make(chan string, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		testserver.Redis(fake, testserver.RedisOptions{Binary: "no-such-server"})
	}()
	<-ended
	select {
	case said := <-fake.said:
		if !strings.Contains(said, "no-such-server") || !strings.Contains(said, "run make test (scripts/setup.sh installs it)") {
			t.Errorf("it fails with %q", said)
		}
	default:
		t.Error("a missing program is no failure")
	}
}

// failing takes the failure of what it is given to, and ends that goroutine as a test would end.
type failing struct {
	testing.TB
	said chan string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.said <- fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// asChild names the environment variable under which this test binary runs as a child that starts servers and waits.
const asChild = "TESTSERVER_CHILD"

func TestServersDieWithTheTestBinary(t *testing.T) {
	t.Parallel()
	if os.Getenv(asChild) != "" {
		redis, postgres := testserver.Redis(t, testserver.RedisOptions{}), testserver.Postgres(t, testserver.PostgresOptions{})
		fmt.Printf("servers %d %d %s\n", redis.PID(), postgres.PID(), postgres.Dir())
		select {}
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServersDieWithTheTestBinary$")
	child.Env = append(os.Environ(), asChild+"=1", "TMPDIR="+reachable(t))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pids [2]int
	var dir string
	for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "servers %d %d %s", &pids[0], &pids[1], &dir) // Other lines are the test runner's.
	}
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // It was killed.
	if dir == "" {
		t.Fatal("the child started no servers")
	}
	for _, pid := range pids {
		await(t, "process "+strconv.Itoa(pid)+" is gone", func() bool { return gone(pid) })
	}
	testserver.RemoveSegment(dir)
}

// reachable is a temporary directory through which PostgreSQL's account may pass.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(path, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// gone reports whether a process ended; one that nobody has waited for yet counts as ended.
func gone(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
