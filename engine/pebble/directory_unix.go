//go:build unix

package pebble

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/counterfoil/counterfoil/engine"
)

// directory is the store's directory, open and locked. It stays the same
// directory when its path is renamed.
type directory struct {
	name string // as messages show it
	root *os.File
	lock *os.File

	mu sync.Mutex // guards writing the lock file
}

// holder is what the lock file says about the process that has the lock.
type holder struct {
	PID  int    `json:"pid"`
	Addr string `json:"addr,omitempty"`
}

const maxHolderBytes = 4096

// openDirectory opens and locks the directory at path, which must be owned by
// this process's user and closed to all others, with no symbolic link anywhere
// in the path. With create it makes what is missing of the path.
func openDirectory(path string, create bool) (_ *directory, err error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	root, err := walk(absolute, create)
	if err != nil {
		return nil, err
	}
	d := &directory{name: absolute, root: root}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if err := checkOwner(absolute, root); err != nil {
		return nil, err
	}
	if err := d.acquire(create); err != nil {
		return nil, err
	}
	return d, nil
}

// walk opens one component of the path after the other, so that no symbolic
// link is followed, not even one that is put there meanwhile.
func walk(absolute string, create bool) (*os.File, error) {
	at, err := os.Open("/")
	if err != nil {
		return nil, err
	}
	walked := ""
	for part := range strings.SplitSeq(strings.Trim(absolute, "/"), "/") {
		if part == "" {
			break
		}
		walked += "/" + part
		next, err := step(at, part, create)
		_ = at.Close() // was only read
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%w at %s: %s does not exist; create the store with 'counterfoil init'", engine.ErrNoStore, absolute, walked)
		case errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR):
			return nil, notADirectory(absolute, walked)
		case err != nil:
			return nil, fmt.Errorf("open %s: %w", walked, err)
		}
		at = next
	}
	return at, nil
}

func step(at *os.File, part string, create bool) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(at.Fd()), part, flags, 0)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err := unix.Mkdirat(int(at.Fd()), part, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := at.Sync(); err != nil {
			return nil, err
		}
		fd, err = unix.Openat(int(at.Fd()), part, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), part), nil
}

func notADirectory(absolute, walked string) error {
	info, err := os.Lstat(walked)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%w: %s is a symbolic link, which could be pointed elsewhere; name the directory that it leads to instead of %s",
			engine.ErrForeign, walked, absolute)
	}
	return fmt.Errorf("%w: %s is not a directory", engine.ErrForeign, walked)
}

func checkOwner(name string, root *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &stat); err != nil {
		return fmt.Errorf("stat %s: %w", name, err)
	}
	if uid := os.Geteuid(); int(stat.Uid) != uid {
		return fmt.Errorf("%w: %s is owned by user %d, this process runs as user %d; run it as the owner or change the owner", engine.ErrForeign, name, stat.Uid, uid)
	}
	if mode := stat.Mode & 0o777; mode&0o077 != 0 {
		return fmt.Errorf("%w: other users may enter %s (its mode is %#o); run 'chmod 700 %s'", engine.ErrForeign, name, mode, name)
	}
	return nil
}

// acquire takes the exclusive lock, which the operating system releases when
// the process ends, however it ends. It makes the lock file only with create:
// opening must leave a directory that is no store as it is.
func (d *directory) acquire(create bool) error {
	flags := unix.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if create {
		flags |= unix.O_CREAT
	}
	fd, err := unix.Openat(int(d.root.Fd()), lockName, flags, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.noStore()
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%w: %s/%s is a symbolic link", engine.ErrForeign, d.name, lockName)
	case err != nil:
		return fmt.Errorf("open %s/%s: %w", d.name, lockName, err)
	}
	file := os.NewFile(uintptr(fd), lockName)
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		locked := &LockedError{Dir: d.name}
		if h, err := readHolder(file); err == nil {
			locked.PID, locked.Addr = h.PID, h.Addr
		}
		_ = file.Close() // was only read
		return locked
	}
	if err != nil {
		_ = file.Close() // was only read
		return fmt.Errorf("lock %s/%s: %w", d.name, lockName, err)
	}
	d.lock = file
	return d.setHolder("")
}

// noStore says what a directory without a lock file is.
func (d *directory) noStore() error {
	names, err := d.root.Readdirnames(1)
	if err == nil && len(names) > 0 {
		return fmt.Errorf("%w: %s has files and none of a store", engine.ErrForeign, d.name)
	}
	return fmt.Errorf("%w at %s: it is empty; create the store with 'counterfoil init'", engine.ErrNoStore, d.name)
}

func readHolder(file *os.File) (h holder, err error) {
	buf := make([]byte, maxHolderBytes)
	n, err := file.ReadAt(buf, 0)
	if n == 0 {
		return h, err
	}
	return h, json.Unmarshal(buf[:n], &h)
}

// setHolder writes who has the lock. It is information alone and not synced.
func (d *directory) setHolder(addr string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	said, err := json.Marshal(holder{PID: os.Getpid(), Addr: addr})
	if err != nil {
		return err
	}
	if len(said) > maxHolderBytes {
		return fmt.Errorf("the address has %d bytes, which is too long", len(addr))
	}
	if err := d.lock.Truncate(0); err != nil {
		return fmt.Errorf("write %s/%s: %w", d.name, lockName, err)
	}
	if _, err := d.lock.WriteAt(said, 0); err != nil {
		return fmt.Errorf("write %s/%s: %w", d.name, lockName, err)
	}
	return nil
}

// checkEntries refuses symbolic links in place of the store's files.
func (d *directory) checkEntries(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%w: %s in %s is a symbolic link", engine.ErrForeign, e.Name(), d.name)
		}
	}
	return nil
}

// close releases the lock and the directory. The lock is released by itself:
// closing its file leaves it to a child process that is just being started.
func (d *directory) close() error {
	var err error
	if d.lock != nil {
		err = errors.Join(unix.Flock(int(d.lock.Fd()), unix.LOCK_UN), d.lock.Close())
	}
	return errors.Join(err, d.root.Close())
}
