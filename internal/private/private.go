// Package private keeps small files that nobody but the account of this process may read or change: keys and what else
// must not be shared with the machine's other users.
//
// A directory is private if and only if no symbolic link stands anywhere in its path, it belongs to the account of this
// process, and nobody else has any right on it (mode 0700 or stricter); the same holds for the files in it (0600 or
// stricter). Anything else is refused before a byte is read, by an error that names the path and the command that mends
// it. Writing replaces a file as a whole, durably: after a crash at any point there is the old content or the new one.
package private

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrUnsafe means: a symbolic link stands in the path, or somebody else has rights on the directory or file.
	ErrUnsafe = errors.New("not private")
	// ErrTooLarge means: the file has more bytes than its reader takes.
	ErrTooLarge = errors.New("file too large")
	// ErrUnsure means: the new content was put in place, but it is not known whether it would survive a crash. Read the file
	// again, and write it again.
	ErrUnsure = errors.New("it is not known whether the change is durable")
	// ErrBusy means: another process held the lock until the wait was over.
	ErrBusy = errors.New("in use by another process")
)

// Dir is an open private directory. Later changes of its path do not matter to it. It is safe for concurrent use, except
// that only the holder of a lock should call [Dir.Replace].
type Dir struct {
	file *os.File
	path string
	sync func(*os.File) error // replaced by tests of failed writes
}

// Open opens the directory at path. If there is none, errors.Is finds fs.ErrNotExist.
func Open(path string) (*Dir, error) {
	fd, err := walk(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{file: os.NewFile(uintptr(fd), path), path: path, sync: (*os.File).Sync}
	if err := d.vet(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Make opens the directory at path, whose parent must exist, and creates it first if there is none.
func Make(path string) (*Dir, error) {
	d, err := Open(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	parent, name := filepath.Split(filepath.Clean(path))
	fd, err := walk(parent)
	if err != nil {
		return nil, err
	}
	above := os.NewFile(uintptr(fd), parent)
	defer above.Close()
	if err := unix.Mkdirat(fd, name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	// Else a crash could take the directory away with what was made durable in it.
	if err := above.Sync(); err != nil {
		return nil, err
	}
	return Open(path)
}

// walk opens a directory component by component, so that a symbolic link anywhere is an error. It returns a descriptor
// that the caller closes.
func walk(path string) (int, error) {
	at, rest := ".", filepath.Clean(path)
	if path == "" {
		rest = "."
	}
	if filepath.IsAbs(rest) {
		at, rest = "/", strings.TrimPrefix(rest, "/")
	}
	parts := slices.DeleteFunc(strings.Split(rest, "/"), func(part string) bool { return part == "" || part == "." })
	fd, err := unix.Open(at, directoryFlags(len(parts) == 0), 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: at, Err: err}
	}
	for i, part := range parts {
		next, err := unix.Openat(fd, part, directoryFlags(i == len(parts)-1), 0)
		if err != nil {
			err = walkError(fd, part, filepath.Join(at, filepath.Join(parts[:i+1]...)), err)
		}
		_ = unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

// directoryFlags asks for no right on the directories above the last one but that of passing through.
func directoryFlags(last bool) int {
	flags := unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if last {
		return flags | unix.O_RDONLY
	}
	return flags | passThrough
}

func walkError(fd int, part, path string, err error) error {
	var st unix.Stat_t
	if unix.Fstatat(fd, part, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return fmt.Errorf("%w: %s is a symbolic link; name the directory that it points to", ErrUnsafe, path)
	}
	return &fs.PathError{Op: "open", Path: path, Err: err}
}

func (d *Dir) vet() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.file.Fd()), &st); err != nil {
		return &fs.PathError{Op: "stat", Path: d.path, Err: err}
	}
	return vet(&st, d.path, "700", os.Geteuid())
}

// vet refuses what is not ours alone.
func vet(st *unix.Stat_t, path, mode string, euid int) error {
	if int(st.Uid) != euid {
		return fmt.Errorf("%w: %s belongs to the account with id %d, this process runs as %d; run it as that account, or: chown %d %s",
			ErrUnsafe, path, st.Uid, euid, euid, path)
	}
	if st.Mode&0o077 != 0 {
		return fmt.Errorf("%w: %s has mode %04o, which gives others rights on it; run: chmod %s %s", ErrUnsafe, path, st.Mode&0o7777, mode, path)
	}
	return nil
}

// Close gives up the directory.
func (d *Dir) Close() { d.file.Close() }

// Path returns the path by which the directory was opened.
func (d *Dir) Path() string { return d.path }

// Names lists what is in the directory, sorted.
func (d *Dir) Names() ([]string, error) {
	// Of a copy, because reading moves the offset.
	fd, err := unix.Openat(int(d.file.Fd()), ".", directoryFlags(true), 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path, Err: err}
	}
	again := os.NewFile(uintptr(fd), d.path)
	defer again.Close()
	names, err := again.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// Stamp tells one content of a file from the next, since every [Dir.Replace] makes a new file.
type Stamp struct {
	device, inode uint64
	size          int64
	changed       time.Time
}

// Stamp returns the stamp of the named file without reading it.
func (d *Dir) Stamp(name string) (Stamp, error) {
	f, stamp, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return Stamp{}, err
	}
	f.Close()
	return stamp, nil
}

// Read returns the content of the named file, of at most limit bytes, with its stamp. If there is none, errors.Is finds
// fs.ErrNotExist.
func (d *Dir) Read(name string, limit int) ([]byte, Stamp, error) {
	f, stamp, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, Stamp{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, Stamp{}, err
	}
	if len(data) > limit {
		return nil, Stamp{}, fmt.Errorf("%w: %s has more than %d bytes", ErrTooLarge, f.Name(), limit)
	}
	return data, stamp, nil
}

// open opens a file that is already private, or creates it if flags say so.
func (d *Dir) open(name string, flags int) (*os.File, Stamp, error) {
	path := filepath.Join(d.path, name)
	// Not blocking, so that a pipe put in the file's place is refused below rather than waited for.
	fd, err := unix.Openat(int(d.file.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, Stamp{}, fmt.Errorf("%w: %s is a symbolic link; put the file itself there", ErrUnsafe, path)
	}
	if err != nil {
		return nil, Stamp{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	stamp, err := vetFile(f)
	if err != nil {
		f.Close()
		return nil, Stamp{}, err
	}
	return f, stamp, nil
}

func vetFile(f *os.File) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Stamp{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Stamp{}, fmt.Errorf("%w: %s is not a regular file", ErrUnsafe, f.Name())
	}
	if err := vet(&st, f.Name(), "600", os.Geteuid()); err != nil {
		return Stamp{}, err
	}
	return Stamp{device: uint64(st.Dev), inode: st.Ino, size: st.Size, changed: time.Unix(st.Ctim.Unix())}, nil //nolint:unconvert // Dev has another type elsewhere.
}

// temporary is where new content is written before it takes the file's place. A crash may leave one behind; the next
// Replace overwrites it.
func temporary(name string) string { return "." + name + ".new" }

// Temporary reports whether a name in a directory is a leftover of a Replace that did not come to its end.
func Temporary(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".new")
}

// Replace makes data the content of the named file, creating it if needed. On nil the new content is durable; on
// [ErrUnsure] it may be; on any other error the old content stands. The caller holds the lock.
func (d *Dir) Replace(name string, data []byte) error {
	next := temporary(name)
	if err := d.write(next, data); err != nil {
		_ = unix.Unlinkat(int(d.file.Fd()), next, 0)
		return err
	}
	if err := unix.Renameat(int(d.file.Fd()), next, int(d.file.Fd()), name); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsure, &fs.PathError{Op: "rename", Path: filepath.Join(d.path, name), Err: err})
	}
	if err := d.sync(d.file); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsure, err)
	}
	return nil
}

func (d *Dir) write(name string, data []byte) error {
	if err := unix.Unlinkat(int(d.file.Fd()), name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "unlink", Path: filepath.Join(d.path, name), Err: err}
	}
	f, _, err := d.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = d.sync(f)
	}
	return errors.Join(err, f.Close())
}

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 20 * time.Millisecond

// Lock takes the exclusive lock that the named file stands for, creating the file if needed, and returns the function
// that gives it back. It excludes other processes and other calls in this one. It waits until ctx ends, then fails with
// [ErrBusy]. The lock ends with the process.
func (d *Dir) Lock(ctx context.Context, name string) (unlock func(), err error) {
	f, _, err := d.open(name, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("%w: %s is locked", ErrBusy, f.Name())
		case <-time.After(lockPoll):
		}
	}
}
