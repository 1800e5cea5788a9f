package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/open"
	"github.com/counterfoil/counterfoil/internal/config"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/server"
	"github.com/counterfoil/counterfoil/store"
)

// place is where the parts of one store are.
type place struct {
	location open.Location
	shown    string // the engine's URL, without a password
	dir      string // "" without --data
	keys     string // directory; "" where nothing outlives the process
	witness  string // file; "" for none
	token    string // file of the admin's token; "" without --data
}

// placeOf finds the parts of the store that the options name.
func placeOf(c *config.Config) (place, error) {
	p := place{dir: c.Data, witness: c.Witness, shown: c.ShownStore()}
	url := c.Store
	switch {
	case url == "" && c.Data == "":
		return place{}, badValue("say where the store is: --data DIR, or --store URL")
	case url == "":
		url = open.File(filepath.Join(c.Data, "store"))
		p.shown = url
	}
	location, err := open.Parse(url)
	if err != nil {
		return place{}, fmt.Errorf("--store: %w", err)
	}
	p.location = location
	if c.Data != "" {
		p.token = filepath.Join(c.Data, "admin.token")
	}
	if location.Forgets() {
		p.witness = ""
		return p, nil
	}
	if c.Data == "" {
		return place{}, badValue("--store needs --data DIR too: the keys of the store are in DIR/keys")
	}
	p.keys = filepath.Join(c.Data, "keys")
	if p.witness == "" && !location.Shared() {
		p.witness = filepath.Join(c.Data, "witness")
	}
	return p, nil
}

// stack is an open store with everything that works on it.
type stack struct {
	place  place
	engine engine.Engine
	store  *store.Store
	keys   *keyring.Keyring
	access *access.Access
	core   *counterfoil.Counterfoil
}

// options of a store that is opened.
func (p place) options(c *config.Config, keys *keyring.Keyring, log *slog.Logger) store.Options {
	return store.Options{Keys: keys.Integrity(), Witness: p.witness, Log: log, SweepEvery: c.SweepEvery}
}

func (p place) engineOptions(c *config.Config, log *slog.Logger, exit func(int)) open.Options {
	return open.Options{Log: log, Exit: exit, UnsafeDurability: c.UnsafeDurability}
}

// openStack opens the store at a place. exit is called after a write failed for good.
func openStack(ctx context.Context, p place, c *config.Config, log *slog.Logger, exit func(int)) (*stack, error) {
	keys, err := p.openKeys()
	if err != nil {
		return nil, err
	}
	e, err := p.location.Open(ctx, p.engineOptions(c, log, exit))
	if err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, e, p.options(c, keys, log))
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return assemble(p, c, e, s, keys, log)
}

// openKeys opens the keys of a store that outlives its process.
func (p place) openKeys() (*keyring.Keyring, error) {
	if p.location.Forgets() {
		return nil, fmt.Errorf("%w: memory: holds nothing from one command to the next; only 'counterfoil serve --init' makes one", engine.ErrNoStore)
	}
	keys, err := keyring.Open(p.keys, keyring.Options{})
	if _, stat := os.Lstat(p.dir); err != nil && errors.Is(stat, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w at %s: create it with 'counterfoil init --data %s'", engine.ErrNoStore, p.dir, quote(p.dir))
	}
	return keys, err
}

// assemble puts the capabilities on a store.
func assemble(p place, c *config.Config, e engine.Engine, s *store.Store, keys *keyring.Keyring, log *slog.Logger) (*stack, error) {
	a, err := access.New(s, keys, nil)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	core, err := counterfoil.New(s, keys, counterfoil.Options{Log: log, Operations: operation.Options{
		Retention: c.Retention, Tombstone: c.Tombstones, NoTombstones: c.Tombstones == 0, MaxReceipt: int(c.MaxReceipt),
	}})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &stack{place: p, engine: e, store: s, keys: keys, access: a, core: core}, nil
}

func (s *stack) close() error { return s.store.Close() }

// server makes the HTTP interface of the store.
func (s *stack) server(c *config.Config, log *slog.Logger) (*server.Server, error) {
	return server.New(server.Options{
		Access: s.access, Store: s.store, Keys: s.keys, Core: s.core, Log: log, Version: version().Version,
		Limits: server.Limits{
			Requests: c.MaxRequests, Connections: c.MaxConnections, HeaderBytes: int(c.MaxHeader), BodyBytes: int64(c.MaxBodies),
			Receipt: max(4<<20, 2*int64(c.MaxReceipt)), Arguments: int64(c.MaxArguments), HeaderTime: c.HeaderTime, BodyTime: c.BodyTime,
			HandleTime: c.HandleTime, DrainTime: c.DrainTime,
		},
	})
}
