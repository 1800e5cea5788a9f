package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// replica is an engine whose data has a lineage, of which another copy can take
// the place.
type replica struct {
	mu      sync.Mutex
	data    engine.Engine
	lineage engine.Lineage
	level   engine.Level
}

func (r *replica) become(data engine.Engine, l engine.Lineage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data, r.lineage = data, l
}

func (r *replica) now() (engine.Engine, engine.Lineage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data, r.lineage
}

// lineal is a store's handle on a replica.
type lineal struct {
	engine.Engine
	*replica
}

func (l lineal) Guarantee() engine.Guarantee {
	g := l.Engine.Guarantee()
	g.Level = l.level
	return g
}

func (l lineal) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	data, lineage := l.now()
	return data.Transact(ctx, keys, func(s engine.Snapshot) (engine.Plan, error) {
		s.Lineage = lineage
		return fn(s)
	})
}

func (l lineal) Read(ctx context.Context, keys []state.Key) (engine.Snapshot, error) {
	data, _ := l.now()
	return data.Read(ctx, keys)
}

func TestAFailoverThatMayHaveLostAcknowledgedChangesEndsInQuarantine(t *testing.T) {
	t.Parallel()
	const old, next = "one", "two"
	for _, c := range []struct {
		name       string
		level      engine.Level
		lost       bool // the copy that takes over lacks the last commit
		promoted   bool // it was a replica of the old one
		quarantine bool
	}{
		{"a plain restart", engine.Node, false, false, false},
		{"a restart that lost the last commit", engine.Node, true, false, true},
		{"a promoted replica under the node guarantee", engine.Node, false, true, true},
		{"a promoted replica that has everything", engine.Replicated, false, true, false},
		{"a promoted replica that lost the last commit all the same", engine.Replicated, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, snapshot := witnessed(t)
			f.opts.Witness = ""
			r := &replica{data: f.engine, lineage: engine.Lineage{ID: old}, level: c.level}
			s, err := store.Open(t.Context(), lineal{f.engine, r}, f.opts)
			if err != nil {
				t.Fatal(err)
			}
			must(t, s, claim("a", 1))
			copied := snapshot()
			must(t, s, claim("last", 1))
			if !c.lost {
				copied = snapshot()
			}
			l := engine.Lineage{ID: next}
			if c.promoted {
				l.Previous = old
			}
			r.become(copied, l)
			out, err := s.Do(t.Context(), batch(claim("last", 2)))
			if err != nil || out.Applied {
				t.Fatalf("a claim that had been granted was granted again, or it failed: %+v %v", out, err)
			}
			if body, err := s.Scope(t.Context(), "default"); err != nil || (body.Quarantine != "") != c.quarantine || body.Lineage != next {
				t.Fatalf("%+v %v", body, err)
			}
			if !c.quarantine {
				must(t, s, claim("new", 1))
				return
			}
			refused(t, s, state.Recovering, claim("new", 1))
			if err := s.Lift(t.Context(), "default", "compared with the ledger", 0); err != nil {
				t.Fatal(err)
			}
			must(t, s, claim("new", 1))
		})
	}
}

func TestAnInstanceThatComesLateStillNoticesWhatIsMissing(t *testing.T) {
	t.Parallel()
	f, snapshot := witnessed(t)
	f.opts.Witness = ""
	r := &replica{data: f.engine, lineage: engine.Lineage{ID: "one"}, level: engine.Node}
	open := func() *store.Store {
		s, err := store.Open(t.Context(), lineal{f.engine, r}, f.opts)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := open()
	must(t, first, claim("a", 1))
	copied := snapshot()
	must(t, first, claim("b", 1))
	r.become(copied, engine.Lineage{ID: "two"})
	must(t, open(), claim("c", 1)) // knows of no loss
	out, err := first.Do(t.Context(), batch(claim("b", 2)))
	if errors.Is(err, state.ErrUnknown) || err != nil || out.Applied {
		t.Fatalf("%+v %v", out, err)
	}
	refused(t, first, state.Recovering, claim("d", 1))
}
