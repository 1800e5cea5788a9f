//go:build unix

package pebble

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// TestMain lets the test binary be the other process that has a store open.
func TestMain(m *testing.M) {
	if dir := os.Getenv("HOLD_STORE"); dir != "" {
		os.Exit(holdStore(dir))
	}
	os.Exit(m.Run())
}

// holdStore opens a store, says so and keeps it open until its input ends.
func holdStore(dir string) int {
	e, err := Open(dir, Options{})
	if err == nil {
		err = e.SetHolder("http://127.0.0.1:8700")
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error()) // has no other way to tell
		return 1
	}
	_, _ = os.Stdout.WriteString("open\n")            // the test notices if it is lost
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the test closes it
	return 0
}

func created(t *testing.T) string {
	t.Helper()
	dir := newDir(t)
	must(t, Create(dir, Options{}))
	return dir
}

// refusal checks that neither Open nor Create takes dir, each with the error
// named, that the message says what it has to, and that dir stays as it was.
func refusal(t *testing.T, dir string, fromOpen, fromCreate error, says string) {
	t.Helper()
	before := listing(t, dir)
	e, err := Open(dir, Options{})
	if err == nil {
		must(t, e.Close())
	}
	if !errors.Is(err, fromOpen) || !strings.Contains(err.Error(), says) {
		t.Errorf("Open: %v, want %q that says %q", err, fromOpen, says)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("Open changed the directory from\n%s\nto\n%s", before, after)
	}
	if err := Create(dir, Options{}); !errors.Is(err, fromCreate) {
		t.Errorf("Create: %v, want %v", err, fromCreate)
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error { // a missing one has no entries
		b.WriteString(path + "\n")
		return err
	})
	return b.String()
}

func TestOpenNeverCreatesAndSaysWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		make               func(t *testing.T, dir string)
		fromOpen, fromMake error
		says               string
	}{
		{"nothing", func(*testing.T, string) {}, engine.ErrNoStore, nil, "does not exist"},
		{"an empty directory", func(t *testing.T, dir string) { t.Helper(); must(t, os.Mkdir(dir, 0o700)) }, engine.ErrNoStore, nil, "counterfoil init"},
		{"another program's files", func(t *testing.T, dir string) {
			t.Helper()
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.WriteFile(filepath.Join(dir, "notes"), []byte("x"), 0o600))
		}, engine.ErrForeign, engine.ErrForeign, "none of a store"},
		{"a creation that was interrupted", func(t *testing.T, dir string) {
			t.Helper()
			must(t, Create(dir, Options{}))
			must(t, os.Remove(filepath.Join(dir, formatName)))
		}, engine.ErrForeign, engine.ErrForeign, "interrupted"},
		{"a newer store", func(t *testing.T, dir string) {
			t.Helper()
			must(t, Create(dir, Options{}))
			must(t, os.WriteFile(filepath.Join(dir, formatName), []byte("counterfoil store, pebble, version 2\n"), 0o600))
		}, engine.ErrForeign, engine.ErrStoreExists, "another version"},
		{"another program's mark", func(t *testing.T, dir string) {
			t.Helper()
			must(t, Create(dir, Options{}))
			must(t, os.WriteFile(filepath.Join(dir, formatName), []byte("something else"), 0o600))
		}, engine.ErrForeign, engine.ErrStoreExists, "another program's"},
		{"a store without its data", func(t *testing.T, dir string) {
			t.Helper()
			must(t, Create(dir, Options{}))
			must(t, os.RemoveAll(filepath.Join(dir, dataName)))
			must(t, os.Mkdir(filepath.Join(dir, dataName), 0o700))
		}, engine.ErrForeign, engine.ErrStoreExists, "restore a backup"},
		{"a store whose data directory is gone", func(t *testing.T, dir string) {
			t.Helper()
			must(t, Create(dir, Options{}))
			must(t, os.RemoveAll(filepath.Join(dir, dataName)))
		}, engine.ErrForeign, engine.ErrStoreExists, "restore a backup"},
		{"a file", func(t *testing.T, dir string) { t.Helper(); must(t, os.WriteFile(dir, nil, 0o600)) }, engine.ErrForeign, engine.ErrForeign, "not a directory"},
		{"a directory open to others", func(t *testing.T, dir string) {
			t.Helper()
			must(t, Create(dir, Options{}))
			must(t, os.Chmod(dir, 0o750))
		}, engine.ErrForeign, engine.ErrForeign, "chmod 700"},
		{"a store already", func(t *testing.T, dir string) { t.Helper(); must(t, Create(dir, Options{})) }, nil, engine.ErrStoreExists, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			c.make(t, dir)
			if c.fromOpen != nil {
				refusal(t, dir, c.fromOpen, c.fromMake, c.says)
				return
			}
			must(t, open(t, dir, Options{}).Close())
			if err := Create(dir, Options{}); !errors.Is(err, c.fromMake) {
				t.Errorf("Create: %v, want %v", err, c.fromMake)
			}
		})
	}
}

func TestSymbolicLinksInPlaceOfStateAreRefused(t *testing.T) {
	t.Parallel()
	moveAndLink := func(t *testing.T, path string) {
		t.Helper()
		elsewhere := filepath.Join(t.TempDir(), "elsewhere")
		must(t, os.Rename(path, elsewhere))
		must(t, os.Symlink(elsewhere, path))
	}
	for _, what := range []string{".", dataName, formatName, lockName} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := created(t)
			moveAndLink(t, filepath.Join(dir, what))
			refused(t, dir)
		})
	}
	t.Run("a file of the database", func(t *testing.T) {
		t.Parallel()
		dir := created(t)
		logs, err := filepath.Glob(filepath.Join(dir, dataName, "*.log"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("logs %v, %v", logs, err)
		}
		moveAndLink(t, logs[0])
		refused(t, dir)
	})
	t.Run("a directory above", func(t *testing.T) {
		t.Parallel()
		above := filepath.Join(t.TempDir(), "above")
		dir := filepath.Join(above, "store")
		must(t, Create(dir, Options{}))
		moveAndLink(t, above)
		refused(t, dir)
		if err := Create(filepath.Join(above, "new"), Options{}); !errors.Is(err, engine.ErrForeign) {
			t.Errorf("Create: %v, want ErrForeign", err)
		}
	})
}

func refused(t *testing.T, dir string) {
	t.Helper()
	e, err := Open(dir, Options{})
	if !errors.Is(err, engine.ErrForeign) || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("Open: %v, want ErrForeign that names the symbolic link", err)
	}
	if err == nil {
		must(t, e.Close())
	}
}

func TestDirectoryOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	dir := created(t)
	if err := os.Chown(dir, 65534, -1); err != nil {
		// Only root can give a directory away; for others the one of root will do.
		if dir = "/"; os.Geteuid() == 0 {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, engine.ErrForeign) || !strings.Contains(err.Error(), "owned by user") {
		t.Errorf("Open: %v, want ErrForeign that names the owner", err)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	t.Parallel()
	dir := created(t)
	open(t, dir, Options{})
	_, err := Open(dir, Options{})
	var locked *LockedError
	if !errors.Is(err, engine.ErrLocked) || !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatalf("Open: %v, want ErrLocked by process %d", err, os.Getpid())
	}
	if err := Create(dir, Options{}); !errors.Is(err, engine.ErrLocked) {
		t.Errorf("Create: %v, want ErrLocked", err)
	}
}

// TestClosedStoreCanBeOpenedWhileProcessesAreStarted: a process that is being
// started has, for a moment, every open file of this one.
func TestClosedStoreCanBeOpenedWhileProcessesAreStarted(t *testing.T) {
	t.Parallel()
	dir := created(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = exec.CommandContext(t.Context(), "/bin/true").Run() // only has to start
			}
		}
	})
	for range 30 {
		must(t, open(t, dir, Options{}).Close())
	}
	close(stop)
	wg.Wait()
}

func TestOpenInAnotherProcessIsRefusedWithItsAddressUntilItEnds(t *testing.T) {
	t.Parallel()
	dir := created(t)
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), "HOLD_STORE="+dir)
	stdin, err := other.StdinPipe()
	must(t, err)
	stdout, err := other.StdoutPipe()
	must(t, err)
	must(t, other.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	_, err = Open(dir, Options{})
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != other.Process.Pid || locked.Addr != "http://127.0.0.1:8700" {
		t.Fatalf("Open: %v, want the lock of process %d", err, other.Process.Pid)
	}
	if !strings.Contains(err.Error(), "http://127.0.0.1:8700") {
		t.Errorf("the message does not say where it serves: %v", err)
	}
	must(t, other.Process.Kill()) // a killed process leaves no lock behind
	_ = other.Wait()              // says that it was killed
	_ = stdin.Close()             // has nobody at its other end
	open(t, dir, Options{})
}

func TestRenamedStoreStaysTheOneThatWasOpened(t *testing.T) {
	t.Parallel()
	dir := created(t)
	e := open(t, dir, Options{MemtableBytes: 64 << 10})
	moved := dir + " moved"
	must(t, os.Rename(dir, moved))
	must(t, Create(dir, Options{})) // another store takes the name
	key := state.Key{Scope: "s", Kind: state.KindHold, ID: "k"}
	for n := range 100 { // enough for new logs and tables
		must(t, e.Transact(t.Context(), []state.Key{key}, func(s engine.Snapshot) (engine.Plan, error) {
			item := &state.Sealed{Version: state.Version{byte(n + 1)}, Data: make([]byte, 10_000)}
			return engine.Plan{Changes: []engine.Change{{Key: key, Item: item}}, NotAfter: s.Now + 60_000}, nil
		}))
	}
	must(t, e.Close())
	for name, there := range map[string]bool{moved: true, dir: false} {
		snap, err := open(t, name, Options{}).Read(t.Context(), []state.Key{key})
		must(t, err)
		if (snap.Items[0] != nil) != there {
			t.Errorf("%s has the record: %v, want %v", name, !there, there)
		}
	}
}
