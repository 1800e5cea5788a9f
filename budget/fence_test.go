package budget_test

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/state"
)

// mint makes a hold for a permit of that many seconds.
func (r *rig) mint(id string, seconds int, token byte, pairs ...any) (budget.Held, error) {
	return r.Hold(ctx(), budget.HoldParams{
		Scope: scope, Owner: owner, RequestID: id, Entries: entries(pairs...),
		Permit: &budget.HoldPermit{
			Wire: []byte("permit " + strconv.Itoa(int(token))), Token: state.Token{token}, Request: state.Digest{9},
			Expires: r.Clock.Now().Truncate(time.Second).Add(time.Duration(seconds) * time.Second),
		},
	})
}

// fence builds a part and sends it.
func (r *rig) fence(id string, p budget.FenceParams) (*budget.Part, error) {
	r.t.Helper()
	part, err := r.Fence(ctx(), scope, p)
	r.must(err)
	out, at := r.do(id, part)
	_, err = part.Read(&out, at[0])
	if err == nil && !out.Applied {
		r.t.Fatalf("refused: %+v", out.Refusals)
	}
	return part, err
}

func TestAFencedHoldEndsOnlyByItsOutcome(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("a", 50, "org")
		done, undone, full := r.fenced("done", "a", 10), r.fenced("undone", "a", 10), r.fenced("full", "a", 10)
		r.Clock.Advance(48 * time.Hour)
		_, err := r.Sweep(ctx())
		r.must(err)
		r.reopen()
		r.stands("org", 0, 30)
		if s := r.holdState(done.HoldID); s != budget.HoldFenced {
			t.Fatalf("the hold is %s", s)
		}
		for _, id := range []string{done.HoldID, undone.HoldID} {
			r.refused(errOf(r.capture(id, "a", 1)), budget.ErrHoldFenced)
			r.refused(r.void(id), budget.ErrHoldFenced)
			r.refused(errOf(r.extend(id, time.Minute)), budget.ErrHoldFenced)
		}
		r.refused(errOf(r.hold("done", time.Minute, "a", 10)), budget.ErrHoldSettled)

		part, err := r.SettleHold(ctx(), scope, budget.SettleParams{HoldID: done.HoldID, Token: done.Token, Capture: ptr(entries("a", 25))})
		r.must(err)
		res := r.apply("settle", part)
		if !slices.Equal(res.Captured, entries("a", 25)) || res.Uncaptured != nil {
			t.Fatalf("%+v", res)
		}
		part, err = r.VoidHold(ctx(), scope, budget.SettleParams{HoldID: undone.HoldID, Token: undone.Token})
		r.must(err)
		r.apply("void", part)
		part, err = r.SettleHold(ctx(), scope, budget.SettleParams{HoldID: full.HoldID, Token: full.Token})
		r.must(err)
		r.apply("full", part)
		r.stands("a", 35, 0)
		r.stands("org", 35, 0)
		// The owner did not capture it, and is not told so, whatever the amount.
		r.refused(errOf(r.capture(full.HoldID, "a", 10)), budget.ErrHoldSettled)
		r.refused(r.void(undone.HoldID), budget.ErrHoldSettled)
		// Settled, it is settled for everybody.
		part, err = r.VoidHold(ctx(), scope, budget.SettleParams{HoldID: done.HoldID, Token: done.Token})
		r.must(err)
		out, at := r.do("again", part)
		r.refused(errOf(part.Read(&out, at[0])), budget.ErrHoldSettled)
		r.stands("a", 35, 0)
	})
}

func TestAHoldIsFencedAtMostOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		second := &rig{Fixture: r.Fixture, Budgets: budget.New(r.Second(), budget.Options{}), t: t}
		r.define("a", 1000, "")
		for round := range 10 {
			h := r.mustHold("h"+strconv.Itoa(round), time.Minute, "a", 10)
			var fenced, other atomic.Int32
			var wg sync.WaitGroup
			for i := range 12 {
				on := []*rig{r, second}[i%2]
				wg.Go(func() {
					if i%4 == 3 {
						if on.void(h.ID) == nil {
							other.Store(1)
						}
						return
					}
					part, err := on.Fence(ctx(), scope, budget.FenceParams{HoldID: h.ID, Owner: owner, NewToken: state.Token{byte(i + 1)}})
					if err != nil {
						t.Errorf("fence: %v", err)
						return
					}
					out, at := on.do("op "+h.ID+strconv.Itoa(i), part)
					_, err = part.Read(&out, at[0])
					switch {
					case out.Applied:
						fenced.Add(1)
					case err == nil:
						t.Errorf("no answer to %+v", out.Refusals)
					case !budget.Again(err) && !errors.Is(err, budget.ErrHoldFenced) && !errors.Is(err, budget.ErrHoldSettled):
						t.Errorf("fence: %v", err)
					}
				})
			}
			wg.Wait()
			if n := fenced.Load() + other.Load(); n != 1 {
				t.Fatalf("%d fences and %d voids took effect", fenced.Load(), other.Load())
			}
		}
	})
}

func TestRefusalsOfAFenceAreCarriedIntoTheBatch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 100, "")
		expired := r.mustHold("expired", time.Second, "a", 10)
		r.Clock.Advance(time.Minute)
		open, voided := r.mustHold("open", time.Minute, "a", 10), r.mustHold("voided", time.Minute, "a", 10)
		minted, err := r.mint("minted", 30, 7, "a", 10)
		r.must(err)
		r.must(r.void(voided.ID))
		for name, c := range map[string]struct {
			params budget.FenceParams
			want   error
		}{
			"expired":           {budget.FenceParams{HoldID: expired.ID, Owner: owner}, budget.ErrHoldExpired},
			"voided":            {budget.FenceParams{HoldID: voided.ID, Owner: owner}, budget.ErrHoldSettled},
			"another's":         {budget.FenceParams{HoldID: open.ID, Owner: "mallory"}, budget.ErrHoldUnknown},
			"none":              {budget.FenceParams{HoldID: "x", Owner: owner}, budget.ErrHoldUnknown},
			"by another permit": {budget.FenceParams{HoldID: minted.ID, Token: state.Token{8}}, budget.ErrNotHolder},
			"without a permit":  {budget.FenceParams{HoldID: minted.ID, Owner: owner}, budget.ErrInvalid},
		} {
			part, err := r.Fence(ctx(), scope, c.params)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			// An operation that exists answers first: so the refusal is in the batch, not before it.
			out, at := r.do(name, part)
			if _, err := part.Read(&out, at[0]); out.Applied || !errors.Is(err, c.want) {
				t.Errorf("%s: applied %v, %v; want %v", name, out.Applied, err, c.want)
			}
		}
		r.stands("a", 0, 20)
	})
}

func TestAPermitsHoldEndsWithItAndIsGivenAgainWhileOpen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 100, "")
		r.Clock.Advance(300 * time.Millisecond)
		first, err := r.mint("m", 30, 7, "a", 10)
		r.must(err)
		if want := r.Clock.Now().Truncate(time.Second).Add(30 * time.Second); !first.ExpiresAt.Equal(want) {
			t.Fatalf("it ends at %v, the permit at %v", first.ExpiresAt, want)
		}
		r.reopen()
		again, err := r.mint("m", 30, 8, "a", 10)
		r.must(err)
		if !again.Repeated || !bytes.Equal(again.Permit, []byte("permit 7")) || !again.ExpiresAt.Equal(first.ExpiresAt) {
			t.Fatalf("%+v", again)
		}
		r.refused(errOf(r.mint("m", 30, 8, "a", 11)), budget.ErrRequestIDReused)
		r.refused(errOf(r.hold("m", time.Minute, "a", 10)), budget.ErrRequestIDReused)
		r.refused(errOf(r.extend(first.ID, time.Hour)), budget.ErrInvalid)
		r.stands("a", 0, 10)

		// Expired unused: everything is returned at that instant, and the same request makes a new one.
		r.Clock.Set(first.ExpiresAt)
		r.stands("a", 0, 0)
		next, err := r.mint("m", 30, 8, "a", 10)
		r.must(err)
		if next.Repeated || !bytes.Equal(next.Permit, []byte("permit 8")) {
			t.Fatalf("%+v", next)
		}
		// The old permit names a token that is no longer the hold's.
		r.refused(errOf(r.fence("old", budget.FenceParams{HoldID: next.ID, Token: state.Token{7}})), budget.ErrNotHolder)
		_, err = r.fence("new", budget.FenceParams{HoldID: next.ID, Token: state.Token{8}, NewToken: state.Token{1}})
		r.must(err)
		r.refused(errOf(r.mint("m", 30, 9, "a", 10)), budget.ErrHoldSettled)
		r.stands("a", 0, 10)
	})
}

func TestAPermitsHoldIsSettledByItsOwnerWhileOpen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 100, "")
		captured, err := r.mint("c", 30, 1, "a", 10)
		r.must(err)
		voided, err := r.mint("v", 30, 2, "a", 10)
		r.must(err)
		_, err = r.capture(captured.ID, "a", 3)
		r.must(err)
		r.must(r.void(voided.ID))
		r.stands("a", 3, 0)
		for _, id := range []string{"c", "v"} {
			r.refused(errOf(r.mint(id, 30, 3, "a", 10)), budget.ErrHoldSettled)
		}
		r.refused(errOf(r.fence("late", budget.FenceParams{HoldID: captured.ID, Token: state.Token{1}})), budget.ErrHoldSettled)
	})
}

func TestABareUseIsCapturedByItsTokenWhoeverHoldsIt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 100, "")
		h, err := r.mint("m", 30, 7, "a", 10)
		r.must(err)
		token := state.Token{42}
		_, err = r.fence("use", budget.FenceParams{HoldID: h.ID, Token: state.Token{7}, NewToken: token, Bare: true})
		r.must(err)
		r.Clock.Advance(time.Hour)
		r.stands("a", 0, 10)
		list := entries("a", 12)
		by := func(who string, token state.Token) (budget.Captured, error) {
			return r.Capture(ctx(), budget.CaptureParams{Scope: scope, Owner: who, HoldID: h.ID, Capture: &list, Token: token})
		}
		r.refused(errOf(by(owner, state.Token{})), budget.ErrHoldFenced)
		r.refused(errOf(by(owner, state.Token{1})), budget.ErrNotHolder)
		r.refused(errOf(by("mallory", state.Token{1})), budget.ErrHoldUnknown)
		r.refused(errOf(by("mallory", state.Token{7})), budget.ErrHoldUnknown) // the permit's own is over
		r.refused(r.void(h.ID), budget.ErrHoldFenced)
		c, err := by("the tool", token)
		r.must(err)
		if !slices.Equal(c.Captured, entries("a", 12)) || c.Repeated {
			t.Fatalf("%+v", c)
		}
		c, err = by("the tool", token)
		r.must(err)
		if !c.Repeated {
			t.Fatal("the same capture again is not recognised")
		}
		list = entries("a", 3)
		r.refused(errOf(by("the tool", token)), budget.ErrHoldSettled)
		r.refused(errOf(by(owner, state.Token{})), budget.ErrHoldSettled)
		r.stands("a", 12, 0)
	})
}

func TestABareUseThatNobodyCapturesIsChargedInFullAfterADay(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("a", 100, "org")
		h, err := r.mint("m", 30, 7, "a", 10)
		r.must(err)
		op := r.fenced("by an operation", "a", 5)
		_, err = r.fence("use", budget.FenceParams{HoldID: h.ID, Token: state.Token{7}, NewToken: state.Token{42}, Bare: true})
		r.must(err)
		r.Clock.Advance(24*time.Hour - time.Millisecond)
		_, err = r.Sweep(ctx())
		r.must(err)
		r.stands("org", 0, 15)
		r.Clock.Advance(time.Millisecond)
		for range 2 {
			swept, err := r.Sweep(ctx())
			r.must(err)
			if swept.Failed != 0 {
				t.Fatalf("%+v", swept)
			}
			r.stands("org", 10, 5)
			r.stands("a", 10, 5)
		}
		if s := r.holdState(h.ID); s != budget.HoldCaptured {
			t.Fatalf("the hold is %s", s)
		}
		if s := r.holdState(op.HoldID); s != budget.HoldFenced {
			t.Fatalf("the operation's hold is %s", s)
		}
		// Its token learns that it is settled, and how.
		late := budget.CaptureParams{Scope: scope, Owner: "the tool", HoldID: h.ID, Token: state.Token{42}, Capture: ptr(entries("a", 1))}
		r.refused(errOf(r.Capture(ctx(), late)), budget.ErrHoldSettled)
		late.Capture = nil
		c, err := r.Capture(ctx(), late)
		r.must(err)
		if !c.Repeated || !slices.Equal(c.Captured, entries("a", 10)) {
			t.Fatalf("%+v", c)
		}
		r.stands("org", 10, 5)
	})
}

func TestABareUseNeedsATokenToBeSettledBy(t *testing.T) {
	t.Parallel()
	each(t, func(_ *testing.T, r *rig) {
		r.define("a", 100, "")
		h, err := r.mint("m", 30, 7, "a", 10)
		r.must(err)
		_, err = r.Fence(ctx(), scope, budget.FenceParams{HoldID: h.ID, Token: state.Token{7}, Bare: true})
		r.refused(err, budget.ErrInvalid)
		_, err = r.SettleHold(ctx(), scope, budget.SettleParams{HoldID: h.ID})
		r.refused(err, budget.ErrInvalid)
	})
}

func TestPermitsThatNoHoldCanCarryAreInvalid(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 100, "")
		for name, change := range map[string]func(*budget.HoldParams){
			"no permit":       func(p *budget.HoldParams) { p.Permit.Wire = nil },
			"too large":       func(p *budget.HoldParams) { p.Permit.Wire = make([]byte, budget.MaxPermit+1) },
			"no token":        func(p *budget.HoldParams) { p.Permit.Token = state.Token{} },
			"a TTL besides":   func(p *budget.HoldParams) { p.TTL = time.Minute },
			"a token besides": func(p *budget.HoldParams) { p.Token = state.Token{1} },
			"half a second":   func(p *budget.HoldParams) { p.Permit.Expires = p.Permit.Expires.Add(500 * time.Millisecond) },
			"over":            func(p *budget.HoldParams) { p.Permit.Expires = p.Permit.Expires.Add(-time.Minute) },
			"too long":        func(p *budget.HoldParams) { p.Permit.Expires = p.Permit.Expires.Add(budget.MaxTTL) },
		} {
			p := budget.HoldParams{Scope: scope, Owner: owner, RequestID: "m", Entries: entries("a", 1), Permit: &budget.HoldPermit{
				Wire: []byte("p"), Token: state.Token{1}, Expires: r.Clock.Now().Truncate(time.Second).Add(30 * time.Second),
			}}
			change(&p)
			if _, err := r.Hold(ctx(), p); !errors.Is(err, budget.ErrInvalid) {
				t.Errorf("%s gave %v", name, err)
			}
		}
		r.stands("a", 0, 0)
	})
}

// TestOneBatchFencesAndSpendsAndAnAbortGivesBothBack is what a guarded call does with a budget that its hold and its spend
// both count in.
func TestOneBatchFencesAndSpendsAndAnAbortGivesBothBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("a", 50, "org")
		r.define("b", 50, "org")
		h := r.mustHold("h", time.Minute, "a", 20)
		fence, err := r.Fence(ctx(), scope, budget.FenceParams{HoldID: h.ID, Owner: owner, NewToken: state.Token{5}})
		r.must(err)
		spend, err := r.SpendMoves(ctx(), scope, entries("a", 7, "b", 3))
		r.must(err)
		out, at := r.do("op", fence, spend)
		if !out.Applied {
			t.Fatalf("refused: %+v", out.Refusals)
		}
		res, err := spend.Read(&out, at[1])
		r.must(err)
		if left, ok := budget.Smallest(res.Budgets); !ok || left != 23 {
			t.Fatalf("the smallest remaining is %d", left)
		}
		r.stands("a", 7, 20)
		r.stands("org", 10, 20)

		kept, err := state.DecodeResult(out.Anchor.Result)
		r.must(err)
		latest := budget.Latest(kept.Figures)
		if len(latest) != 3 {
			t.Fatalf("%d budgets in %+v", len(latest), latest)
		}
		give, err := r.VoidHold(ctx(), scope, budget.SettleParams{HoldID: fence.HoldID, Token: fence.Token})
		r.must(err)
		out, _ = r.do("abort", give, r.Return(scope, kept))
		if !out.Applied {
			t.Fatalf("refused: %+v", out.Refusals)
		}
		r.stands("a", 0, 0)
		r.stands("b", 0, 0)
		r.stands("org", 0, 0)
	})
}

func TestAPartThatIsOutOfDateSaysSoAndIsAcceptedWhenBuiltAnew(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 50, "")
		spend, err := r.SpendMoves(ctx(), scope, entries("a", 7))
		r.must(err)
		r.close("a")
		r.define("a", 50, "")
		out, at := r.do("op", spend)
		_, err = spend.Read(&out, at[0])
		if out.Applied || !budget.Again(err) || !errors.Is(err, budget.ErrBudgetUnknown) {
			t.Fatalf("applied %v, %v", out.Applied, err)
		}
		spend, err = r.SpendMoves(ctx(), scope, entries("a", 7))
		r.must(err)
		r.apply("op", spend)
		r.stands("a", 7, 0)

		h := r.mustHold("h", time.Minute, "a", 3)
		fence, err := r.Fence(ctx(), scope, budget.FenceParams{HoldID: h.ID, Owner: owner})
		r.must(err)
		_, err = r.extend(h.ID, time.Hour)
		r.must(err)
		out, at = r.do("op2", fence)
		_, err = fence.Read(&out, at[0])
		if out.Applied || err == nil {
			t.Fatalf("applied %v, %v", out.Applied, err)
		}
		if !budget.Again(err) {
			t.Fatalf("%v is final", err)
		}
		fence, err = r.Fence(ctx(), scope, budget.FenceParams{HoldID: h.ID, Owner: owner})
		r.must(err)
		r.apply("op2", fence)
		r.stands("a", 7, 3)
		spend, err = r.SpendMoves(ctx(), scope, entries("nobody", 7))
		r.must(err)
		out, at = r.do("op3", spend)
		_, err = spend.Read(&out, at[0])
		if budget.Again(err) || !errors.Is(err, budget.ErrBudgetUnknown) {
			t.Fatalf("a budget that nobody defined: %v", err)
		}
	})
}

func TestAFenceInAClosedWindowLeavesTheNextOneAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("total", 100, "")
		r.defineIn("hour", 10, "total", budget.Window{Kind: budget.Fixed, Seconds: 3600})
		h := r.mustHold("h", 3*time.Hour, "hour", 6)
		r.Clock.Advance(time.Hour)
		r.mustSpend("s", "hour", 10)
		part, err := r.fence("op", budget.FenceParams{HoldID: h.ID, Owner: owner, NewToken: state.Token{5}})
		r.must(err)
		r.stands("hour", 10, 0)
		r.stands("total", 10, 6)
		settle, err := r.SettleHold(ctx(), scope, budget.SettleParams{HoldID: h.ID, Token: part.Token, Capture: ptr(entries("hour", 8))})
		r.must(err)
		res := r.apply("settle", settle)
		if !slices.Equal(res.Uncaptured, entries("hour", 2)) {
			t.Fatalf("%+v", res)
		}
		r.stands("hour", 10, 0)
		r.stands("total", 16, 0)
	})
}

// TestAPartBuiltBeforeAHoldWasFencedMovesNothing: also where the fence left the hold's token as it was.
func TestAPartBuiltBeforeAHoldWasFencedMovesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 50, "")
		h := r.mustHold("h", time.Minute, "a", 3)
		p := budget.FenceParams{HoldID: h.ID, Owner: owner}
		early, err := r.Fence(ctx(), scope, p)
		r.must(err)
		_, err = r.fence("first", p)
		r.must(err)
		out, at := r.do("second", early)
		if _, err := early.Read(&out, at[0]); out.Applied || !budget.Again(err) {
			t.Fatalf("applied %v, %v", out.Applied, err)
		}
		r.refused(errOf(r.fence("second", p)), budget.ErrHoldFenced)
		r.stands("a", 0, 3)
	})
}
