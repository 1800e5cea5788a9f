package counterfoil_test

import (
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
)

// lost begins an operation with a hold of 20 and a spend of 5, whose holder then disappears.
func (d *desk) lost(name string) (counterfoil.BeginParams, counterfoil.Begun) {
	d.t.Helper()
	p := permitted(name, d.authorize(name, entries("acme", 20)))
	p.Spend = entries("acme", 5)
	b := d.mustExecute(p)
	d.Clock.Advance(lease)
	d.refused("begin of what was lost", p, operation.ErrOutcomeUnknown)
	return p, b
}

func TestResolvedAsHappenedItIsReplayedAndCharged(t *testing.T) {
	each(t, func(d *desk) {
		p, b := d.lost("order-1")
		capture := &[]counterfoil.Entry{{Budget: "acme", Amount: 200}}
		for n := range 2 {
			got, err := d.resolve(b.ID, operation.Happened, capture)
			if err != nil || got.State != operation.Settled || got.Repeated != (n == 1) ||
				len(got.Uncaptured) != 1 || got.Uncaptured[0].Amount != 180 {
				d.t.Fatalf("resolve: %+v, %v, want settled with 180 uncaptured", got, err)
			}
		}
		d.wantUsed("after the resolution", "acme", 25, 0)
		if got, err := d.ann.Begin(d.t.Context(), p); err != nil || got.State != counterfoil.Replay || string(got.Receipt.Body) != "by hand" {
			d.t.Fatalf("begin: %+v, %v, want the operator's receipt", got, err)
		}
		_, err := d.complete(b, nil)
		d.wantError("complete by the old token", err, operation.ErrNotHolder)
		_, err = d.resolve(b.ID, operation.DidNotHappen, nil)
		d.wantError("another outcome", err, operation.ErrNotPending)
		op, err := d.ann.Operation(d.t.Context(), b.ID)
		if err != nil || op.Resolved == nil || op.Resolved.By != "olga" || op.Resolved.Note != "asked the ledger" {
			d.t.Fatalf("the operation is told as %+v, %v", op, err)
		}
		d.wantUsed("after all", "acme", 25, 0)
	})
}

func TestResolvedAsNotHappenedEverythingReturnsAndItMayRun(t *testing.T) {
	each(t, func(d *desk) {
		_, b := d.lost("order-1")
		for n := range 2 {
			got, err := d.resolve(b.ID, operation.DidNotHappen, nil)
			if err != nil || got.State != operation.Aborted || got.Repeated != (n == 1) {
				d.t.Fatalf("resolve: %+v, %v, want aborted", got, err)
			}
		}
		d.wantUsed("after the resolution", "acme", 0, 0)
		_, err := d.complete(b, nil)
		d.wantError("complete by the old token", err, operation.ErrNotHolder)
		_, err = d.abort(b)
		d.wantError("abort by the old token", err, operation.ErrNotHolder)
		if n := d.Operations.Stats().LateCompletions; n != 1 {
			d.t.Fatalf("%d late completions counted, want 1", n)
		}
		d.wantUsed("after the late steps", "acme", 0, 0)
		_, err = d.resolve(b.ID, operation.Happened, nil)
		d.wantError("another outcome", err, operation.ErrNotPending)
		again := d.mustExecute(request("order-1"))
		if again.Fence <= b.Fence {
			d.t.Fatalf("the fence went from %d to %d", b.Fence, again.Fence)
		}
		_, err = d.resolve(b.ID, operation.DidNotHappen, nil)
		d.wantError("resolve of what was begun anew", err, operation.ErrInFlight)
	})
}

func TestAnOperationIsResolvedOnlyAfterItsLease(t *testing.T) {
	each(t, func(d *desk) {
		b := d.mustExecute(permitted("order-1", d.authorize("order-1", entries("acme", 20))))
		for _, outcome := range []operation.Outcome{operation.Happened, operation.DidNotHappen} {
			_, err := d.resolve(b.ID, outcome, nil)
			d.wantError(string(outcome), err, operation.ErrInFlight)
		}
		d.wantUsed("after the refusals", "acme", 0, 20)
		_, err := d.olga().Resolve(d.t.Context(), counterfoil.ResolveParams{ID: b.ID, Outcome: operation.Happened})
		d.wantError("without a note", err, operation.ErrInvalid)
		_, err = d.olga().Resolve(d.t.Context(), counterfoil.ResolveParams{ID: b.ID, Outcome: "perhaps", Note: "n"})
		d.wantError("without an outcome", err, operation.ErrInvalid)
		_, err = d.resolve(b.ID, operation.DidNotHappen, &[]counterfoil.Entry{})
		d.wantError("a capture of what did not happen", err, counterfoil.ErrInvalid)
	})
}

func TestADamagedOperationIsResolvedByWhoMaySeeItOrNamesItsKey(t *testing.T) {
	each(t, func(d *desk) {
		p, b := d.lost("order-1")
		record := key(state.KindOperation, rawID(d.t, b.ID))
		d.Damage(record)
		d.refused("begin", p, state.ErrCorrupt)
		_, err := d.complete(b, nil)
		d.wantError("complete", err, state.ErrCorrupt)
		resolution := counterfoil.ResolveParams{ID: b.ID, Outcome: operation.Happened, Note: "n", Receipt: receipt("by hand"), Fingerprint: p.Fingerprint}
		_, err = d.ann.Resolve(d.t.Context(), resolution)
		d.wantError("by its owner, without the key", err, state.ErrCorrupt)
		resolution.Key = "order-1"
		_, err = d.As(scope, "bob").Resolve(d.t.Context(), resolution)
		d.wantError("by another owner with the key", err, state.ErrCorrupt)
		got, err := d.ann.Resolve(d.t.Context(), resolution)
		if err != nil || got.State != operation.Settled || !got.Unsettled {
			d.t.Fatalf("resolve: %+v, %v", got, err)
		}
		if got, err := d.ann.Begin(d.t.Context(), p); err != nil || string(got.Receipt.Body) != "by hand" {
			d.t.Fatalf("begin: %+v, %v, want the operator's receipt", got, err)
		}
		d.wantUsed("what it held stays", "acme", 5, 20)
		d.Damage(record)
		if got, err := d.resolve(b.ID, operation.DidNotHappen, nil); err != nil || got.State != operation.Aborted {
			d.t.Fatalf("resolve by the operator: %+v, %v", got, err)
		}
	})
}

func TestAResolutionNeverDependsOnMoney(t *testing.T) {
	each(t, func(d *desk) {
		_, happened := d.lost("order-1")
		_, not := d.lost("order-2")
		d.Damage(key(state.KindBudget, "acme"))
		if got, err := d.resolve(happened.ID, operation.Happened, nil); err != nil || !got.Unsettled {
			d.t.Fatalf("resolve: %+v, %v, want unsettled", got, err)
		}
		if got, err := d.resolve(not.ID, operation.DidNotHappen, nil); err != nil || !got.Unsettled {
			d.t.Fatalf("resolve: %+v, %v, want unsettled", got, err)
		}
	})
}

func TestTheHoldIsGoneButTheReceiptIsRecorded(t *testing.T) {
	each(t, func(d *desk) {
		b := d.mustExecute(permitted("order-1", d.authorize("order-1", entries("acme", 20))))
		// Somebody with the token of the operation settles the hold behind its back.
		part, err := d.Budgets.VoidHold(d.t.Context(), scope, budget.SettleParams{HoldID: b.HoldID, Token: b.Token})
		if err != nil {
			d.t.Fatal(err)
		}
		if out, err := d.Do(d.t.Context(), &state.Batch{Scope: scope, Ops: part.Ops}); err != nil || !out.Applied {
			d.t.Fatalf("void: %+v, %v", out, err)
		}
		if done := d.mustComplete(b, nil); !done.Unsettled {
			d.t.Fatalf("complete: %+v, want unsettled", done)
		}
	})
}
