package enginetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

func restartClauses() []clause {
	return []clause{
		{"RestartKeepsEverything", hasRestart, restartKeeps},
		{"RestartKeepsWhatATransactionWithoutChangesHasShown", hasRestart, restartKeepsShown},
	}
}

func closeClauses() []clause {
	return []clause{{"ClosedEngineRefusesEverything", nil, closedRefuses}}
}

func hasRestart(f Fixture) bool { return f.Restart != nil }

func restartKeeps(t *testing.T, f Fixture) {
	e := f.Engine
	changed, deleted, moved := item("changed"), key("deleted"), due(30, 40)
	mustWrite(t, e, set(key("changed"), item("first")), set(deleted, due(1, 2)), set(key("moved"), due(10, 20)))
	mustWrite(t, e, set(state.ScopeKey("a scope"), item("scope")))
	for range 3 {
		mustWrite(t, e, set(key("changed"), changed), set(deleted, nil), set(key("moved"), moved))
		e = f.Restart(t)
		want(t, e, key("changed"), changed)
		want(t, e, deleted, nil)
		want(t, e, key("moved"), moved)
		wantDue(t, e, engine.ByExpiry, far, at(30, "moved"))
		wantDue(t, e, engine.ByLease, far, at(40, "moved"))
		if got := scopesAll(t, e, 10); !slices.Equal(got, []string{"a scope"}) {
			t.Fatalf("scopes %q", got)
		}
		if got := ids(scanAll(t, e, scope, state.KindOperation, "", 10)); !slices.Equal(got, []string{"changed", "moved"}) {
			t.Fatalf("scanned %q", got)
		}
		changed = item("changed again")
	}
}

// restartKeepsShown reads counters, by transactions without changes, while
// others raise them, or right after, and crashes at once: what was shown must
// still be there.
func restartKeepsShown(t *testing.T, f Fixture) {
	next := f.Engine
	ks := []state.Key{key("counter0"), key("counter1")}
	for round := range 10 {
		e := next
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil && (round%2 == 0 || n < 5); n++ {
					if increment(ctx, e, ks[i%2]) != nil {
						return // the crash
					}
				}
			})
		}
		if round%2 == 1 {
			wg.Wait()
		}
		var shown [2]int
		for range 5 {
			err := e.Transact(t.Context(), ks, func(s engine.Snapshot) (engine.Plan, error) {
				shown = [2]int{count(s.Items[0]), count(s.Items[1])}
				return engine.Plan{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		next = f.Restart(t)
		stop()
		wg.Wait()
		for i, it := range read(t, next, ks...) {
			if count(it) < shown[i] {
				t.Fatalf("round %d: a transaction showed %d, after the crash there is %d", round, shown[i], count(it))
			}
		}
	}
}

func closedRefuses(t *testing.T, f Fixture) {
	e := f.Engine
	mustWrite(t, e, set(key("k"), item("x")))
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Transact": func() error { return write(ctx, e, set(key("k"), nil)) },
		"Read":     func() error { _, err := e.Read(ctx, keys(1)); return err },
		"Due": func() error {
			_, _, err := e.Due(ctx, scope, engine.ByLease, state.KindHold, far, "", 1)
			return err
		},
		"Scan":   func() error { _, _, err := e.Scan(ctx, scope, state.KindHold, "", "", 1); return err },
		"Scopes": func() error { _, _, err := e.Scopes(ctx, "", 1); return err },
		"Now":    func() error { _, err := e.Now(ctx); return err },
	} {
		if err := call(); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
}
