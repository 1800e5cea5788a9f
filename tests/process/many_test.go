package process_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/operation"
)

// Servers on one store, each with its own callers.
const (
	manyServers = 8
	manyCallers = 64
	manyLimit   = 300 // below what all callers ask for
)

func TestManyServersOnOneStoreGrantOneKeyOnceAndOneBudgetToItsExactLimit(t *testing.T) {
	t.Parallel()
	for name, start := range shared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			callers := manyMachines(t, start(t, false))
			_, err := callers[0].DefineBudget(t.Context(), budget.Definition{
				Name: "wanted", Unit: "calls", Limit: manyLimit, Window: budget.Window{Kind: budget.Lifetime},
			})
			if err != nil {
				t.Fatal(err)
			}
			var keys, spends atomic.Int64
			var working sync.WaitGroup
			for i := range manyServers * manyCallers {
				to := callers[i%manyServers]
				working.Go(func() {
					granted, err := beginWanted(t, to)
					count(t, &keys, granted, err)
				})
				working.Go(func() {
					granted, err := spendWanted(t, to, fmt.Sprint("spend-", i))
					count(t, &spends, granted, err)
				})
			}
			working.Wait()
			if keys.Load() != 1 || spends.Load() != manyLimit {
				t.Errorf("%d callers had the key, and the limit of %d gave %d", keys.Load(), manyLimit, spends.Load())
			}
			for i, to := range callers {
				if b, err := to.Budget(t.Context(), "wanted"); err != nil || b.Spent != manyLimit {
					t.Errorf("server %d: the budget has spent %d, %v", i, b.Spent, err)
				}
			}
		})
	}
}

// manyMachines starts all servers and gives a caller of each.
func manyMachines(t *testing.T, store string) []*client.Caller {
	t.Helper()
	machines := make([]*machine, manyServers)
	callers := make([]*client.Caller, manyServers)
	for i := range machines {
		m := newMachine(t)
		m.store = store
		if i > 0 {
			copyKeys(t, machines[0], m)
		}
		m.start(nil)
		machines[i], callers[i] = m, m.caller(ready)
	}
	return callers
}

func count(t *testing.T, grants *atomic.Int64, granted bool, err error) {
	t.Helper()
	switch {
	case err != nil:
		t.Error(err)
	case granted:
		grants.Add(1)
	}
}

// beginWanted begins the one operation that all callers want.
func beginWanted(t *testing.T, to *client.Caller) (bool, error) {
	t.Helper()
	b, err := to.Begin(t.Context(), counterfoil.BeginParams{Key: "wanted", Fingerprint: counterfoil.Fingerprint{1}, Lease: time.Hour})
	if errors.Is(err, operation.ErrInFlight) {
		return false, nil
	}
	return err == nil && b.State == counterfoil.Execute, err
}

// spendWanted spends on the one budget that is too small for all.
func spendWanted(t *testing.T, to *client.Caller, request string) (bool, error) {
	t.Helper()
	_, err := to.Spend(t.Context(), budget.SpendParams{RequestID: request, Entries: []budget.Entry{{Budget: "wanted", Amount: 1}}})
	if errors.Is(err, budget.ErrExceeded) {
		return false, nil
	}
	return err == nil, err
}
