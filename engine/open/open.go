// Package open finds the engine that a URL names. It is the only package that imports every engine: who uses Counterfoil
// as a library opens the one engine that they want, and links no other.
//
//	memory:            forgets everything with the process
//	file:DIR           the embedded engine in the directory DIR
//	redis://HOST       Redis, Valkey or a cluster of them; rediss:// with TLS
//	postgres://HOST/DB PostgreSQL
//
// The URL of a server may carry guarantee=replicated among its parameters (and for Redis replicas=N, 1 by default): an answer
// is then given only when the replicas have what it rests on. Without it the guarantee is that of one node.
package open

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/engine/pebble"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// Options of every engine; each takes what concerns it.
type Options struct {
	Clock clock.Clock    // nil: the machine's
	Exit  func(code int) // ends the process after a failed write of an embedded engine; nil: os.Exit
	Log   *slog.Logger   // nil: nowhere
	// UnsafeDurability accepts settings that may lose acknowledged writes.
	UnsafeDurability bool
}

// ErrURL means that a URL names no engine. What it says repeats no part of the URL but its scheme.
var ErrURL = errors.New("no URL of a store")

// Location is a place where a store is or could be.
type Location struct {
	engine *driver
	target string // what the engine makes of it; may hold a password
}

// driver is one engine.
type driver struct {
	schemes []string
	// Forgets: nothing outlives the process. Shared: other processes may use the same data at the same time.
	forgets, shared bool
	parse           func(location string) (target string, err error)
	provision       func(ctx context.Context, target string, o Options) error
	open            func(ctx context.Context, target string, o Options) (engine.Engine, error)
	// settings is nil where there are none.
	settings func(ctx context.Context, target string, o Options) ([]engine.Setting, error)
	// migrate is nil where there was never an older version.
	migrate func(ctx context.Context, target string, o Options) (bool, error)
}

// drivers are all engines there are.
var drivers = []driver{
	{schemes: []string{"memory"}, forgets: true, parse: parseMemory, provision: nothing, open: openMemory},
	{schemes: []string{"file"}, parse: parseFile, provision: createFile, open: openFile},
	{schemes: []string{"redis", "rediss"}, shared: true, parse: parseServer, provision: createRedis, open: openRedis, settings: settingsOfRedis},
	{schemes: []string{"postgres", "postgresql"}, shared: true, parse: parseServer, provision: createPostgres, open: openPostgres, settings: settingsOfPostgres, migrate: migratePostgres},
}

// Parse reads a URL. Its errors wrap [ErrURL].
func Parse(location string) (Location, error) {
	scheme, _, ok := strings.Cut(location, ":")
	if !ok {
		return Location{}, fmt.Errorf("%w: want one of %s", ErrURL, schemes())
	}
	for i := range drivers {
		d := &drivers[i]
		if !slices.Contains(d.schemes, scheme) {
			continue
		}
		target, err := d.parse(location)
		if err != nil {
			return Location{}, fmt.Errorf("%w: %w", ErrURL, err)
		}
		return Location{engine: d, target: target}, nil
	}
	return Location{}, fmt.Errorf("%w: its scheme is none of %s", ErrURL, schemes())
}

// Forgets reports whether nothing there outlives the process.
func (l Location) Forgets() bool { return l.engine.forgets }

// Shared reports whether several processes may use what is there at the same time.
func (l Location) Shared() bool { return l.engine.shared }

// Provision prepares an empty place for a store. It fails with [engine.ErrStoreExists] if there is one, and with
// [engine.ErrForeign] if there is anything else.
func (l Location) Provision(ctx context.Context, o Options) error {
	return l.engine.provision(ctx, l.target, o.withDefaults())
}

// Migrate brings data of an older version up to date, and reports whether there was anything to do.
func (l Location) Migrate(ctx context.Context, o Options) (bool, error) {
	if l.engine.migrate == nil {
		return false, nil
	}
	return l.engine.migrate(ctx, l.target, o.withDefaults())
}

// Open opens the engine. It creates nothing.
func (l Location) Open(ctx context.Context, o Options) (engine.Engine, error) {
	return l.engine.open(ctx, l.target, o.withDefaults())
}

// Settings lists the settings of the servers there that the guarantee rests on, the right ones too, without opening a store.
func (l Location) Settings(ctx context.Context, o Options) ([]engine.Setting, error) {
	if l.engine.settings == nil {
		return nil, nil
	}
	return l.engine.settings(ctx, l.target, o.withDefaults())
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func schemes() string {
	var all []string
	for i := range drivers {
		for _, s := range drivers[i].schemes {
			all = append(all, s+":")
		}
	}
	return strings.Join(all, ", ")
}

func nothing(context.Context, string, Options) error { return nil }

func parseMemory(location string) (string, error) {
	if location != "memory:" {
		return "", errors.New("memory: takes nothing after the colon")
	}
	return "", nil
}

func openMemory(_ context.Context, _ string, o Options) (engine.Engine, error) {
	return memory.New(o.Clock), nil
}

// parseFile takes file:DIR, file:/DIR and file:///DIR (RFC 8089) and gives the directory.
func parseFile(location string) (string, error) {
	path := strings.TrimPrefix(location, "file:")
	if rest, ok := strings.CutPrefix(path, "//"); ok {
		if !strings.HasPrefix(rest, "/") {
			return "", errors.New("file: names a directory of this machine: write file:DIR")
		}
		path = rest
	}
	path, err := url.PathUnescape(path)
	if err != nil || path == "" || strings.ContainsRune(path, 0) {
		return "", errors.New("file: wants a directory: write file:DIR")
	}
	return path, nil
}

// File returns the URL of the embedded engine in a directory.
func File(dir string) string { return "file:" + (&url.URL{Path: dir}).EscapedPath() }

func createFile(_ context.Context, dir string, o Options) error {
	return pebble.Create(dir, pebble.Options{Clock: o.Clock, Logger: o.Log})
}

func openFile(_ context.Context, dir string, o Options) (engine.Engine, error) {
	return pebble.Open(dir, pebble.Options{Clock: o.Clock, Logger: o.Log, Exit: o.Exit})
}

// Holder tells which process has the store open that err says is in use: its id, 0 if that is not known, and the address
// at which it serves, "" if it is no server. It reports false if err says no such thing.
func Holder(err error) (pid int, addr string, ok bool) {
	var locked *pebble.LockedError
	if !errors.As(err, &locked) {
		return 0, "", false
	}
	return locked.PID, locked.Addr, true
}
