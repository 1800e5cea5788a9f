package budget_test

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

func TestHoldReservesInEveryAncestorUntilItEndsByItself(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 10, "")
		r.define("a", 10, "org")
		h := r.mustHold("h", time.Second, "a", 10)
		if h.ID != ids.Hold(owner, "h") || len(h.Budgets) != 2 || h.Budgets[1].Held != 10 || h.Budgets[1].Remaining != 0 {
			t.Fatalf("%+v", h)
		}
		if at := h.ExpiresAt.Sub(r.Clock.Now()); at < time.Second || at > time.Second+time.Second*625/10000 {
			t.Fatalf("a hold of a second ends after %v", at)
		}
		_, err := r.spend("s", "org", 1)
		r.refused(err, budget.ErrExceeded)
		r.Clock.Set(h.ExpiresAt.Add(-time.Millisecond))
		_, err = r.spend("s", "org", 1)
		r.refused(err, budget.ErrExceeded)
		if s := r.holdState(h.ID); s != budget.HoldOpen {
			t.Fatalf("the hold is %s", s)
		}
		// Hold and budget stop counting in the same instant, without a sweep.
		r.Clock.Set(h.ExpiresAt)
		if s := r.holdState(h.ID); s != budget.HoldExpired {
			t.Fatalf("the hold is %s", s)
		}
		r.stands("org", 0, 0)
		_, err = r.capture(h.ID, "a", 1)
		r.refused(err, budget.ErrHoldExpired)
		r.refused(r.void(h.ID), budget.ErrHoldExpired)
		_, err = r.extend(h.ID, time.Minute)
		r.refused(err, budget.ErrHoldExpired)
		r.mustSpend("s", "org", 10)
	})
}

func TestAnExpiredHoldIsRememberedADayAndItsRequestIDIsFreeAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		h := r.mustHold("h", time.Minute, "a", 10)
		other := r.mustHold("other", time.Minute, "a", 0)
		r.Clock.Advance(2 * time.Minute)
		again := r.mustHold("h", time.Minute, "a", 3) // even for another request
		if again.Repeated || again.ID != h.ID {
			t.Fatalf("%+v", again)
		}
		r.Clock.Advance(24*time.Hour - 2*time.Minute)
		_, err := r.Sweep(ctx())
		r.must(err)
		if s := r.holdState(other.ID); s != budget.HoldExpired {
			t.Fatalf("the hold is %s", s)
		}
		r.refused(r.void(other.ID), budget.ErrHoldExpired)
		r.Clock.Advance(time.Hour)
		_, err = r.Sweep(ctx())
		r.must(err)
		r.refused(r.void(other.ID), budget.ErrHoldUnknown)
	})
}

func TestCaptureOfLessReturnsTheRest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("a", 50, "org")
		r.define("b", 50, "org")
		h := r.mustHold("h", time.Minute, "a", 20, "b", 10)
		c, err := r.capture(h.ID, "a", 5) // b, which is not named, is given back
		r.must(err)
		if !slices.Equal(c.Captured, entries("a", 5)) || c.Uncaptured != nil || c.Repeated {
			t.Fatalf("%+v", c)
		}
		r.stands("a", 5, 0)
		r.stands("b", 0, 0)
		r.stands("org", 5, 0)
		if s := r.holdState(h.ID); s != budget.HoldCaptured {
			t.Fatalf("the hold is %s", s)
		}
	})
}

func TestCaptureOfNothingAndInFull(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 50, "")
		none, full := r.mustHold("none", time.Minute, "a", 20), r.mustHold("full", time.Minute, "a", 10)
		c, err := r.capture(none.ID)
		r.must(err)
		if len(c.Captured) != 0 {
			t.Fatalf("%+v", c)
		}
		r.stands("a", 0, 10)
		c, err = r.Capture(ctx(), budget.CaptureParams{Scope: scope, Owner: owner, HoldID: full.ID})
		r.must(err)
		if !slices.Equal(c.Captured, entries("a", 10)) {
			t.Fatalf("%+v", c)
		}
		r.stands("a", 10, 0)
		// In full is the same as what was held.
		c, err = r.capture(full.ID, "a", 10)
		r.must(err)
		if !c.Repeated {
			t.Fatal("not recognised")
		}
	})
}

func TestCaptureOfMoreIsChargedIfItFitsAsAWhole(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("a", 60, "org")
		r.define("b", 60, "org")
		h := r.mustHold("h", time.Minute, "a", 20, "b", 20)
		c, err := r.capture(h.ID, "a", 55, "b", 45)
		r.must(err)
		if !slices.Equal(c.Captured, entries("a", 55, "b", 45)) || c.Uncaptured != nil {
			t.Fatalf("%+v", c)
		}
		r.stands("a", 55, 0)
		r.stands("b", 45, 0)
		r.stands("org", 100, 0)
	})
}

func TestCaptureOfMoreThatDoesNotFitSomewhereIsCutToTheHoldEverywhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("a", 60, "org")
		r.define("b", 60, "org")
		h := r.mustHold("h", time.Minute, "a", 20, "b", 20)
		r.mustSpend("s", "org", 51)
		// a has room for 5 more, b for 5 more, the parent for 9 of the 10.
		c, err := r.capture(h.ID, "a", 25, "b", 25)
		r.must(err)
		if !slices.Equal(c.Captured, entries("a", 20, "b", 20)) || !slices.Equal(c.Uncaptured, entries("a", 5, "b", 5)) {
			t.Fatalf("%+v", c)
		}
		r.stands("a", 20, 0)
		r.stands("b", 20, 0)
		r.stands("org", 91, 0)
		again, err := r.capture(h.ID, "b", 25, "a", 25)
		r.must(err)
		if !again.Repeated || !slices.Equal(again.Uncaptured, entries("b", 5, "a", 5)) || !slices.Equal(again.Budgets, c.Budgets) {
			t.Fatalf("%+v", again)
		}
	})
}

func TestWhatOneEntryReturnsMakesRoomForTheExtraOfAnother(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 40, "")
		r.define("a", 40, "org")
		r.define("b", 40, "org")
		h := r.mustHold("h", time.Minute, "a", 20, "b", 20)
		c, err := r.capture(h.ID, "a", 30, "b", 10)
		r.must(err)
		if !slices.Equal(c.Captured, entries("a", 30, "b", 10)) || c.Uncaptured != nil {
			t.Fatalf("%+v", c)
		}
		r.stands("org", 40, 0)
	})
}

func TestCaptureOfABudgetThatTheHoldDoesNotHoldIsInvalid(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 40, "")
		r.define("a", 40, "org")
		h := r.mustHold("h", time.Minute, "a", 20)
		for _, pairs := range [][]any{{"org", 1}, {"b", 1}, {"a", 1, "a", 2}, {"a", budget.MaxAmount + 1}} {
			_, err := r.capture(h.ID, pairs...)
			r.refused(err, budget.ErrInvalid)
		}
		r.stands("org", 0, 20)
	})
}

func TestASettledHoldAnswersItsOwnSettlementAgainAndNoOther(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 100, "")
		captured, voided := r.mustHold("c", time.Minute, "a", 20), r.mustHold("v", time.Minute, "a", 20)
		first, err := r.capture(captured.ID, "a", 7)
		r.must(err)
		r.must(r.void(voided.ID))
		r.stands("a", 7, 0)
		r.mustSpend("s", "a", 1)
		r.Clock.Advance(time.Hour) // past what would have been its end
		again, err := r.capture(captured.ID, "a", 7)
		r.must(err)
		if !again.Repeated || !slices.Equal(again.Captured, first.Captured) || !slices.Equal(again.Budgets, first.Budgets) {
			t.Fatalf("got %+v, want the first answer %+v", again, first)
		}
		r.must(r.void(voided.ID))
		r.refused(errOf(r.capture(captured.ID, "a", 8)), budget.ErrHoldSettled)
		r.refused(r.void(captured.ID), budget.ErrHoldSettled)
		r.refused(errOf(r.capture(voided.ID, "a", 7)), budget.ErrHoldSettled)
		r.refused(errOf(r.extend(captured.ID, time.Hour)), budget.ErrHoldSettled)
		r.refused(errOf(r.hold("c", time.Minute, "a", 20)), budget.ErrHoldSettled)
		r.refused(errOf(r.hold("v", time.Minute, "a", 20)), budget.ErrHoldSettled)
		r.stands("a", 8, 0)
		if s := r.holdState(voided.ID); s != budget.HoldVoided {
			t.Fatalf("the hold is %s", s)
		}
		// Both are remembered for a day after their end.
		r.Clock.Advance(23 * time.Hour)
		_, err = r.Sweep(ctx())
		r.must(err)
		r.refused(errOf(r.capture(captured.ID, "a", 8)), budget.ErrHoldSettled)
		r.Clock.Advance(2 * time.Hour)
		_, err = r.Sweep(ctx())
		r.must(err)
		r.refused(errOf(r.capture(captured.ID, "a", 8)), budget.ErrHoldUnknown)
	})
}

func TestTheSameHoldRequestIsAnsweredWithTheFirstAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 100, "")
		first := r.mustHold("h", time.Minute, "a", 20)
		r.mustSpend("s", "a", 5)
		again := r.mustHold("h", time.Minute, "a", 20)
		if !again.Repeated || !again.ExpiresAt.Equal(first.ExpiresAt) || !slices.Equal(again.Budgets, first.Budgets) {
			t.Fatalf("got %+v, want the first answer %+v", again, first)
		}
		r.refused(errOf(r.hold("h", time.Minute, "a", 21)), budget.ErrRequestIDReused)
		r.stands("a", 5, 20)
	})
}

func TestExtendMovesTheEndForwardOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 10, "")
		r.define("a", 10, "org")
		h := r.mustHold("h", time.Minute, "a", 10)
		r.Clock.Advance(30 * time.Second)
		e, err := r.extend(h.ID, time.Hour)
		r.must(err)
		if left := e.ExpiresAt.Sub(r.Clock.Now()); left < time.Hour || left > time.Hour*10625/10000 {
			t.Fatalf("extended by an hour it ends after %v", left)
		}
		same, err := r.extend(h.ID, time.Minute)
		r.must(err)
		if !same.ExpiresAt.Equal(e.ExpiresAt) {
			t.Fatalf("a shorter time moved the end from %v to %v", e.ExpiresAt, same.ExpiresAt)
		}
		r.Clock.Advance(59 * time.Minute)
		r.stands("org", 0, 10)
		if s := r.holdState(h.ID); s != budget.HoldOpen {
			t.Fatalf("the hold is %s", s)
		}
		_, err = r.capture(h.ID, "a", 4)
		r.must(err)
		r.stands("org", 4, 0)
	})
}

func TestHoldsLastASecondToSevenDays(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		for _, ttl := range []time.Duration{0, -time.Second, time.Second - 1, 7*24*time.Hour + 1} {
			_, err := r.hold("h", ttl, "a", 1)
			r.refused(err, budget.ErrInvalid)
		}
		h := r.mustHold("long", 7*24*time.Hour, "a", 1)
		for _, ttl := range []time.Duration{0, 7*24*time.Hour + 1} {
			_, err := r.extend(h.ID, ttl)
			r.refused(err, budget.ErrInvalid)
		}
	})
}

func TestOnlyItsOwnerSeesOrMovesAHold(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		h := r.mustHold("h", time.Minute, "a", 10)
		for _, id := range []string{h.ID, ids.Hold("mallory", "h"), "", "x"} {
			_, err := r.Capture(ctx(), budget.CaptureParams{Scope: scope, Owner: "mallory", HoldID: id})
			r.refused(err, budget.ErrHoldUnknown)
			_, err = r.Capture(ctx(), budget.CaptureParams{Scope: scope, Owner: "mallory", HoldID: id, Token: state.Token{1}})
			r.refused(err, budget.ErrHoldUnknown)
			_, err = r.Void(ctx(), budget.VoidParams{Scope: scope, Owner: "mallory", HoldID: id})
			r.refused(err, budget.ErrHoldUnknown)
			_, err = r.Extend(ctx(), budget.ExtendParams{Scope: scope, Owner: "mallory", HoldID: id, TTL: time.Minute})
			r.refused(err, budget.ErrHoldUnknown)
			_, err = r.GetHold(ctx(), budget.GetHoldParams{Scope: scope, Owner: "mallory", HoldID: id})
			r.refused(err, budget.ErrHoldUnknown)
		}
		v, err := r.GetHold(ctx(), budget.GetHoldParams{Scope: scope, AnyOwner: true, HoldID: h.ID})
		r.must(err)
		if v.Owner != owner || !slices.Equal(v.Entries, entries("a", 10)) || !v.ExpiresAt.Equal(h.ExpiresAt) {
			t.Fatalf("%+v", v)
		}
		_, err = r.Capture(ctx(), budget.CaptureParams{Scope: scope, Owner: owner, HoldID: h.ID, Token: state.Token{1}})
		r.refused(err, budget.ErrNotHolder)
		r.stands("a", 0, 10)
	})
}

func TestALateCaptureOrVoidLeavesTheNextWindowAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("total", 100, "")
		r.defineIn("hour", 10, "total", budget.Window{Kind: budget.Fixed, Seconds: 3600})
		captured, voided := r.mustHold("c", 3*time.Hour, "hour", 6), r.mustHold("v", 3*time.Hour, "hour", 4)
		r.Clock.Advance(time.Hour)
		r.stands("hour", 0, 0)
		r.stands("total", 0, 10)
		r.mustSpend("s", "hour", 10)
		// It can be settled, not extended, and nothing above it is charged, though the total has room.
		r.refused(errOf(r.extend(captured.ID, 4*time.Hour)), budget.ErrWindowClosed)
		c, err := r.capture(captured.ID, "hour", 9)
		r.must(err)
		if !slices.Equal(c.Captured, entries("hour", 6)) || !slices.Equal(c.Uncaptured, entries("hour", 3)) {
			t.Fatalf("%+v", c)
		}
		r.must(r.void(voided.ID))
		r.stands("hour", 10, 0)
		r.stands("total", 16, 0)
		again, err := r.capture(captured.ID, "hour", 9)
		r.must(err)
		if !again.Repeated || !slices.Equal(again.Uncaptured, c.Uncaptured) {
			t.Fatalf("%+v", again)
		}
	})
}

func TestOfManySettlementsAtOnceOneTakesEffect(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		second := budget.New(r.Second(), budget.Options{})
		r.define("a", 1000, "")
		for round := range 20 {
			h := r.mustHold("h"+strconv.Itoa(round), time.Minute, "a", 10)
			var captured, voided atomic.Int32
			var wg sync.WaitGroup
			for i := range 12 {
				on := []*budget.Budgets{r.Budgets, second}[i%2]
				wg.Go(func() {
					switch i % 3 {
					case 0:
						_, err := on.Extend(ctx(), budget.ExtendParams{Scope: scope, Owner: owner, HoldID: h.ID, TTL: time.Duration(i+2) * time.Minute})
						if err != nil && !errors.Is(err, budget.ErrHoldSettled) {
							t.Errorf("extend: %v", err)
						}
					case 1:
						amount := []budget.Entry{{Budget: "a", Amount: uint64(i)}}
						_, err := on.Capture(ctx(), budget.CaptureParams{Scope: scope, Owner: owner, HoldID: h.ID, Capture: &amount})
						if err == nil {
							captured.Add(1)
						} else if !errors.Is(err, budget.ErrHoldSettled) {
							t.Errorf("capture: %v", err)
						}
					case 2:
						_, err := on.Void(ctx(), budget.VoidParams{Scope: scope, Owner: owner, HoldID: h.ID})
						if err == nil {
							voided.Add(1)
						} else if !errors.Is(err, budget.ErrHoldSettled) {
							t.Errorf("void: %v", err)
						}
					}
				})
			}
			wg.Wait()
			// Voids repeat one another; captures of different amounts do not.
			if c, v := captured.Load(), voided.Load(); c > 1 || c == 1 && v > 0 || c == 0 && v == 0 {
				t.Fatalf("%d captures and %d voids took effect", c, v)
			}
			b, err := r.Get(ctx(), budget.GetParams{Scope: scope, Name: "a"})
			r.must(err)
			if b.Held != 0 {
				t.Fatalf("%d are held by a settled hold", b.Held)
			}
		}
	})
}

func TestADamagedHoldIsAnErrorAndMovesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		h := r.mustHold("h", time.Minute, "a", 10)
		r.Damage(state.Key{Scope: scope, Kind: state.KindHold, ID: h.ID})
		r.refused(errOf(r.capture(h.ID, "a", 1)), state.ErrCorrupt)
		r.refused(r.void(h.ID), state.ErrCorrupt)
		r.refused(errOf(r.hold("h", time.Minute, "a", 10)), state.ErrCorrupt)
		r.stands("a", 0, 10)
	})
}

func TestAHoldWhoseBodyDoesNotDecodeIsDamaged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		for i, change := range []func(*state.Record){
			func(rec *state.Record) { rec.Body = nil },
			func(rec *state.Record) { rec.Body = append(rec.Body, 0) },
			func(rec *state.Record) { rec.Body[0] = 9 },
			func(rec *state.Record) { rec.Body[1] = 4 },               // captured, and pending
			func(rec *state.Record) { rec.Body[len(rec.Body)-2] = 7 }, // a budget that it does not hold
			func(rec *state.Record) { rec.Result = rec.Result[:3] },   // cut off
			func(rec *state.Record) { rec.Result = []byte{0} },        // of no budget
		} {
			h := r.mustHold("h"+strconv.Itoa(i), time.Minute, "a", 1)
			r.Rewrite(state.Key{Scope: scope, Kind: state.KindHold, ID: h.ID}, func(rec *state.Record) *state.Record {
				rec.Body = slices.Clone(rec.Body)
				change(rec)
				return rec
			})
			if _, err := r.capture(h.ID, "a", 1); !errors.Is(err, state.ErrCorrupt) {
				t.Errorf("damage %d: capture gave %v", i, err)
			}
			if _, err := r.GetHold(ctx(), budget.GetHoldParams{Scope: scope, Owner: owner, HoldID: h.ID}); !errors.Is(err, state.ErrCorrupt) {
				t.Errorf("damage %d: reading it gave %v", i, err)
			}
		}
		r.stands("a", 0, 7)
	})
}

// TestTheListOfHoldsStaysShort makes holds of every length in every second of an hour: their ends share buckets.
func TestTheListOfHoldsStaysShort(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 1_000_000, "")
		ttl := time.Second
		for i := range 1500 {
			r.mustHold(strconv.Itoa(i), ttl, "a", 1)
			r.Clock.Advance(73 * time.Millisecond)
			if ttl = ttl * 21 / 20; ttl > 7*24*time.Hour {
				ttl = time.Second
			}
		}
		recs, err := r.Read(ctx(), state.Key{Scope: scope, Kind: state.KindBudget, ID: "a"})
		r.must(err)
		if n := len(recs[0].Budget().Held); n > 400 {
			t.Fatalf("the budget lists %d ends of holds", n)
		}
	})
}
