package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture is a store on a memory engine with a clock that moves when told.
type fixture struct {
	*store.Store
	clock  *clock.Manual
	engine *memory.Engine
	opts   store.Options
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	key := make([]byte, state.IntegrityKeyBytes)
	key[0] = 7
	keys, err := state.NewKeys(state.IntegrityKeyID(key), [][]byte{key})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{clock: clock.NewManual(start)}
	f.engine = memory.New(f.clock)
	f.opts = store.Options{Keys: keys, Clock: f.clock, Entropy: entropy.Seeded(1)}
	if err := store.Create(t.Context(), f.engine, f.opts); err != nil {
		t.Fatal(err)
	}
	f.Store = f.open(t)
	return f
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

func claim(id string, token byte) state.Claim {
	return state.Claim{
		Key: state.Key{Scope: "default", Kind: state.KindOperation, ID: id}, Owner: "o", Token: state.Token{token}, State: state.Pending, Body: []byte("x"),
	}
}

func batch(ops ...state.Op) *state.Batch { return &state.Batch{Scope: "default", Ops: ops} }

func TestOneOfManyConcurrentClaimsWins(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stores := []*store.Store{f.Store, f.open(t)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 64 {
		wg.Go(func() {
			out, err := stores[i%2].Do(context.Background(), batch(claim("k", byte(i+1))))
			if err != nil {
				t.Error(err)
				return
			}
			if out.Applied {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Fatalf("%d callers were granted one key", won)
	}
}
