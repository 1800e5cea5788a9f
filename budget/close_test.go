package budget_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/state"
)

func TestCloseRemovesWholeSegmentsOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		for _, name := range []string{"acme", "acme/s1", "acme/s1/x", "acme/s1-b", "acme/s10", "acmex"} {
			r.define(name, 10, "")
		}
		if n := r.close("acme/s1"); n != 2 {
			t.Fatalf("%d were removed", n)
		}
		if got, want := list(t, r, "", 50), []string{"acme", "acme/s1-b", "acme/s10", "acmex"}; !slices.Equal(got, want) {
			t.Fatalf("left are %v, want %v", got, want)
		}
		if n := r.close("acme/s1/"); n != 0 {
			t.Fatalf("%d were removed a second time", n)
		}
		if n := r.close("acme/"); n != 3 {
			t.Fatalf("%d were removed", n)
		}
		for _, prefix := range []string{"", "/", ".", "..", "a/..", "a//b", "//"} {
			_, err := r.Budgets.Close(ctx(), budget.CloseParams{Scope: scope, Prefix: prefix})
			if !errors.Is(err, budget.ErrInvalid) {
				t.Errorf("prefix %q gave %v", prefix, err)
			}
		}
	})
}

func TestCloseReturnsOpenAmountsToTheAncestorsAndEndsTheHolds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("s", 80, "org")
		r.define("s/a", 50, "s")
		r.mustSpend("spent", "s/a", 5)
		h, wide := r.mustHold("h", time.Hour, "s/a", 20), r.mustHold("wide", time.Minute, "s/a", 10, "org", 7)
		r.stands("org", 5, 37)
		if n := r.close("s"); n != 2 {
			t.Fatalf("%d were removed", n)
		}
		// What was spent stays. The hold on org itself is over as well; its amount there counts until its end.
		r.stands("org", 5, 7)
		for _, id := range []string{h.ID, wide.ID} {
			r.refused(errOf(r.capture(id, "s/a", 1)), budget.ErrHoldSettled)
			r.refused(r.void(id), budget.ErrHoldSettled)
			r.refused(errOf(r.extend(id, time.Hour)), budget.ErrHoldSettled)
			part, err := r.Fence(ctx(), scope, budget.FenceParams{HoldID: id, Owner: owner})
			r.must(err)
			out, at := r.do("fence "+id, part)
			r.refused(errOf(part.Read(&out, at[0])), budget.ErrHoldSettled)
		}
		r.stands("org", 5, 7)
		// Defined anew it is another budget.
		r.define("s", 80, "org")
		r.define("s/a", 50, "s")
		r.refused(r.void(h.ID), budget.ErrHoldSettled)
		r.stands("s/a", 0, 0)
		r.Clock.Advance(2 * time.Minute)
		r.stands("org", 5, 0)
	})
}

func TestFencedAmountsStayInTheAncestorsOfAClosedBudgetUntilSettled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("s", 80, "org")
		done, undone := r.fenced("done", "s", 20), r.fenced("undone", "s", 10)
		r.close("s")
		r.stands("org", 0, 30)
		part, err := r.SettleHold(ctx(), scope, budget.SettleParams{HoldID: done.HoldID, Token: done.Token, Capture: ptr(entries("s", 25))})
		r.must(err)
		res := r.apply("settle", part)
		// The missing budget is skipped, and the extra does not fit what is not there.
		if !slices.Equal(res.Captured, entries("s", 20)) || !slices.Equal(res.Uncaptured, entries("s", 5)) {
			t.Fatalf("%+v", res)
		}
		r.stands("org", 20, 10)
		part, err = r.VoidHold(ctx(), scope, budget.SettleParams{HoldID: undone.HoldID, Token: undone.Token})
		r.must(err)
		r.apply("void", part)
		r.stands("org", 20, 0)
	})
}

// TestParentsClosedBeforeTheirChildrenGiveBackOnce closes against the order of ancestry, by names that do not imply it.
func TestParentsClosedBeforeTheirChildrenGiveBackOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("middle", 100, "org")
		r.define("leaf", 100, "middle")
		r.mustHold("other", time.Hour, "org", 50)
		h := r.mustHold("h", time.Hour, "leaf", 30)
		r.stands("org", 0, 80)
		r.close("middle")
		r.stands("org", 0, 50)
		r.refused(r.void(h.ID), budget.ErrHoldSettled)
		r.close("leaf")
		r.stands("org", 0, 50)
		r.close("org")
	})
}

func TestCloseIsBoundedAndResumable(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 1000, "")
		r.define("s", 1000, "org")
		for i := range 25 {
			r.define("s/"+strconv.Itoa(i), 10, "s")
			r.mustHold(strconv.Itoa(i), time.Hour, "s/"+strconv.Itoa(i), 2)
		}
		r.stands("org", 0, 50)
		removed, calls := 0, 0
		for more := true; more; calls++ {
			c, err := r.Budgets.Close(ctx(), budget.CloseParams{Scope: scope, Prefix: "s", Limit: 10})
			r.must(err)
			if c.Removed > 10 {
				t.Fatalf("one call removed %d", c.Removed)
			}
			removed += c.Removed
			more = c.More
			r.reopen()
		}
		if removed != 26 || calls != 3 {
			t.Fatalf("%d were removed in %d calls", removed, calls)
		}
		r.stands("org", 0, 0)
	})
}

func TestClosePassesOverADamagedBudgetAndSaysSo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("s", 10, "")
		r.define("s/a", 10, "")
		r.define("s/b", 10, "")
		r.Damage(state.Key{Scope: scope, Kind: state.KindBudget, ID: "s/a"})
		c, err := r.Budgets.Close(ctx(), budget.CloseParams{Scope: scope, Prefix: "s"})
		r.refused(err, state.ErrCorrupt)
		if c.Removed != 2 {
			t.Fatalf("%d were removed", c.Removed)
		}
	})
}

func ptr[T any](v T) *T { return &v }

// fenced makes a hold and fences it as an operation does.
func (r *rig) fenced(id, name string, amount int) *budget.Part {
	r.t.Helper()
	h := r.mustHold(id, time.Minute, name, amount)
	token, err := r.Token()
	r.must(err)
	part, err := r.Fence(ctx(), scope, budget.FenceParams{HoldID: h.ID, Owner: owner, NewToken: token})
	r.must(err)
	r.apply("fence "+id, part)
	return part
}

// apply sends one part behind an anchor and reads its answer.
func (r *rig) apply(id string, part *budget.Part) budget.Result {
	r.t.Helper()
	out, at := r.do(id, part)
	res, err := part.Read(&out, at[0])
	r.must(err)
	if !out.Applied {
		r.t.Fatalf("refused: %+v", out.Refusals)
	}
	return res
}
