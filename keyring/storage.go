package keyring

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil/internal/private"
)

const (
	fileName = "keyring.json"
	lockName = "lock"
	// lockWait bounds the wait for another process that is changing the keys.
	lockWait = 5 * time.Second
)

// storage keeps the bytes of one keyring.
type storage interface {
	// load returns the file, or nil if it is the one with that stamp.
	load(known private.Stamp) ([]byte, private.Stamp, error)
	// lock excludes all other changes until unlock is called; save may be called in between.
	lock(ctx context.Context) (save func([]byte) error, unlock func(), err error)
}

// directory is a keyring on disk. Every call opens the path anew, so that it is judged as it is now.
type directory string

func (path directory) load(known private.Stamp) ([]byte, private.Stamp, error) {
	dir, err := private.Open(string(path))
	if err != nil {
		return nil, private.Stamp{}, path.explain(err)
	}
	defer dir.Close()
	if known != (private.Stamp{}) {
		if stamp, err := dir.Stamp(fileName); err == nil && stamp == known {
			return nil, known, nil
		}
	}
	data, stamp, err := dir.Read(fileName, maxFile)
	if err != nil {
		return nil, private.Stamp{}, path.explain(err)
	}
	return data, stamp, nil
}

func (path directory) lock(ctx context.Context) (save func([]byte) error, unlock func(), err error) {
	dir, err := private.Open(string(path))
	if err != nil {
		return nil, nil, path.explain(err)
	}
	free, err := lockDir(ctx, dir)
	if err != nil {
		dir.Close()
		return nil, nil, path.explain(err)
	}
	save = func(data []byte) error { return path.explain(dir.Replace(fileName, data)) }
	return save, func() { free(); dir.Close() }, nil
}

func lockDir(ctx context.Context, dir *private.Dir) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return dir.Lock(ctx, lockName)
}

// create makes the directory if there is none and puts the first file there, if nothing else is in it.
func (path directory) create(ctx context.Context, data []byte) error {
	dir, err := private.Make(string(path))
	if err != nil {
		return path.explain(err)
	}
	defer dir.Close()
	unlock, err := lockDir(ctx, dir)
	if err != nil {
		return path.explain(err)
	}
	defer unlock()
	names, err := dir.Names()
	if err != nil {
		return path.explain(err)
	}
	if slices.Contains(names, fileName) {
		return fmt.Errorf("%w: %s; open it, or name another directory", ErrExists, path)
	}
	if i := slices.IndexFunc(names, func(name string) bool { return name != lockName && !private.Temporary(name) }); i >= 0 {
		return fmt.Errorf("%w: %s is not empty but holds no %s; name another directory", ErrForeign, path, fileName)
	}
	return path.explain(dir.Replace(fileName, data))
}

// explain gives an error of the file system its place among this package's errors.
func (path directory) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, private.ErrUnsafe):
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s has no %s; `counterfoil init` creates a new store with its keys, the keys of an existing store come back from a backup only",
			ErrMissing, path, fileName)
	case errors.Is(err, private.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrForeign, err)
	case errors.Is(err, private.ErrUnsure):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// memory is a keyring that the process forgets.
type memory struct {
	mu   sync.Mutex
	data []byte
}

func (m *memory) load(private.Stamp) ([]byte, private.Stamp, error) {
	return m.data, private.Stamp{}, nil
}

func (m *memory) lock(context.Context) (save func([]byte) error, unlock func(), err error) {
	m.mu.Lock()
	return func(data []byte) error { m.data = data; return nil }, m.mu.Unlock, nil
}
