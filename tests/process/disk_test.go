package process_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// limited runs a command with files of at most that many KiB, as a disk that is full does to a write.
func limited(kib string) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		c.Args = append([]string{"bash", "-c", `ulimit -f ` + kib + `; exec "$0" "$@"`}, c.Args...)
		c.Path, c.Err = exec.LookPath("bash")
	}
}

func TestWhenTheDiskIsFullItLatchesAndExitsAndIsRightAfterARestart(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.start(nil).terminate()
	p := m.start(limited("200"))
	l := newLoad(t, m.caller(200*time.Millisecond))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); l.run(8, stop) }()
	code := p.wait()
	close(stop)
	<-done
	if code != 70 {
		t.Fatalf("exit code %d\n%s", code, p.errors)
	}
	if said := p.errors.String(); !strings.Contains(said, "counterfoil: a write to the store failed, and nothing is granted until it is opened again: look at the disk") ||
		!strings.Contains(said, "file too large") {
		t.Fatalf("no clear line says why:\n%s", said)
	}
	m.start(nil)
	l.check(m.caller(5 * time.Second))
}

// nobody is a user who is not root, whom a directory's mode stops.
const nobody = 65534

// asNobody runs a command as a user whom modes stop, if this one is root.
func asNobody(c *exec.Cmd) {
	if os.Geteuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
}

// owned makes a machine whose directory belongs to that user.
func owned(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	above := filepath.Dir(filepath.Dir(m.dir)) // of all temporary directories of the test: open to its owner alone
	if err := errors.Join(os.Chmod(above, 0o755), os.Mkdir(m.dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(m.dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// chmod sets the mode of every directory of the machine.
func (m *machine) chmod(mode os.FileMode) {
	m.t.Helper()
	err := filepath.WalkDir(m.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

func TestAReadOnlyDirectoryIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	m := owned(t)
	m.start(asNobody).terminate()
	m.chmod(0o500)
	t.Cleanup(func() { m.chmod(0o700) })
	p, said := m.launch(asNobody)
	if said != "" {
		t.Fatal("it serves on a directory that it cannot write")
	}
	if code := p.wait(); code != 69 && code != 70 {
		t.Fatalf("exit code %d\n%s", code, p.errors)
	}
	if said := p.errors.String(); !strings.Contains(said, "permission denied") || !strings.Contains(said, m.dir) || strings.Count(said, "\n") != 1 {
		t.Fatalf("no clear line says why:\n%s", said)
	}
	m.chmod(0o700)
	m.start(asNobody)
}

func TestADirectoryThatBecomesReadOnlyNeverMakesAWrongYes(t *testing.T) {
	t.Parallel()
	m := owned(t)
	p := m.start(asNobody)
	l := newLoad(t, m.caller(200*time.Millisecond))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); l.run(4, stop) }()
	l.after(20)
	m.chmod(0o500)
	t.Cleanup(func() { m.chmod(0o700) })
	l.after(20) // the log is open still
	close(stop)
	<-done
	if code := p.terminate(); code == 0 {
		t.Fatalf("it stopped as if all were well\n%s", p.errors)
	}
	if said := p.errors.String(); !strings.Contains(said, "permission denied") {
		t.Fatalf("no clear line says why:\n%s", said)
	}
	m.chmod(0o700)
	m.start(asNobody)
	l.check(m.caller(5 * time.Second))
}
