package pebble

import (
	"fmt"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/counterfoil/counterfoil/internal/planted"
)

// watchedFS is the file system below the database. The first write, sync,
// creation or rename inside the store that fails latches the engine right
// there, and the failed call never returns: the database itself would panic on
// some of these errors in the middle of a commit, and report others as success.
//
// Reads, removals of obsolete files and whatever happens outside the store (a
// backup's target) fail as usual.
type watchedFS struct {
	vfs.FS
	root string // what the names of the store's own files begin with
	// failed takes an error of the store's own files. It returns only while the
	// engine is being opened or created.
	failed func(error)
}

func (w *watchedFS) watch(op, name string, err error) error {
	if err != nil && strings.HasPrefix(name, w.root) && !planted.On(planted.FatalThatReturns) {
		w.failed(fmt.Errorf("%s %s: %w", op, strings.TrimPrefix(name, w.root), err))
	}
	return err
}

func (w *watchedFS) file(f vfs.File, op, name string, err error) (vfs.File, error) {
	if err := w.watch(op, name, err); err != nil {
		return nil, err
	}
	return &watchedFile{File: f, fs: w, name: name}, nil
}

// Create is watched, as are the writes of the file.
func (w *watchedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, category)
	return w.file(f, "create", name, err)
}

// OpenReadWrite is watched, as are the writes of the file.
func (w *watchedFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := w.FS.OpenReadWrite(name, category, opts...)
	return w.file(f, "open", name, err)
}

// ReuseForWrite is watched, as are the writes of the file.
func (w *watchedFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.ReuseForWrite(oldname, newname, category)
	return w.file(f, "reuse", newname, err)
}

// OpenDir is watched, as are the syncs of the directory.
func (w *watchedFS) OpenDir(name string) (vfs.File, error) {
	f, err := w.FS.OpenDir(name)
	return w.file(f, "open", name, err)
}

// Rename is watched.
func (w *watchedFS) Rename(oldname, newname string) error {
	return w.watch("rename", newname, w.FS.Rename(oldname, newname))
}

// MkdirAll is watched.
func (w *watchedFS) MkdirAll(dir string, perm os.FileMode) error {
	return w.watch("make directory", dir, w.FS.MkdirAll(dir, perm))
}

// Unwrap gives the file system that is watched.
func (w *watchedFS) Unwrap() vfs.FS { return w.FS }

type watchedFile struct {
	vfs.File
	fs   *watchedFS
	name string
}

func (f *watchedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.fs.watch("write", f.name, err)
}

func (f *watchedFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	return n, f.fs.watch("write", f.name, err)
}

func (f *watchedFile) Sync() error {
	return f.fs.watch("sync", f.name, f.File.Sync())
}

func (f *watchedFile) SyncData() error {
	return f.fs.watch("sync", f.name, f.File.SyncData())
}

func (f *watchedFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.fs.watch("sync", f.name, err)
}

func (f *watchedFile) Close() error {
	return f.fs.watch("close", f.name, f.File.Close())
}
