package counterfoil_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

func TestAGuardedCallHoldsFencesAndCaptures(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme/search", 20))
		d.wantUsed("after authorize", "acme/search", 0, 20)
		d.wantUsed("after authorize", "acme", 0, 20)
		b := d.mustExecute(permitted("order-1", a))
		if b.HoldID != a.HoldID || b.HoldID != holdID("order-1") {
			d.t.Fatalf("the operation holds %q, the permit %q", b.HoldID, a.HoldID)
		}
		d.Clock.Advance(time.Hour) // fenced, it no longer ends by itself
		d.wantUsed("after begin", "acme", 0, 20)
		done := d.mustComplete(b, &[]counterfoil.Entry{{Budget: "acme/search", Amount: 15}})
		if done.Unsettled || done.Uncaptured != nil || !done.ReceiptExpiresAt.Equal(d.Clock.Now().Add(day)) {
			d.t.Fatalf("complete: %+v", done)
		}
		d.wantUsed("after complete", "acme/search", 15, 0)
		d.wantUsed("after complete", "acme", 15, 0)
		again, err := d.ann.Begin(d.t.Context(), permitted("order-1", a))
		if err != nil || again.State != counterfoil.Replay || string(again.Receipt.Body) != "done" {
			d.t.Fatalf("begin again: %+v, %v, want replay", again, err)
		}
	})
}

func TestOneBatchTakesPermitHoldAndSpends(t *testing.T) {
	each(t, func(d *desk) {
		p := permitted("order-1", d.authorize("order-1", entries("acme/search", 20)))
		p.Spend = entries("acme/search", 5, "acme", 1)
		b := d.mustExecute(p)
		d.wantUsed("after begin", "acme/search", 5, 20)
		d.wantUsed("after begin", "acme", 6, 20)
		if len(b.Budgets) != 2 || b.Budgets[0].Name != "acme/search" || b.Budgets[0].Spent != 5 || b.Budgets[1].Remaining != 74 {
			d.t.Fatalf("the figures are %+v", b.Budgets)
		}
		d.mustComplete(b, nil)
		d.wantUsed("after complete", "acme", 26, 0)
	})
}

func TestAHoldOfItsOwnerIsSettledWithTheOperation(t *testing.T) {
	each(t, func(d *desk) {
		h, err := d.ann.Hold(d.t.Context(), counterfoil.HoldParams{RequestID: "r", Entries: entries("acme", 30), TTL: time.Minute})
		if err != nil {
			d.t.Fatal(err)
		}
		p := request("order-1")
		p.HoldID = h.ID
		_, err = d.As(scope, "bob").Begin(d.t.Context(), p)
		d.wantError("begin with another owner's hold", err, budget.ErrHoldUnknown)
		b := d.mustExecute(p)
		_, err = d.ann.Void(d.t.Context(), counterfoil.VoidParams{ID: h.ID})
		d.wantError("void of a fenced hold", err, budget.ErrHoldFenced)
		p.Key = "order-2"
		d.refused("another operation with the same hold", p, budget.ErrHoldFenced)
		d.mustComplete(b, nil)
		d.wantUsed("after complete", "acme", 30, 0)
		d.refused("another operation with the settled hold", p, budget.ErrHoldSettled)
	})
}

func TestAPermitWithAHoldTakesNoOther(t *testing.T) {
	each(t, func(d *desk) {
		h, err := d.ann.Hold(d.t.Context(), counterfoil.HoldParams{RequestID: "r", Entries: entries("acme", 30), TTL: time.Minute})
		if err != nil {
			d.t.Fatal(err)
		}
		a := d.authorize("order-1", entries("acme", 10))
		p := permitted("order-1", a)
		p.HoldID = h.ID
		d.refused("two holds", p, counterfoil.ErrInvalid)
		p = request("order-1")
		p.HoldID = a.HoldID
		d.refused("the hold of a permit without the permit", p, budget.ErrInvalid)
		d.wantUsed("after the refusals", "acme", 0, 40)
	})
}

func TestALiveOperationAnswersAlone(t *testing.T) {
	each(t, func(d *desk) {
		p := permitted("order-1", d.authorize("order-1", entries("acme/search", 20)))
		p.Spend = entries("acme", 5)
		p.Lease = time.Hour
		b := d.mustExecute(p)
		variants := map[string]func(*counterfoil.BeginParams){
			"the permit is used":         func(*counterfoil.BeginParams) {},
			"the permit is malformed":    func(p *counterfoil.BeginParams) { p.Permit = []byte("{") },
			"the permit is for another":  func(p *counterfoil.BeginParams) { p.Expected = call("order-2") },
			"the budget is unknown":      func(p *counterfoil.BeginParams) { p.Spend = entries("nobody", 5) },
			"the amount does not fit":    func(p *counterfoil.BeginParams) { p.Spend = entries("acme", 5_000) },
			"the hold is unknown":        func(p *counterfoil.BeginParams) { p.Permit, p.HoldID = nil, holdID("never") },
			"the owner's share is full":  func(*counterfoil.BeginParams) { d.Caps(func(c *state.Caps) { c.OwnerLive = 0 }) },
			"the scope is full":          func(*counterfoil.BeginParams) { d.Caps(func(c *state.Caps) { c.Live = 0 }) },
			"the permit has expired":     func(*counterfoil.BeginParams) { d.Clock.Advance(time.Minute) },
			"the budget was closed":      func(*counterfoil.BeginParams) { d.close("acme") },
			"the scope is in quarantine": func(*counterfoil.BeginParams) { d.Quarantine() },
		}
		// Those that change the store come last; each further one meets all before it.
		order := []string{
			"the permit is used", "the permit is malformed", "the permit is for another", "the budget is unknown", "the amount does not fit",
			"the hold is unknown", "the owner's share is full", "the scope is full", "the permit has expired", "the budget was closed", "the scope is in quarantine",
		}
		for _, settled := range []bool{false, true} {
			for _, name := range order {
				q := p
				if variants[name](&q); !settled {
					d.refused(name, q, operation.ErrInFlight)
					q.Fingerprint = fingerprint(2)
					d.refused(name, q, operation.ErrMismatch)
					continue
				}
				if got, err := d.ann.Begin(d.t.Context(), q); err != nil || got.State != counterfoil.Replay {
					d.t.Fatalf("%s: %+v, %v, want replay", name, got, err)
				}
			}
			if !settled {
				d.mustComplete(b, nil)
			}
		}
	})
}

// close removes a budget and all below it.
func (d *desk) close(prefix string) {
	d.t.Helper()
	if _, err := d.Budgets.Close(d.t.Context(), budget.CloseParams{Scope: scope, Prefix: prefix}); err != nil {
		d.t.Fatalf("close %s: %v", prefix, err)
	}
}

func TestALiveOperationAnswersAloneEvenBesideDamage(t *testing.T) {
	each(t, func(d *desk) {
		d.define("beta", 10, "")
		a := d.authorize("order-1", entries("acme", 20))
		d.authorize("order-2", entries("acme", 20))
		b := d.mustExecute(permitted("order-1", a))
		d.mustComplete(b, nil)
		d.Damage(key(state.KindBudget, "beta"))
		d.Damage(key(state.KindHold, holdID("order-2")))
		for name, p := range map[string]counterfoil.BeginParams{
			"a damaged budget": {Key: "order-1", Fingerprint: fingerprint(1), Spend: entries("beta", 1)},
			"a damaged hold":   {Key: "order-1", Fingerprint: fingerprint(1), HoldID: holdID("order-2")},
		} {
			if got, err := d.ann.Begin(d.t.Context(), p); err != nil || got.State != counterfoil.Replay {
				d.t.Fatalf("%s: %+v, %v, want replay", name, got, err)
			}
			p.Key = "order-3"
			d.refused(name, p, state.ErrCorrupt)
		}
	})
}

func TestTheFirstRefusalIsAnswered(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme", 20))
		d.mustExecute(permitted("order-1", a))
		h, err := d.ann.Hold(d.t.Context(), counterfoil.HoldParams{RequestID: "r", Entries: entries("acme", 1), TTL: time.Minute})
		if err != nil {
			d.t.Fatal(err)
		}
		if _, err := d.ann.Void(d.t.Context(), counterfoil.VoidParams{ID: h.ID}); err != nil {
			d.t.Fatal(err)
		}
		minted := d.authorize("order-2", nil)
		// Everything at once stands against it; from step to step the first goes away.
		p := counterfoil.BeginParams{
			Key: "order-2", Fingerprint: fingerprint(1), Permit: a.Permit, Expected: call("order-1"), HoldID: h.ID, Spend: entries("nobody", 1),
		}
		d.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 1, 1 })
		d.refused("a used permit that carries a hold", withHold(p, ""), permit.ErrReplayed)
		p.Permit, p.Expected = minted.Permit, call("order-9")
		d.refused("a permit for another call", p, permit.ErrBindingMismatch)
		p.Expected = call("order-2")
		d.refused("a settled hold", p, budget.ErrHoldSettled)
		p.HoldID = ""
		d.refused("an unknown budget", p, budget.ErrBudgetUnknown)
		p.Spend = entries("acme", 1000)
		d.refused("a full scope", p, state.ErrFull)
		d.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 100, 1 })
		d.refused("a full share of the owner", p, state.ErrOwnerFull)
		d.Caps(func(c *state.Caps) { c.OwnerLive = 100 })
		d.refused("an amount that does not fit", p, budget.ErrExceeded)
		d.Quarantine()
		p.Expected, p.HoldID, p.Spend = call("order-9"), h.ID, entries("nobody", 1)
		d.refused("a scope in quarantine, before all others", p, state.ErrRecovering)
	})
}

func withHold(p counterfoil.BeginParams, id string) counterfoil.BeginParams {
	p.HoldID = id
	return p
}

func TestARefusedBeginLeavesNothing(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme/search", 20))
		p := permitted("order-1", a)
		p.Spend = entries("acme", 81)
		_, err := d.ann.Begin(d.t.Context(), p)
		var exceeded *budget.ExceededError
		if !errors.As(err, &exceeded) || len(exceeded.Refused) != 1 || exceeded.Refused[0].Name != "acme" || exceeded.Refused[0].Amount != 81 {
			d.t.Fatalf("begin: %v, want acme exceeded by the whole amount", err)
		}
		d.wantUsed("after the refusal", "acme", 0, 20)
		_, err = d.ann.Operation(d.t.Context(), operation.ID("ann", "order-1"))
		d.wantError("the operation", err, operation.ErrNotFound)
		p.Spend = entries("acme", 80)
		d.mustExecute(p) // with the same permit, which was not used up
		d.wantUsed("to the last cent", "acme", 80, 20)
	})
}

func TestACrashAfterTheIntentNeverRunsItAgainAndKeepsItsMoney(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme", 20))
		p := permitted("order-1", a)
		p.Spend = entries("acme", 5)
		b := d.mustExecute(p)
		d.restart()
		d.Clock.Advance(lease)
		d.refused("begin after the crash", p, operation.ErrOutcomeUnknown)
		d.Clock.Advance(100 * day)
		if _, err := d.Sweep(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
		d.refused("begin a hundred days later", p, operation.ErrOutcomeUnknown)
		d.wantUsed("a hundred days later", "acme", 5, 20)
		d.mustComplete(b, nil) // by the true token, however late
		d.wantUsed("after the late complete", "acme", 25, 0)
	})
}

func TestAnAbortReturnsHoldAndSpendsButNotThePermit(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme/search", 20))
		p := permitted("order-1", a)
		p.Spend = entries("acme/search", 5)
		b := d.mustExecute(p)
		if done, err := d.abort(b); err != nil || done.Unsettled || done.Repeated {
			d.t.Fatalf("abort: %+v, %v", done, err)
		}
		d.wantUsed("after the abort", "acme/search", 0, 0)
		d.wantUsed("after the abort", "acme", 0, 0)
		if done, err := d.abort(b); err != nil || !done.Repeated {
			d.t.Fatalf("abort again: %+v, %v, want repeated", done, err)
		}
		d.wantUsed("after the second abort", "acme", 0, 0)
		d.refused("begin with the used permit", p, permit.ErrReplayed)
		d.mustExecute(request("order-1"))
	})
}

func TestACaptureAboveTheHoldIsChargedIfItFitsAsAWhole(t *testing.T) {
	each(t, func(d *desk) {
		b := d.mustExecute(permitted("order-1", d.authorize("order-1", entries("acme/search", 20))))
		done := d.mustComplete(b, &[]counterfoil.Entry{{Budget: "acme/search", Amount: 60}})
		if done.Uncaptured != nil {
			d.t.Fatalf("complete: %+v, want all captured", done)
		}
		d.wantUsed("after complete", "acme", 60, 0)
		d.define("acme/other", 100, "acme")
		b = d.mustExecute(permitted("order-2", d.authorize("order-2", entries("acme/other", 20))))
		capture := []counterfoil.Entry{{Budget: "acme/other", Amount: 41}}
		for range 2 { // the answer of a repetition is the same
			done = d.mustComplete(b, &capture)
			if len(done.Uncaptured) != 1 || done.Uncaptured[0] != (counterfoil.Entry{Budget: "acme/other", Amount: 21}) {
				d.t.Fatalf("complete: %+v, want 21 uncaptured", done)
			}
			d.wantUsed("after complete", "acme/other", 20, 0)
			d.wantUsed("after complete", "acme", 80, 0)
		}
		if !done.Repeated {
			d.t.Fatal("the second answer is not marked as repeated")
		}
	})
}

func TestACaptureNamesOnlyBudgetsOfTheHold(t *testing.T) {
	each(t, func(d *desk) {
		b := d.mustExecute(permitted("order-1", d.authorize("order-1", entries("acme/search", 20))))
		_, err := d.complete(b, &[]counterfoil.Entry{{Budget: "acme", Amount: 1}})
		d.wantError("a budget that is not in the hold", err, budget.ErrInvalid)
		d.mustComplete(b, &[]counterfoil.Entry{}) // nothing is charged
		d.wantUsed("after complete", "acme", 0, 0)
		bare := d.mustExecute(request("order-2"))
		_, err = d.complete(bare, &[]counterfoil.Entry{{Budget: "acme", Amount: 1}})
		d.wantError("a capture without a hold", err, counterfoil.ErrInvalid)
		d.mustComplete(bare, &[]counterfoil.Entry{})
	})
}

func TestAnotherCaptureIsAnotherComplete(t *testing.T) {
	each(t, func(d *desk) {
		b := d.mustExecute(permitted("order-1", d.authorize("order-1", entries("acme", 20))))
		d.mustComplete(b, &[]counterfoil.Entry{{Budget: "acme", Amount: 7}})
		_, err := d.complete(b, &[]counterfoil.Entry{{Budget: "acme", Amount: 8}})
		d.wantError("the same receipt with another capture", err, operation.ErrNotPending)
		d.wantUsed("after both", "acme", 7, 0)
	})
}

func TestTheHoldOfAClosedBudgetIsOver(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme/search", 20))
		fenced := d.mustExecute(permitted("order-2", d.authorize("order-2", entries("acme/search", 10))))
		d.close("acme/search")
		d.refused("begin with the hold of a closed budget", permitted("order-1", a), permit.ErrHoldSettled)
		d.refused("begin with the hold of a closed budget", permitted("order-1", a), budget.ErrHoldSettled)
		d.wantUsed("the open hold returned, the fenced one did not", "acme", 0, 10)
		if done := d.mustComplete(fenced, nil); done.Unsettled {
			d.t.Fatalf("complete: %+v", done)
		}
		d.wantUsed("after complete", "acme", 10, 0)
	})
}

func TestABudgetDefinedAnewIsUsedAtOnce(t *testing.T) {
	each(t, func(d *desk) {
		p := request("order-1")
		p.Spend = entries("acme/search", 5)
		d.mustExecute(p)
		other := d.second()
		other.close("acme/search")
		p.Key = "order-2"
		d.refused("a spend on what was closed by another process", p, budget.ErrBudgetUnknown)
		d.define("acme/search", 60, "acme")
		d.mustExecute(p)
		d.wantUsed("after the second definition", "acme/search", 5, 0)
	})
}

func TestOfTwoCallersWithOnePermitOneWins(t *testing.T) {
	each(t, func(d *desk) {
		other := d.second()
		callers := []counterfoil.Caller{d.ann, other.ann}
		for round := range 5 {
			name := "order-" + string(rune('a'+round))
			a := d.authorize(name, entries("acme", 10))
			var mu sync.Mutex
			won := 0
			var wg sync.WaitGroup
			for n := range 8 {
				wg.Go(func() {
					p := permitted(name, a)
					p.Key = name + string(rune('0'+n/2)) // pairs share a key
					b, err := callers[n%2].Begin(context.Background(), p)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil && b.State == counterfoil.Execute:
						won++
					case errors.Is(err, permit.ErrReplayed), errors.Is(err, operation.ErrInFlight), errors.Is(err, budget.ErrHoldFenced):
					default:
						d.t.Errorf("begin: %+v, %v", b, err)
					}
				})
			}
			if wg.Wait(); won != 1 {
				d.t.Fatalf("%d callers were told to execute", won)
			}
		}
		d.wantUsed("after five rounds", "acme", 0, 50)
	})
}

func TestABeginSentAgainGetsTheSameAnswer(t *testing.T) {
	each(t, func(d *desk) {
		p := permitted("order-1", d.authorize("order-1", entries("acme/search", 20)))
		p.Spend, p.Token = entries("acme/search", 5), counterfoil.Token{1}
		p.Lease = time.Hour
		first := d.mustExecute(p)
		d.Clock.Advance(time.Minute) // the permit has expired, and is used
		again, err := d.ann.Begin(d.t.Context(), p)
		if err != nil || !again.Repeated || again.State != counterfoil.Execute || again.Fence != first.Fence || again.HoldID != first.HoldID ||
			len(again.Budgets) != len(first.Budgets) || again.Budgets[0] != first.Budgets[0] || again.Budgets[1] != first.Budgets[1] {
			d.t.Fatalf("begin again: %+v, %v, want %+v", again, err, first)
		}
		d.wantUsed("after both", "acme", 5, 20)
		if _, err := d.abort(first); err != nil {
			d.t.Fatal(err)
		}
		d.refused("an aborted begin sent again", p, operation.ErrAborted)
	})
}

func TestWhatIsAlwaysSpentIsAdded(t *testing.T) {
	each(t, func(d *desk) {
		d.define("agent", 3, "")
		metered := d.Acting(counterfoil.Identity{Scope: scope, Owner: "ann", Always: entries("agent", 1, "acme", 2)})
		p := request("order-1")
		p.Spend = entries("acme", 5)
		if _, err := metered.Begin(d.t.Context(), p); err != nil {
			d.t.Fatal(err)
		}
		d.wantUsed("named by both", "acme", 7, 0)
		d.wantUsed("named by the identity", "agent", 1, 0)
		for _, key := range []string{"order-2", "order-3"} {
			if _, err := metered.Begin(d.t.Context(), request(key)); err != nil {
				d.t.Fatal(err)
			}
		}
		_, err := metered.Begin(d.t.Context(), request("order-4"))
		d.wantError("begin", err, budget.ErrExceeded)
		p = request("order-5")
		p.Spend = entries("acme", 1, "acme", 1)
		d.refused("a budget named twice by the caller", p, counterfoil.ErrInvalid)
	})
}

func TestMoneyThatCannotBeSettledNeverKeepsAReceiptFromBeingRecorded(t *testing.T) {
	each(t, func(d *desk) {
		b := d.mustExecute(permitted("order-1", d.authorize("order-1", entries("acme", 20))))
		d.Damage(key(state.KindHold, holdID("order-1")))
		for range 2 {
			if done := d.mustComplete(b, nil); !done.Unsettled {
				d.t.Fatalf("complete: %+v, want unsettled", done)
			}
		}
		op, err := d.ann.Operation(d.t.Context(), b.ID)
		if err != nil || op.State != operation.Settled || !op.Unsettled || string(op.Receipt.Body) != "done" {
			d.t.Fatalf("the operation is told as %+v, %v", op, err)
		}
		d.wantUsed("the amount stays fenced", "acme", 0, 20)

		b = d.mustExecute(permitted("order-2", d.authorize("order-2", entries("acme", 20))))
		d.Damage(key(state.KindBudget, "acme"))
		if done, err := d.abort(b); err != nil || !done.Unsettled {
			d.t.Fatalf("abort: %+v, %v, want unsettled", done, err)
		}
		d.mustExecute(request("order-2"))
	})
}

func TestAnotherOwnersOperationDoesNotExist(t *testing.T) {
	each(t, func(d *desk) {
		b := d.mustExecute(request("order-1"))
		bob := d.As(scope, "bob")
		ctx := d.t.Context()
		_, err := bob.Complete(ctx, counterfoil.CompleteParams{ID: b.ID, Token: b.Token})
		d.wantError("complete", err, operation.ErrNotFound)
		_, err = bob.Abort(ctx, counterfoil.AbortParams{ID: b.ID, Token: b.Token})
		d.wantError("abort", err, operation.ErrNotFound)
		_, err = bob.Renew(ctx, counterfoil.RenewParams{ID: b.ID, Token: b.Token})
		d.wantError("renew", err, operation.ErrNotFound)
		_, err = bob.Operation(ctx, b.ID)
		d.wantError("operation", err, operation.ErrNotFound)
		d.Clock.Advance(lease)
		_, err = bob.Resolve(ctx, counterfoil.ResolveParams{ID: b.ID, Outcome: operation.DidNotHappen, Note: "n"})
		d.wantError("resolve", err, operation.ErrNotFound)
		if got, err := bob.Begin(ctx, request("order-1")); err != nil || got.State != counterfoil.Execute || got.ID == b.ID {
			d.t.Fatalf("bob's own operation of that key: %+v, %v", got, err)
		}
		d.mustComplete(b, nil)
	})
}

func TestInQuarantineOnlyWhatWasBegunGoesOn(t *testing.T) {
	each(t, func(d *desk) {
		p := permitted("order-1", d.authorize("order-1", entries("acme", 20)))
		p.Spend = entries("acme", 5)
		captured, aborted := d.mustExecute(p), d.mustExecute(permitted("order-2", d.authorize("order-2", entries("acme", 10))))
		d.Quarantine()
		_, err := d.ann.Authorize(d.t.Context(), counterfoil.AuthorizeParams{Call: call("order-3"), Hold: entries("acme", 1)})
		d.wantError("authorize with a hold", err, state.ErrRecovering)
		d.refused("begin", request("order-3"), state.ErrRecovering)
		if _, err := d.ann.Renew(d.t.Context(), counterfoil.RenewParams{ID: captured.ID, Token: captured.Token}); err != nil {
			d.t.Fatalf("renew: %v", err)
		}
		d.mustComplete(captured, nil)
		if _, err := d.abort(aborted); err != nil {
			d.t.Fatalf("abort: %v", err)
		}
		d.wantUsed("after both", "acme", 25, 0)
	})
}
