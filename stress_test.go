package counterfoil_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
)

// ledger is the world outside: it notes each effect that happened, and what it cost.
type ledger struct {
	mu      sync.Mutex
	effects map[string]int    // of each order
	costs   map[string]uint64 // of all its effects
	charged uint64
}

func (l *ledger) note(key string, cost uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.effects[key]++
	l.costs[key] += cost
	l.charged += cost
}

// Eight workers on two stores pay the same orders over and over, against a budget that fits some of them; some die after
// the effect, some before it, some give up. Afterwards an operator resolves by the ledger what is unknown. Then no order
// was paid twice, and the budget stands at what the ledger says.
func TestManyWorkersPayEachOrderAtMostOnceAndNeverOverBudget(t *testing.T) {
	each(t, func(d *desk) {
		const orders, price, limit = 40, 10, 250
		d.define("pay", limit, "")
		other := d.second()
		seed := rand.Uint64()
		l := &ledger{effects: map[string]int{}, costs: map[string]uint64{}}
		var wg sync.WaitGroup
		for n := range 8 {
			w := worker{
				desk: d, caller: []counterfoil.Caller{d.ann, other.ann}[n%2], ledger: l,
				rng: rand.New(rand.NewPCG(seed, uint64(n))), price: price,
			}
			wg.Go(func() {
				for range 60 {
					w.pay(fmt.Sprintf("order-%d", w.rng.IntN(orders)))
				}
			})
		}
		wg.Wait()
		d.Clock.Advance(time.Hour)
		d.reconcile(l)
		for key, n := range l.effects {
			if n > 1 {
				d.t.Errorf("seed %d: %s was paid %d times", seed, key, n)
			}
		}
		if got := d.used("pay"); got.spent != l.charged || got.held != 0 || got.spent > limit {
			d.t.Errorf("seed %d: the budget stands at %+v, the ledger at %d", seed, got, l.charged)
		}
	})
}

// worker pays orders, and fails in every way that a process can.
type worker struct {
	*desk
	caller counterfoil.Caller
	ledger *ledger
	rng    *rand.Rand
	price  int
}

func (w *worker) pay(order string) {
	ctx := context.Background()
	a, err := w.caller.Authorize(ctx, counterfoil.AuthorizeParams{Call: call(order), Hold: entries("pay", w.price)})
	if err != nil {
		w.expect("authorize", err, budget.ErrExceeded, budget.ErrHoldSettled)
		return
	}
	b, err := w.caller.Begin(ctx, permitted(order, a))
	switch {
	case err != nil:
		w.expect("begin", err, operation.ErrInFlight, permit.ErrReplayed, permit.ErrHoldSettled, budget.ErrHoldFenced)
		return
	case b.State == counterfoil.Replay:
		return
	}
	cost := uint64(w.rng.IntN(w.price + 1))
	switch w.rng.IntN(6) {
	case 0: // dies before the effect
		return
	case 1: // dies after it
		w.ledger.note(order, cost)
		return
	case 2: // proves that it did not happen
		if _, err := w.caller.Abort(ctx, counterfoil.AbortParams{ID: b.ID, Token: b.Token}); err != nil {
			w.t.Errorf("abort: %v", err)
		}
		return
	}
	w.ledger.note(order, cost)
	for range 2 { // the reply is lost once
		_, err := w.caller.Complete(ctx, counterfoil.CompleteParams{
			ID: b.ID, Token: b.Token, Receipt: receipt(order), Capture: &[]counterfoil.Entry{{Budget: "pay", Amount: cost}},
		})
		if err != nil {
			w.t.Errorf("complete: %v", err)
		}
	}
}

func (w *worker) expect(what string, err error, allowed ...error) {
	for _, e := range allowed {
		if errors.Is(err, e) {
			return
		}
	}
	w.t.Errorf("%s: %v", what, err)
}

// reconcile resolves what is unknown by asking the ledger.
func (d *desk) reconcile(l *ledger) {
	d.t.Helper()
	page, err := d.Operations.List(d.t.Context(), operation.ListParams{Scope: scope, State: operation.OutcomeUnknown, Limit: 500})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, op := range page.Operations {
		outcome, capture := operation.DidNotHappen, (*[]counterfoil.Entry)(nil)
		if l.effects[op.Key] > 0 {
			outcome = operation.Happened
			capture = &[]counterfoil.Entry{{Budget: "pay", Amount: l.costs[op.Key]}}
		}
		if _, err := d.resolve(op.ID, outcome, capture); err != nil {
			d.t.Errorf("resolve %s: %v", op.Key, err)
		}
	}
}
