package pebble

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"

	"github.com/counterfoil/counterfoil/engine"
)

// Checkpoint writes a store of its own into dir, which must not exist, with
// everything that is durable when it begins. Where it can it links files
// instead of copying them. What a failed one has written is removed.
func (e *Engine) Checkpoint(ctx context.Context, dir string) (err error) {
	if err := e.latch.enter(ctx); err != nil {
		return err
	}
	defer e.leave()
	files := e.place.fs
	if _, err := files.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s exists; a backup needs a new directory", engine.ErrStoreExists, dir)
	}
	if err := e.makeTarget(dir); err != nil {
		return fmt.Errorf("back up to %s: %w", dir, err)
	}
	if err = e.db.Checkpoint(files.PathJoin(dir, dataName), pebble.WithFlushedWAL()); err == nil {
		err = writeFormat(files, dir)
	}
	if err == nil {
		err = e.latch.check()
	}
	if err != nil {
		return fmt.Errorf("back up to %s: %w", dir, errors.Join(err, files.RemoveAll(dir)))
	}
	return nil
}

func (e *Engine) makeTarget(dir string) error {
	if e.place.dir == nil {
		return e.place.fs.MkdirAll(dir, 0o700)
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	inside, err := filepath.Rel(e.place.dir.name, absolute)
	if err == nil && filepath.IsLocal(inside) {
		return errors.New("it lies inside the store")
	}
	if err := os.Mkdir(absolute, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(absolute, lockName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // where the operator said
	if err != nil {
		return err
	}
	return lock.Close()
}
