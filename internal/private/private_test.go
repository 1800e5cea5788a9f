package private

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMakeCreatesADirectoryForUsAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	for range 2 { // the second time it is there
		d, err := Make(path)
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Fatalf("mode %v, err %v", info.Mode(), err)
	}
	if _, err := Make(filepath.Join(path, "none", "keys")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Make below a missing directory: %v", err)
	}
}

func TestOpenRefusesADirectoryThatIsNotPrivate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, root string) (path string)
		want    error
		names   string
	}{
		{"missing", func(_ *testing.T, root string) string { return filepath.Join(root, "none") }, fs.ErrNotExist, "none"},
		{"readable by the group", func(t *testing.T, root string) string { return withMode(t, mkdir(t, root, "d"), 0o750) }, ErrUnsafe, "chmod 700"},
		{"enterable by all", func(t *testing.T, root string) string { return withMode(t, mkdir(t, root, "d"), 0o701) }, ErrUnsafe, "chmod 700"},
		{"a symbolic link", func(t *testing.T, root string) string {
			return symlink(t, mkdir(t, root, "real"), filepath.Join(root, "d"))
		}, ErrUnsafe, "symbolic link"},
		{"a symbolic link with a slash after it", func(t *testing.T, root string) string {
			return symlink(t, mkdir(t, root, "real"), filepath.Join(root, "d")) + "/"
		}, ErrUnsafe, "symbolic link"},
		{"below a symbolic link", func(t *testing.T, root string) string {
			target := mkdir(t, root, "real")
			mkdir(t, target, "keys")
			return filepath.Join(symlink(t, target, filepath.Join(root, "d")), "keys")
		}, ErrUnsafe, "symbolic link"},
		{"a dangling symbolic link", func(t *testing.T, root string) string {
			return symlink(t, filepath.Join(root, "none"), filepath.Join(root, "d"))
		}, ErrUnsafe, "symbolic link"},
		{"a file", func(t *testing.T, root string) string { return write(t, root, "d", "x") }, unix.ENOTDIR, "not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := c.prepare(t, t.TempDir())
			if d, err := Open(path); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) {
				t.Fatalf("Open = %v, %v; want %v naming %q", d, err, c.want, c.names)
			}
		})
	}
}

func TestOpenFollowsARelativePath(t *testing.T) {
	root := t.TempDir()
	mkdir(t, root, "keys")
	t.Chdir(root)
	for _, path := range []string{"keys", "./keys/", "keys/../keys"} {
		d, err := Open(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		d.Close()
	}
}

func TestReadRefusesAFileThatIsNotPrivate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
		want    error
		names   string
	}{
		{"missing", func(*testing.T, string) {}, fs.ErrNotExist, "f"},
		{"readable by the group", func(t *testing.T, dir string) { withMode(t, write(t, dir, "f", "x"), 0o640) }, ErrUnsafe, "chmod 600"},
		{"writable by all", func(t *testing.T, dir string) { withMode(t, write(t, dir, "f", "x"), 0o602) }, ErrUnsafe, "chmod 600"},
		{"a symbolic link to a private file", func(t *testing.T, dir string) { symlink(t, write(t, dir, "real", "x"), filepath.Join(dir, "f")) }, ErrUnsafe, "symbolic link"},
		{"a directory", func(t *testing.T, dir string) { mkdir(t, dir, "f") }, ErrUnsafe, "regular"},
		{"a pipe without a writer", func(t *testing.T, dir string) {
			if err := unix.Mkfifo(filepath.Join(dir, "f"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, ErrUnsafe, "regular"},
		{"too large", func(t *testing.T, dir string) { write(t, dir, "f", "12345") }, ErrTooLarge, "4 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			c.prepare(t, d.Path())
			if _, _, err := d.Read("f", 4); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) {
				t.Fatalf("Read: %v; want %v naming %q", err, c.want, c.names)
			}
		})
	}
}

func TestVetRefusesAnotherAccountsFile(t *testing.T) {
	t.Parallel()
	var st unix.Stat_t
	if err := unix.Lstat(write(t, t.TempDir(), "f", "x"), &st); err != nil {
		t.Fatal(err)
	}
	if err := vet(&st, "f", "600", os.Geteuid()); err != nil {
		t.Fatalf("our own: %v", err)
	}
	if err := vet(&st, "f", "600", os.Geteuid()+1); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "chown") {
		t.Fatalf("another's: %v", err)
	}
}

func TestReplaceMakesAPrivateFileAndANewStampEachTime(t *testing.T) {
	t.Parallel()
	d := open(t)
	write(t, d.Path(), temporary("f"), "left by a crash")
	var last Stamp
	for _, text := range []string{"one", "two", "two"} {
		if err := d.Replace("f", []byte(text)); err != nil {
			t.Fatal(err)
		}
		data, stamp, err := d.Read("f", 10)
		if err != nil || string(data) != text {
			t.Fatalf("read %q, %v; want %q", data, err, text)
		}
		if again, err := d.Stamp("f"); err != nil || again != stamp || stamp == last {
			t.Fatalf("stamp %v after %v, again %v, err %v", stamp, last, again, err)
		}
		last = stamp
	}
	if names, err := d.Names(); err != nil || len(names) != 1 || names[0] != "f" {
		t.Fatalf("left behind: %v, %v", names, err)
	}
	if info, err := os.Lstat(filepath.Join(d.Path(), "f")); err != nil || info.Mode() != 0o600 {
		t.Fatalf("mode %v, err %v", info.Mode(), err)
	}
}

func TestReplaceThatFailsBeforeTheFileIsSyncedLeavesTheOldContent(t *testing.T) {
	t.Parallel()
	d := open(t)
	replace(t, d, "old")
	broken := errors.New("broken disk")
	d.sync = func(*os.File) error { return broken }
	if err := d.Replace("f", []byte("new")); !errors.Is(err, broken) || errors.Is(err, ErrUnsure) {
		t.Fatalf("Replace: %v", err)
	}
	if data, _, err := d.Read("f", 10); err != nil || string(data) != "old" {
		t.Fatalf("read %q, %v", data, err)
	}
}

func TestReplaceThatFailsToSyncTheDirectoryIsUnsure(t *testing.T) {
	t.Parallel()
	d := open(t)
	replace(t, d, "old")
	broken := errors.New("broken disk")
	d.sync = func(f *os.File) error {
		if f == d.file {
			return broken
		}
		return f.Sync()
	}
	if err := d.Replace("f", []byte("new")); !errors.Is(err, ErrUnsure) || !errors.Is(err, broken) {
		t.Fatalf("Replace: %v", err)
	}
}

func TestReplaceSyncsTheFileBeforeItTakesThePlaceAndTheDirectoryAfter(t *testing.T) {
	t.Parallel()
	d := open(t)
	replace(t, d, "old")
	var steps []string
	d.sync = func(f *os.File) error {
		data, err := os.ReadFile(filepath.Join(d.Path(), "f"))
		if err != nil {
			return err
		}
		what := "file"
		if f == d.file {
			what = "directory"
		}
		steps = append(steps, what+" while "+string(data))
		return f.Sync()
	}
	replace(t, d, "new")
	if got := strings.Join(steps, ", "); got != "file while old, directory while new" {
		t.Fatal(got)
	}
}

func TestLockExcludesUntilItIsGivenBack(t *testing.T) {
	t.Parallel()
	d := open(t)
	unlock, err := d.Lock(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Lock(over, "lock"); !errors.Is(err, ErrBusy) {
		t.Fatalf("second lock: %v", err)
	}
	unlock()
	again, err := d.Lock(over, "lock")
	if err != nil {
		t.Fatalf("after unlock: %v", err)
	}
	again()
}

func TestLockLetsOneInAtATime(t *testing.T) {
	t.Parallel()
	d := open(t)
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 4 {
		wg.Go(func() {
			for range 5 {
				unlock, err := d.Lock(t.Context(), "lock")
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d inside", n)
				}
				inside.Add(-1)
				unlock()
			}
		})
	}
	wg.Wait()
}

func open(t *testing.T) *Dir {
	t.Helper()
	d, err := Make(filepath.Join(t.TempDir(), "d"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func replace(t *testing.T, d *Dir, text string) {
	t.Helper()
	if err := d.Replace("f", []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, parent, name string) string {
	t.Helper()
	path := filepath.Join(parent, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func symlink(t *testing.T, to, path string) string {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func withMode(t *testing.T, path string, mode fs.FileMode) string {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}
