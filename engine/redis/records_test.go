package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

const (
	scope  = "default"
	minute = 60_000 // milliseconds
)

func key(id string) state.Key { return state.Key{Scope: scope, Kind: state.KindOperation, ID: id} }

var versions atomic.Uint64

// item is a record that counts, with a version of its own.
func item(n int) *state.Sealed {
	it := &state.Sealed{Data: binary.BigEndian.AppendUint32(nil, uint32(n))}
	binary.BigEndian.PutUint64(it.Version[:], versions.Add(1))
	binary.BigEndian.PutUint32(it.Version[8:], uint32(processNumber()))
	return it
}

func count(it *state.Sealed) int {
	if it == nil {
		return 0
	}
	return int(binary.BigEndian.Uint32(it.Data))
}

// set writes one record, whatever was there; nil deletes it.
func set(ctx context.Context, e engine.Engine, k state.Key, it *state.Sealed) error {
	return e.Transact(ctx, []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{Changes: []engine.Change{{Key: k, Item: it}}, NotAfter: s.Now + minute}, nil
	})
}

// increment raises the counters under keys together.
func increment(ctx context.Context, e engine.Engine, keys ...state.Key) error {
	return e.Transact(ctx, keys, func(s engine.Snapshot) (engine.Plan, error) {
		plan := engine.Plan{NotAfter: s.Now + minute}
		for i, k := range keys {
			plan.Changes = append(plan.Changes, engine.Change{Key: k, Item: item(count(s.Items[i]) + 1)})
		}
		return plan, nil
	})
}

func get(t *testing.T, e engine.Engine, k state.Key) *state.Sealed {
	t.Helper()
	snap, err := e.Read(t.Context(), []state.Key{k})
	must(t, err)
	return snap.Items[0]
}

// look is a transaction that changes nothing: what it gives must be durable.
func look(ctx context.Context, e engine.Engine, k state.Key) (n int, lineage engine.Lineage, err error) {
	err = e.Transact(ctx, []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
		n, lineage = count(s.Items[0]), s.Lineage
		return engine.Plan{}, nil
	})
	return n, lineage, err
}

// wantError checks an error against the one that it must be, and that it is
// none that says something else about what was written.
func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
	for _, other := range []error{engine.ErrUnavailable, engine.ErrAmbiguous, engine.ErrConflict} {
		if !errors.Is(want, other) && errors.Is(err, other) {
			t.Fatalf("%s: %v, want %v alone", what, err, want)
		}
	}
}

// eventually repeats a call until it succeeds.
func eventually(t *testing.T, what string, call func() error) {
	t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := call()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-limit.C:
			t.Fatalf("%s: still %v", what, err)
		}
	}
}

// tally counts how the increments of one key have ended.
type tally struct{ yes, unknown, no atomic.Int64 }

func (c *tally) add(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
		c.yes.Add(1)
	case errors.Is(err, engine.ErrAmbiguous):
		c.unknown.Add(1)
	case errors.Is(err, engine.ErrUnavailable), errors.Is(err, engine.ErrConflict):
		c.no.Add(1)
	default:
		t.Errorf("increment: %v", err)
	}
}

// check compares the counter with what was answered.
func (c *tally) check(t *testing.T, n int) {
	t.Helper()
	yes, unknown := int(c.yes.Load()), int(c.unknown.Load())
	if n < yes || n > yes+unknown {
		t.Errorf("%d increments were acknowledged and %d unknown, the counter is %d", yes, unknown, n)
	}
}

func isConflict(err error) bool { return errors.Is(err, engine.ErrConflict) }

func (c *tally) String() string {
	return fmt.Sprintf("%d acknowledged, %d unknown, %d refused", c.yes.Load(), c.unknown.Load(), c.no.Load())
}

// isReply reports whether a server gave that kind of error.
func isReply(err error, code string) bool {
	return err != nil && strings.Contains(err.Error(), ": "+code+" ")
}
