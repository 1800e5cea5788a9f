package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture is a store on a memory engine whose commits can be made to fail,
// with a clock that moves when told.
type fixture struct {
	*store.Store
	clock  *clock.Manual
	engine *enginetest.FaultyEngine
	opts   store.Options
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{clock: clock.NewManual(start)}
	f.engine = enginetest.Faulty(memory.New(f.clock))
	f.opts = store.Options{Keys: keysOf(t, 7), Clock: f.clock, Entropy: entropy.Seeded(1)}
	if err := store.Create(t.Context(), f.engine, f.opts); err != nil {
		t.Fatal(err)
	}
	f.Store = f.open(t)
	return f
}

func keysOf(t testing.TB, first ...byte) *state.Keys {
	t.Helper()
	var all [][]byte
	for _, b := range first {
		key := make([]byte, state.IntegrityKeyBytes)
		key[0] = b
		all = append(all, key)
	}
	keys, err := state.NewKeys(state.IntegrityKeyID(all[0]), all)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// open opens another store on the same engine.
func (f *fixture) open(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), f.engine, f.opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (f *fixture) now() int64 { return f.clock.Now().UnixMilli() }

// item reads what the engine has under a key.
func (f *fixture) item(t *testing.T, key state.Key) *state.Sealed {
	t.Helper()
	snap, err := f.engine.Read(t.Context(), []state.Key{key})
	if err != nil {
		t.Fatal(err)
	}
	return snap.Items[0]
}

// put overwrites what the engine has under a key, past the store.
func (f *fixture) put(t *testing.T, key state.Key, item *state.Sealed) {
	t.Helper()
	err := f.engine.Transact(t.Context(), []state.Key{key}, func(snap engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{Changes: []engine.Change{{Key: key, Item: item}}, NotAfter: snap.Now + 1000}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// closed closes a store.
func closed(t *testing.T, s interface{ Close() error }) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func opKey(id string) state.Key {
	return state.Key{Scope: "default", Kind: state.KindOperation, ID: id}
}

func claim(id string, token byte) state.Claim {
	return state.Claim{Key: opKey(id), Owner: "o", Token: state.Token{token}, State: state.Pending, Body: []byte("x")}
}

func batch(ops ...state.Op) *state.Batch { return &state.Batch{Scope: "default", Ops: ops} }

// must runs a batch that has to be applied.
func must(t *testing.T, s *store.Store, ops ...state.Op) state.Outcome {
	t.Helper()
	out, err := s.Do(t.Context(), batch(ops...))
	if err != nil {
		t.Fatal(err)
	}
	if !out.Applied {
		t.Fatalf("refused: %+v", out.Refusals)
	}
	return out
}

// refused runs a batch that has to be refused for one reason.
func refused(t *testing.T, s *store.Store, reason state.Reason, ops ...state.Op) {
	t.Helper()
	out, err := s.Do(t.Context(), batch(ops...))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := out.Because(reason); !ok {
		t.Fatalf("got applied=%v repeated=%v %+v, want a refusal as %s", out.Applied, out.Repeated, out.Refusals, reason)
	}
}

// dump reads every record of a scope from the engine.
func (f *fixture) dump(t *testing.T, scope string) map[state.Key]state.Version {
	t.Helper()
	all := map[state.Key]state.Version{}
	for _, kind := range state.Kinds() {
		for cursor := ""; ; {
			page, next, err := f.engine.Scan(t.Context(), scope, kind, "", cursor, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range page {
				all[found.Key] = found.Item.Version
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return all
}

// counting counts the transactions of an engine, and lets a test act before
// the n-th, from 1.
type counting struct {
	engine.Engine
	before func(n int)

	mu    sync.Mutex
	count int
}

func (c *counting) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	c.mu.Lock()
	c.count++
	n := c.count
	c.mu.Unlock()
	if c.before != nil {
		c.before(n)
	}
	return c.Engine.Transact(ctx, keys, fn)
}

func (c *counting) transactions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}
