package pebble

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// TestDueFromTheStartShowsEveryAcknowledgedEntry lets some add entries at any
// time, earlier ones than were ever there too, and delete them again, while
// others move the horizon by listing. Each looks for its own entry.
func TestDueFromTheStartShowsEveryAcknowledgedEntry(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	e := m.engine
	list := func(limit int) []engine.DueKey {
		due, _, err := e.Due(t.Context(), crashScope, engine.ByExpiry, state.KindHold, 1<<40, "", limit)
		if err != nil {
			t.Error(err)
		}
		return due
	}
	set := func(key state.Key, at int64) {
		err := e.Transact(t.Context(), []state.Key{key}, func(s engine.Snapshot) (engine.Plan, error) {
			change := engine.Change{Key: key}
			if at > 0 {
				change.Item = &state.Sealed{Version: state.Version{1}, Expiry: at}
			}
			return engine.Plan{Changes: []engine.Change{change}, NotAfter: s.Now}, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for n := range 300 {
				entry := engine.DueKey{Key: state.Key{Scope: crashScope, Kind: state.KindHold, ID: fmt.Sprint(w, " ", n)}, At: 1 + r.Int64N(1<<r.IntN(30))}
				set(entry.Key, entry.At)
				if due := list(100); !slices.Contains(due, entry) {
					t.Errorf("%v is not in %v", entry, due)
				}
				if n%3 > 0 {
					list(1)
					set(entry.Key, 0)
					if slices.Contains(list(100), entry) {
						t.Errorf("%v is listed though it was deleted", entry)
					}
				} else {
					set(entry.Key, 0)
				}
			}
		})
	}
	wg.Wait()
	if due := list(10); len(due) != 0 {
		t.Errorf("left over: %v", due)
	}
}
