// Package memory is an engine that keeps everything in the process and forgets
// it when the process ends: for tests and development.
//
// It decides optimistically, as the engines do that several processes share:
// it takes a snapshot, calls the function without a lock, and applies the
// changes if no version that was read has changed since. Two stores on one
// memory engine therefore really race.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/planted"
	"github.com/counterfoil/counterfoil/state"
)

const (
	maxAttempts = 64 // conflicts after which a transaction gives up
	turnAfter   = 3  // conflicts after which it waits for its turn
)

// Engine is one handle on records in memory.
type Engine struct {
	records *records
	clock   clock.Clock
	closed  atomic.Bool
}

var _ engine.Engine = (*Engine)(nil)

// New makes an engine without records that tells the time by c, or by the
// machine's clock if c is nil.
func New(c clock.Clock) *Engine {
	if c == nil {
		c = clock.System{}
	}
	return &Engine{records: newRecords(), clock: c}
}

// Share gives another handle on the same records, as another process has it on
// a shared store. Each is closed by itself, and the records live as long as
// any handle does: a handle taken from a closed one is what a restart is to an
// engine that remembers.
func (e *Engine) Share() *Engine {
	return &Engine{records: e.records, clock: e.clock}
}

// Transact is as the contract says. Nothing is durable.
func (e *Engine) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	if err := engine.CheckKeys(keys); err != nil {
		return err
	}
	for attempt := range maxAttempts {
		if attempt == turnAfter {
			e.records.turn.Lock()
			defer e.records.turn.Unlock()
		}
		if err := e.usable(ctx); err != nil {
			return err
		}
		applied, err := e.attempt(keys, fn)
		if applied || err != nil {
			return err
		}
	}
	return engine.ErrConflict
}

// attempt runs fn once, and again as long as it asks for more keys, and
// applies its changes. It reports false without an error on a conflict.
func (e *Engine) attempt(keys []state.Key, fn engine.Func) (bool, error) {
	keys = keys[:len(keys):len(keys)]
	for round := 1; ; round++ {
		snap := engine.Snapshot{Now: e.now(), Keys: keys, Items: e.records.read(keys)}
		plan, err := fn(snap)
		switch {
		case err != nil:
			return false, err
		case len(plan.More) == 0:
			return e.apply(snap, plan)
		}
		keys = append(keys[:len(keys):len(keys)], plan.More...)
		if err := engine.CheckKeys(keys); err != nil {
			return false, err
		}
		if err := engine.CheckRound(round); err != nil {
			return false, err
		}
	}
}

func (e *Engine) apply(snap engine.Snapshot, plan engine.Plan) (bool, error) {
	if len(plan.Changes) == 0 {
		return true, nil
	}
	if _, err := engine.Positions(snap.Keys, plan.Changes); err != nil {
		return false, err
	}
	changes := make([]engine.Change, len(plan.Changes))
	for i, c := range plan.Changes {
		changes[i] = engine.Change{Key: c.Key, Item: clone(c.Item)}
	}
	r := e.records
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case planted.On(planted.WrittenKeysOnly) && !r.unchanged(onlyWritten(snap, plan)):
		return false, nil
	case !planted.On(planted.WrittenKeysOnly) && !r.unchanged(snap):
		return false, nil
	case e.now() > plan.NotAfter:
		return false, engine.ErrLate
	case e.closed.Load():
		return false, engine.ErrClosed
	}
	for _, c := range changes {
		r.put(c.Key, c.Item)
	}
	return true, nil
}

// onlyWritten is the part of a snapshot that a plan changes: what a planted bug
// takes for all that must be compared.
func onlyWritten(snap engine.Snapshot, plan engine.Plan) engine.Snapshot {
	part := engine.Snapshot{Now: snap.Now}
	for i, k := range snap.Keys {
		if slices.ContainsFunc(plan.Changes, func(c engine.Change) bool { return c.Key == k }) {
			part.Keys, part.Items = append(part.Keys, k), append(part.Items, snap.Items[i])
		}
	}
	return part
}

// clone frees what is kept from the caller's buffers.
func clone(item *state.Sealed) *state.Sealed {
	if item == nil {
		return nil
	}
	own := *item
	own.Data = bytes.Clone(item.Data)
	return &own
}

// Read is as the contract says.
func (e *Engine) Read(ctx context.Context, keys []state.Key) (engine.Snapshot, error) {
	if err := e.usable(ctx); err != nil {
		return engine.Snapshot{}, err
	}
	if err := engine.CheckKeys(keys); err != nil {
		return engine.Snapshot{}, err
	}
	return engine.Snapshot{Now: e.now(), Keys: keys, Items: e.records.read(keys)}, nil
}

// Due is as the contract says.
func (e *Engine) Due(ctx context.Context, scope string, index engine.Index, kind state.Kind, before int64, cursor string, limit int) ([]engine.DueKey, string, error) {
	limit, err := e.list(ctx, limit)
	if err != nil {
		return nil, "", err
	}
	if err := index.Check(); err != nil {
		return nil, "", err
	}
	return e.records.listDue(scope, index, kind, before, cursor, limit)
}

// Scan is as the contract says.
func (e *Engine) Scan(ctx context.Context, scope string, kind state.Kind, prefix, cursor string, limit int) ([]engine.Found, string, error) {
	limit, err := e.list(ctx, limit)
	if err != nil {
		return nil, "", err
	}
	found, next := e.records.scan(scope, kind, prefix, cursor, limit)
	return found, next, nil
}

// Scopes is as the contract says.
func (e *Engine) Scopes(ctx context.Context, cursor string, limit int) ([]string, string, error) {
	limit, err := e.list(ctx, limit)
	if err != nil {
		return nil, "", err
	}
	scopes, next := e.records.listScopes(cursor, limit)
	return scopes, next, nil
}

func (e *Engine) list(ctx context.Context, limit int) (int, error) {
	if err := e.usable(ctx); err != nil {
		return 0, err
	}
	return engine.Page(limit)
}

// Now reads the clock that New was given.
func (e *Engine) Now(ctx context.Context) (int64, error) {
	if err := e.usable(ctx); err != nil {
		return 0, err
	}
	return e.now(), nil
}

// Guarantee says that nothing survives the process.
func (e *Engine) Guarantee() engine.Guarantee {
	return engine.Guarantee{Engine: "memory", Level: engine.Process, Shared: true, Pipeline: 1}
}

// Close ends this handle; the records stay with the others.
func (e *Engine) Close() error {
	e.closed.Store(true)
	return nil
}

func (e *Engine) now() int64 { return e.clock.Now().UnixMilli() }

func (e *Engine) usable(ctx context.Context) error {
	if e.closed.Load() {
		return engine.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	return nil
}
