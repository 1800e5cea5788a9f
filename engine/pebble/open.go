package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// Options of an engine. The zero value of each is a good default.
type Options struct {
	// Clock tells the time; the machine's by default.
	Clock clock.Clock
	// Exit ends the process after a failed write, once all callers under way
	// are answered; os.Exit by default. Its code is 70.
	Exit func(code int)
	// Logger gets what the database has to say; it is silent by default.
	Logger *slog.Logger
	// FS replaces the operating system's files in tests. The rules on owner,
	// mode, symbolic links and holder are those of real files alone.
	FS vfs.FS

	CacheBytes    int64 // uncompressed blocks in memory; 128 MB by default
	MemtableBytes int   // a table of new records in memory, of which there may be 8; 16 MB by default
	FilterBytes   int64 // bound of the filter of present keys; 256 MB by default (17 million keys and more)
}

const (
	defaultCacheBytes    = 128 << 20
	defaultMemtableBytes = 16 << 20
	defaultFilterBytes   = 256 << 20

	memtables     = 8 // in memory before commits wait for the disk
	slowDiskAfter = 5 * time.Second
)

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Exit == nil {
		o.Exit = os.Exit
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.MemtableBytes == 0 {
		o.MemtableBytes = defaultMemtableBytes
	}
	if o.FilterBytes == 0 {
		o.FilterBytes = defaultFilterBytes
	}
	return o
}

// Files of a store: a mark that says what it is, written last when it is
// created, and the database in a directory of its own.
const (
	formatName = "FORMAT"
	lockName   = "LOCK"
	dataName   = "data"
	formatMark = "counterfoil store, pebble, version 1\n"
	markPrefix = "counterfoil store, "
)

// databaseFormat is fixed, so that a newer library never changes a store on
// its own.
const databaseFormat = pebble.FormatValueSeparation

// place is an opened directory or, in tests, a directory of another file system.
type place struct {
	dir  *directory // nil in tests
	fs   vfs.FS
	root string
	stop io.Closer // of the check for slow disks
}

func openPlace(dir string, o Options, create bool) (*place, error) {
	if o.FS != nil {
		p := &place{fs: o.FS, root: dir}
		if create {
			if err := p.fs.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
			return p, p.syncDir(p.fs.PathDir(dir))
		}
		return p, nil
	}
	d, err := openDirectory(dir, create)
	if err != nil {
		return nil, err
	}
	p := &place{dir: d, root: d.path()}
	p.fs, p.stop = vfs.WithDiskHealthChecks(vfs.Default, slowDiskAfter, nil, func(info vfs.DiskSlowInfo) {
		o.Logger.Warn("the disk is slow", "operation", info.OpType.String(), "seconds", info.Duration.Seconds())
	})
	return p, nil
}

func (p *place) close() error {
	if p.stop != nil {
		_ = p.stop.Close() // stops a goroutine
	}
	if p.dir == nil {
		return nil
	}
	return p.dir.close()
}

func (p *place) join(name string) string { return p.fs.PathJoin(p.root, name) }

// data is where the database is.
func (p *place) data() string { return p.join(dataName) }

func (p *place) syncDir(name string) error {
	d, err := p.fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// checkFormat reports why the directory is not a store that this version can
// open.
func (p *place) checkFormat(name string) error {
	mark, err := readSmall(p.fs, p.join(formatName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		names, err := p.list()
		if err != nil {
			return fmt.Errorf("%w at %s: %w", engine.ErrNoStore, name, err)
		}
		if len(names) == 0 {
			return fmt.Errorf("%w at %s: create it with 'counterfoil init'", engine.ErrNoStore, name)
		}
		return fmt.Errorf("%w: %s has files but no %s, so it is another program's, or creating a store there was interrupted", engine.ErrForeign, name, formatName)
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case !bytes.HasPrefix(mark, []byte(markPrefix)):
		return fmt.Errorf("%w: the file %s in %s is another program's", engine.ErrForeign, formatName, name)
	case string(mark) != formatMark:
		return fmt.Errorf("%w: the store in %s was made by another version: it says %q, this version knows %q", engine.ErrForeign, name, mark, formatMark)
	}
	return nil
}

// checkData reports why what should be the database is none, before anything
// is written there.
func (p *place) checkData(name string) error {
	if p.dir != nil {
		if err := p.dir.checkEntries(p.root); err != nil {
			return fmt.Errorf("open the store in %s: %w", name, err)
		}
		if err := p.dir.checkEntries(p.data()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("open the store in %s: %w", name, err)
		}
	}
	found, err := pebble.Peek(p.data(), p.fs)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !found.Exists:
		return fmt.Errorf("%w: %s is marked as a store and its data is gone: restore a backup", engine.ErrForeign, name)
	case err != nil:
		return fmt.Errorf("open the store in %s: %w", name, err)
	}
	return nil
}

// list gives what is in the directory beside the lock.
func (p *place) list() ([]string, error) {
	names, err := p.fs.List(p.root)
	return slices.DeleteFunc(names, func(name string) bool { return name == lockName }), err
}

func readSmall(files vfs.FS, name string) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	mark, err := io.ReadAll(io.LimitReader(f, 256))
	return mark, errors.Join(err, f.Close())
}

// writeFormat makes the directory a store, after everything else in it.
func writeFormat(files vfs.FS, root string) error {
	made := files.PathJoin(root, formatName+".new")
	f, err := files.Create(made, "counterfoil")
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(formatMark))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := files.Rename(made, files.PathJoin(root, formatName)); err != nil {
		return err
	}
	d, err := files.OpenDir(root)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Create makes an empty store in dir, which must not exist or be empty. After
// an error dir may hold files that are not a store; nothing that was there
// before is changed.
func Create(dir string, o Options) (err error) {
	o = o.withDefaults()
	p, err := openPlace(dir, o, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	names, err := p.list()
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", dir, err)
	case slices.Contains(names, formatName):
		return fmt.Errorf("%w in %s", engine.ErrStoreExists, dir)
	case len(names) > 0:
		return fmt.Errorf("%w: %s is not empty and not a store; name an empty or a new directory", engine.ErrForeign, dir)
	}
	l := newLatch(o.Logger, nil)
	db, err := openDatabase(p, o, l, func(d *pebble.Options) { d.ErrorIfExists = true })
	if err != nil {
		return fmt.Errorf("create the store in %s: %w", dir, err)
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("create the store in %s: %w", dir, err)
	}
	if err := writeFormat(p.fs, p.root); err != nil {
		return fmt.Errorf("create the store in %s: %w", dir, err)
	}
	return nil
}

// Open opens the store in dir and takes its exclusive lock. It never creates
// one: [engine.ErrNoStore], [engine.ErrForeign] and [LockedError] say what is
// there instead.
func Open(dir string, o Options) (_ *Engine, err error) {
	o = o.withDefaults()
	p, err := openPlace(dir, o, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if err := p.checkFormat(dir); err != nil {
		return nil, err
	}
	if err := p.checkData(dir); err != nil {
		return nil, err
	}
	l := newLatch(o.Logger, o.Exit)
	db, err := openDatabase(p, o, l, func(d *pebble.Options) { d.ErrorIfNotExists = true })
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	e := newEngine(db, p, o, l)
	if err := e.startFilter(); err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, errors.Join(err, db.Close()))
	}
	l.arm()
	return e, nil
}

// openDatabase opens the database itself. A failure inside it that never
// returns shows in the latch.
func openDatabase(p *place, o Options, l *latch, adjust func(*pebble.Options)) (*pebble.DB, error) {
	options := databaseOptions(p, o, l)
	adjust(options)
	type opened struct {
		db  *pebble.DB
		err error
	}
	result := make(chan opened, 1)
	go func() {
		db, err := pebble.Open(p.data(), options)
		result <- opened{db, err}
	}()
	select {
	case r := <-result:
		return r.db, r.err
	case <-l.broken:
		return nil, l.cause
	}
}

func databaseOptions(p *place, o Options, l *latch) *pebble.Options {
	options := &pebble.Options{
		FS:                          &watchedFS{FS: p.fs, root: p.join("") + "/", failed: l.failedWrite},
		FormatMajorVersion:          databaseFormat,
		Logger:                      databaseLog{log: o.Logger, latch: l},
		EventListener:               listener(o.Logger, l),
		CacheSize:                   o.CacheBytes,
		MemTableSize:                uint64(o.MemtableBytes), //nolint:gosec // a size above 0
		MemTableStopWritesThreshold: memtables,
		// Absent keys are told by the filter and hot ones are in memory, so that
		// many tables may pile up before they are worth compacting: the database
		// begins at half the threshold.
		L0CompactionThreshold:      40,
		L0CompactionFileThreshold:  500,
		L0StopWritesThreshold:      100,
		LBaseMaxBytes:              256 << 20,
		MaxOpenFiles:               4096,
		BytesPerSync:               1 << 20,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
	}
	for i := range options.Levels {
		level := &options.Levels[i]
		level.FilterPolicy = bloom.FilterPolicy(10)
		level.Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
		level.BlockSize = 16 << 10
	}
	return options
}
