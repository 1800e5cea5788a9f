package state_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/state"
)

var lifetime = state.Window{Kind: state.WindowLifetime}

// define makes a budget, with the parent named last if there is one.
func (r *rig) define(name string, limit uint64, window state.Window, parent ...string) {
	r.Helper()
	o := state.PutBudget{Key: budget(name), Unit: "USD", Limit: limit, Window: window}
	for _, p := range parent {
		o.Parent = p
	}
	r.applies(o)
}

func (r *rig) budget(name string) *state.Budget {
	r.Helper()
	b, _, err := r.record(budget(name)).Budget().At(r.Now)
	if err != nil {
		r.Fatal(err)
	}
	return &b
}

// moves makes the same Move on each of some budgets.
func (r *rig) moves(m state.Move, names ...string) (ops []state.Op) {
	r.Helper()
	for _, name := range names {
		m.Key, m.Generation = budget(name), r.record(budget(name)).Budget().Generation
		ops = append(ops, m)
	}
	return ops
}

// anchored puts ops behind a claim of their own.
func anchored(ops ...state.Op) []state.Op {
	return append([]state.Op{claim(key(state.KindSpend, "anchor"))}, ops...)
}

// give adds an amount to a bucket of budgets, in one batch.
func (r *rig) give(to state.Bucket, amount uint64, names ...string) state.Outcome {
	r.Helper()
	r.commit++
	c := claim(key(state.KindSpend, fmt.Sprint("spend", r.commit)))
	return r.applies(append([]state.Op{c}, r.moves(state.Move{Window: state.CurrentWindow, Give: to, GiveAmount: amount}, names...)...)...)
}

// shift takes from one bucket and gives to another.
func (r *rig) shift(from state.Bucket, take uint64, to state.Bucket, give uint64, names ...string) []state.Op {
	r.Helper()
	ops := anchored()
	for _, name := range names {
		ops = append(ops, r.moves(state.Move{Window: r.budget(name).Start, Take: from, TakeAmount: take, Give: to, GiveAmount: give}, name)...)
	}
	r.commit++
	c := claim(key(state.KindSpend, fmt.Sprint("shift", r.commit)))
	ops[0] = c
	return ops
}

// stands checks what a budget has spent, fenced and held.
func (r *rig) stands(name string, spent, fenced, held uint64) {
	r.Helper()
	b := r.budget(name)
	if sum := b.Used() - b.Spent - b.Fenced; b.Spent != spent || b.Fenced != fenced || sum != held {
		r.Fatalf("%s has %d spent, %d fenced and %d held, want %d, %d and %d", name, b.Spent, b.Fenced, sum, spent, fenced, held)
	}
}

func TestBudgetDefinition(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("org", 100, lifetime)
	out := r.applies(state.PutBudget{Key: budget("org/job"), Unit: "USD", Limit: 10, Window: state.Window{Kind: state.WindowFixed, Seconds: 3600}, Parent: "org"})
	b, org := r.budget("org/job"), r.budget("org")
	if b.ParentGen != org.Generation || b.Generation.IsZero() || b.Generation == org.Generation || b.Start != start/hour*hour || b.Used() != 0 {
		t.Errorf("%+v", b)
	}
	if f := out.Figures[0]; f.Limit != 10 || f.Remaining != 10 || f.WindowAt != b.Start || f.ResetsAt != b.Start+hour || f.Lifetime || f.Generation != b.Generation {
		t.Errorf("%+v", f)
	}
	job := state.PutBudget{Key: budget("org/job"), Unit: "USD", Limit: 10, Window: b.Window, Parent: "org"}
	for name, c := range map[string]struct {
		op   state.PutBudget
		want state.Reason
	}{
		"unit":              {change(job, func(o *state.PutBudget) { o.Unit = "EUR" }).(state.PutBudget), state.Differs},
		"window":            {change(job, func(o *state.PutBudget) { o.Window = lifetime }).(state.PutBudget), state.Differs},
		"parent":            {change(job, func(o *state.PutBudget) { o.Parent = "" }).(state.PutBudget), state.Differs},
		"no such parent":    {change(job, func(o *state.PutBudget) { o.Key, o.Parent = budget("x"), "y" }).(state.PutBudget), state.Absent},
		"parent's unit":     {change(job, func(o *state.PutBudget) { o.Key, o.Unit = budget("x"), "EUR" }).(state.PutBudget), state.Differs},
		"a name is no link": {change(job, func(o *state.PutBudget) { o.Key, o.Parent = budget("org/job/x"), "org/none" }).(state.PutBudget), state.Absent},
	} {
		out := r.refuses(reasons(c.want), c.op)
		if (out.Refusals[0].Figures == nil) != (c.want == state.Absent) {
			t.Errorf("%s: figures %v", name, out.Refusals[0].Figures)
		}
	}
	// The limit may change, and what is used stays.
	r.give(spent, 7, "org/job", "org")
	job.Limit = 5
	if f := r.applies(job).Figures[0]; f.Limit != 5 || f.Spent != 7 || f.Remaining != 0 {
		t.Errorf("%+v", f)
	}
	if r.budget("org/job").Generation != b.Generation {
		t.Error("the generation changes with the limit")
	}
	job.Limit, job.Unlimited = 0, true
	if f := r.applies(job).Figures[0]; !f.Unlimited || f.Remaining != state.MaxAmount-7 {
		t.Errorf("%+v", f)
	}
}

func TestBudgetsAreAtMostEightDeep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b1", 100, lifetime)
	names := []string{"b1"}
	for i := 2; i <= state.MaxBudgetDepth; i++ {
		name := fmt.Sprint("b", i)
		r.define(name, 100, lifetime, names[len(names)-1])
		names = append(names, name)
	}
	r.fails(state.ErrInvalid, state.PutBudget{Key: budget("b9"), Unit: "USD", Window: lifetime, Parent: "b8"})
	r.give(spent, 10, names...)
	for _, name := range names {
		r.stands(name, 10, 0, 0)
	}
}

// TestBudgetsHaveNoCycle: a budget is tied to the generation of its parent.
func TestBudgetsHaveNoCycle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("a", 100, lifetime)
	r.define("b", 100, lifetime, "a")
	r.applies(state.Remove{Key: budget("a"), Generation: r.budget("a").Generation})
	// b is left without its parent: nothing is defined under it, nothing counts in it.
	r.refuses(reasons(state.BudgetGone), state.PutBudget{Key: budget("a"), Unit: "USD", Limit: 1, Window: lifetime, Parent: "b"})
	r.refuses(reasons(state.BudgetGone), state.PutBudget{Key: budget("b"), Unit: "USD", Limit: 1, Window: lifetime, Parent: "a"})
	r.define("a", 100, lifetime)
	r.refuses(reasons(state.BudgetGone), anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: spent, GiveAmount: 1}, "b", "a")...)...)
	r.refuses(reasons(state.BudgetGone), state.PutBudget{Key: budget("c"), Unit: "USD", Limit: 1, Window: lifetime, Parent: "b"})
}

func TestBudgetsDefinedInOneCommitHaveDifferentGenerations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := &state.Batch{Scope: "s", Ops: []state.Op{putBudget()}}
	v := viewOf(r, b)
	seen := map[state.Version]bool{}
	for seq := range uint32(3) {
		d := state.Decide(v, b, state.Context{Now: start, Version: state.Version{1}, Seq: seq})
		seen[d.Writes[0].Record.Budget().Generation] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d generations", len(seen))
	}
}

func TestUseNeverGrowsAboveTheLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b", 100, lifetime)
	add := func(to state.Bucket, amount uint64) []state.Op {
		return anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: to, GiveAmount: amount}, "b")...)
	}
	until := start + hour
	r.give(spent, 40, "b")
	r.give(held(until), 30, "b")
	r.give(fenced, 20, "b")
	for _, to := range []state.Bucket{spent, fenced, held(until)} {
		out := r.refuses(reasons(state.OverLimit), add(to, 11)...)
		f := out.Refusals[0].Figures
		want := state.Figures{Name: "b", Unit: "USD", Limit: 100, Spent: 40, Held: 50, Remaining: 10, Amount: 11, Lifetime: true, HeldUntil: until, Generation: f.Generation}
		if *f != want {
			t.Errorf("figures %+v, want %+v", *f, want)
		}
	}
	r.give(spent, 10, "b")
	r.refuses(reasons(state.OverLimit), add(spent, 1)...)
	r.refuses(reasons(state.OverLimit), add(spent, state.MaxAmount)...)
	// A lower limit only refuses; what shrinks the use or leaves it is not refused.
	r.define("b", 10, lifetime)
	r.applies(r.shift(held(until), 30, spent, 30, "b")...)
	r.applies(r.shift(spent, 5, state.Bucket{}, 0, "b")...)
	r.refuses(reasons(state.OverLimit), add(spent, 1)...)
	r.stands("b", 75, 20, 0)
}

func TestLimitOfZeroRefusesEveryAmount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b", 0, lifetime)
	r.refuses(reasons(state.OverLimit), anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: spent, GiveAmount: 1}, "b")...)...)
}

func TestZeroAmountIsFreeAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b", 5, lifetime)
	r.give(spent, 5, "b")
	r.define("b", 2, lifetime)
	version := r.record(budget("b")).Version
	out := r.give(spent, 0, "b")
	if f := out.Figures[1]; f == nil || f.Spent != 5 || r.record(budget("b")).Version != version {
		t.Error("nothing for nothing rewrites the budget")
	}
	k := key(state.KindCounter, "c")
	r.applies(state.Spend{Key: k})
	r.applies(state.Add{Key: k})
	r.applies(state.Raise{Key: k})
	r.applies(state.Refund{Key: k, Amount: 3})
	if r.record(k) != nil {
		t.Error("a zero counter was created")
	}
}

// TestOverflowIsLoud: nothing wraps, also without a limit.
func TestOverflowIsLoud(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(state.PutBudget{Key: budget("b"), Unit: "USD", Unlimited: true, Window: lifetime})
	if out := r.give(spent, state.MaxAmount, "b"); out.Figures[1].Remaining != 0 {
		t.Errorf("%d remain", out.Figures[1].Remaining)
	}
	r.refuses(reasons(state.OverLimit), anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: fenced, GiveAmount: 1}, "b")...)...)
	r.refuses(reasons(state.OverLimit), anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: spent, GiveAmount: state.MaxAmount}, "b")...)...)
}

// TestHoldAndBudgetStopCountingInTheSameInstant, without a sweep.
func TestHoldAndBudgetStopCountingInTheSameInstant(t *testing.T) {
	t.Parallel()
	for late, reason := range []state.Reason{applied, state.Expired} {
		r := newRig(t)
		r.define("b", 10, lifetime)
		until := start + minute
		h := change(claim(hold("h")), func(o *state.Claim) { o.Expires = until })
		r.applies(append([]state.Op{h}, r.moves(state.Move{Window: state.CurrentWindow, Give: held(until), GiveAmount: 10}, "b")...)...)
		r.Now = until - 1 + int64(late)
		capture := append([]state.Op{state.Settle{Key: hold("h"), Token: state.Token{1}}},
			r.moves(state.Move{Window: 0, Take: held(until), TakeAmount: 10, Give: spent, GiveAmount: 4}, "b")...)
		if reason == applied {
			r.refuses(reasons(state.OverLimit), anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: spent, GiveAmount: 1}, "b")...)...)
			r.applies(capture...)
			r.stands("b", 4, 0, 0)
			continue
		}
		// The Move finds no bucket, and the hold's refusal says why.
		r.refuses(reasons(reason), capture...)
		slices.Reverse(capture[1:])
		r.refuses(reasons(reason), capture...)
		r.give(spent, 10, "b")
		r.stands("b", 10, 0, 0)
	}
}

// TestTakingMoreThanABucketHoldsIsCorrupt: no sequence of batches brings it about.
func TestTakingMoreThanABucketHoldsIsCorrupt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b", 100, lifetime)
	r.give(spent, 5, "b")
	r.give(fenced, 5, "b")
	r.give(held(start+hour), 5, "b")
	for _, from := range []state.Bucket{spent, fenced, held(start + hour)} {
		r.fails(state.ErrCorrupt, r.shift(from, 6, state.Bucket{}, 0, "b")...)
	}
	r.fails(state.ErrCorrupt, r.shift(held(start+minute), 1, state.Bucket{}, 0, "b")...)
}

// TestBucketIsFreedOnce: two holds share a bucket, and each gives back its own.
func TestBucketIsFreedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b", 100, lifetime)
	until := start + hour
	r.give(held(until), 10, "b")
	r.give(held(until), 30, "b")
	r.applies(r.shift(held(until), 10, state.Bucket{}, 0, "b")...)
	r.stands("b", 0, 0, 30)
	r.applies(r.shift(held(until), 20, fenced, 20, "b")...)
	r.stands("b", 0, 20, 10)
	r.applies(r.shift(fenced, 20, spent, 15, "b")...)
	r.stands("b", 15, 0, 10)
	r.applies(r.shift(held(until), 10, spent, 10, "b")...)
	r.stands("b", 25, 0, 0)
}

func TestNothingIsHeldIntoThePast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b", 100, lifetime)
	r.refuses(reasons(state.Expired), anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: held(start), GiveAmount: 1}, "b")...)...)
}

func TestHoldUntil(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(0, 1<<42).Draw(t, "now")
		ttl := rapid.Int64Range(1, state.MaxHoldTTL).Draw(t, "ttl")
		until := state.HoldUntil(now, ttl)
		if until < now+ttl || (until-now-ttl)*16 > ttl {
			t.Fatalf("a hold of %d lasts %d", ttl, until-now)
		}
	})
}

// TestListOfHoldsStaysShort, whatever is held: below 40 entries for holds of
// one length, below 500 for all lengths together.
func TestListOfHoldsStaysShort(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ttl  func(i int64) int64
		most int
	}{
		"a minute": {func(int64) int64 { return minute }, 40},
		"a week":   {func(int64) int64 { return state.MaxHoldTTL }, 40},
		"any":      {func(i int64) int64 { return 1 + (i*2_654_435_761)%state.MaxHoldTTL }, 500},
		"short ones and long ones": {func(i int64) int64 {
			return 1 + (int64(1)<<uint(i%30)+i*7)%state.MaxHoldTTL
		}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := map[int64]bool{}
			longest := 0
			for i := range int64(20_000) {
				now := start + i*c.ttl(0)/500
				open[state.HoldUntil(now, c.ttl(i))] = true
				for until := range open {
					if until <= now {
						delete(open, until)
					}
				}
				longest = max(longest, len(open))
			}
			if longest > c.most {
				t.Errorf("%d entries", longest)
			}
		})
	}
}

func TestTooManyHoldExpiriesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(state.PutBudget{Key: budget("b"), Unit: "USD", Unlimited: true, Window: lifetime})
	full := *r.budget("b")
	for i := range int64(state.MaxHeld) {
		full.Held = append(full.Held, state.Held{Until: start + hour + i, Amount: 1, Since: start})
	}
	r.Damage(budget("b"))
	r.applies(state.Replace{Key: budget("b"), Version: r.Records[budget("b")].Version, State: state.Settled, Body: full.Encode()})
	r.fails(state.ErrInvalid, anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: held(start + 1), GiveAmount: 1}, "b")...)...)
	r.give(held(start+hour), 1, "b")
}

// TestLaterWindowStartsEmpty: spent, fenced and held are those of the window.
func TestLaterWindowStartsEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	window := state.Window{Kind: state.WindowDay, Zone: "Europe/Berlin"}
	r.define("b", 30, window)
	r.give(spent, 10, "b")
	r.give(fenced, 10, "b")
	r.give(held(start+2*day), 10, "b")
	before := r.budget("b")
	_, end, err := window.Bounds(start)
	if err != nil {
		t.Fatal(err)
	}
	r.Now = end - 1
	r.stands("b", 10, 10, 10)
	r.refuses(reasons(state.OverLimit), anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: spent, GiveAmount: 1}, "b")...)...)
	r.Now = end
	r.stands("b", 0, 0, 0)
	if out := r.give(spent, 30, "b"); out.Figures[1].WindowAt != end || out.Figures[1].Spent != 30 {
		t.Errorf("%+v", out.Figures[1])
	}
	// What was frozen in the old window does nothing in the new one.
	old := r.moves(state.Move{Window: before.Start, Take: held(start + 2*day), TakeAmount: 10, Give: spent, GiveAmount: 10, IfGone: state.GoneSkip}, "b")
	r.refuses(reasons(state.WindowOver), anchored(old...)...)
	skip := change(old[0].(state.Move), func(m *state.Move) { m.IfClosed = state.GoneSkip })
	out := r.applies(anchored(skip)...)
	if !out.Skipped[1] || out.Figures[1].Spent != 30 {
		t.Errorf("%+v", out.Figures[1])
	}
	r.stands("b", 30, 0, 0)
}

// TestWindowNeverGoesBack: by a clock that stands behind the window that the
// budget is in already, as after a rebaseline.
func TestWindowNeverGoesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b", 10, state.Window{Kind: state.WindowFixed, Seconds: 3600})
	r.give(spent, 10, "b")
	at := r.budget("b").Start
	r.Now = at - 1
	r.stands("b", 10, 0, 0)
	if r.budget("b").Start != at {
		t.Error("the window goes back")
	}
	r.refuses(reasons(state.OverLimit), anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: spent, GiveAmount: 1}, "b")...)...)
}

// TestExtrasAreAllOrNone: what exceeds a hold is spent if it fits everywhere.
func TestExtrasAreAllOrNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		extra   uint64
		prepare func(r *rig)
		given   bool
	}{
		// 40 of the hold's 50 are captured: 10 are free again, and 50 were.
		"fits":                         {60, func(*rig) {}, true},
		"too much for one":             {61, func(*rig) {}, false},
		"a budget is of a new window":  {1, func(r *rig) { r.Now += hour }, false},
		"a budget is gone":             {1, func(r *rig) { r.applies(state.Remove{Key: budget("c"), Generation: r.budget("c").Generation}) }, false},
		"none fits where all is spent": {1, func(r *rig) { r.define("a", 0, lifetime) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.define("a", 1000, lifetime)
			r.define("b", 100, lifetime)
			r.define("c", 1000, state.Window{Kind: state.WindowFixed, Seconds: 3600})
			names := []string{"a", "b", "c"}
			r.give(fenced, 50, names...)
			finish := r.shift(fenced, 50, spent, 40, names...)
			for i, o := range finish[1:] {
				finish[i+1] = change(o.(state.Move), func(m *state.Move) { m.Extra, m.IfGone, m.IfClosed = c.extra, state.GoneSkip, state.GoneSkip })
			}
			c.prepare(r)
			b := &state.Batch{Scope: "s", Ops: append(finish, state.Check{Key: state.ScopeKey("s")}), Keep: true}
			out := r.run(b)
			if !out.Applied || out.Extra != c.given {
				t.Fatalf("applied %t, given on top %t", out.Applied, out.Extra)
			}
			want := uint64(40)
			if c.given {
				want += c.extra
			}
			r.stands("a", want, 0, 0)
			r.stands("b", want, 0, 0)
			if c.given && (out.Figures[1].Spent != want || out.Figures[1].Amount != c.extra) {
				t.Errorf("%+v", out.Figures[1])
			}
			kept, err := state.DecodeResult(out.Anchor.Result)
			if err != nil || kept.Extra != c.given {
				t.Errorf("kept %+v, %v", kept, err)
			}
		})
	}
}

// TestMoveOnWhatIsGone: refused or skipped, as the Move says.
func TestMoveOnWhatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b", 100, lifetime)
	r.give(spent, 10, "b")
	m := r.moves(state.Move{Window: 0, Take: spent, TakeAmount: 10}, "b")[0].(state.Move)
	r.applies(state.Remove{Key: budget("b"), Generation: m.Generation})
	skip := change(m, func(m *state.Move) { m.IfGone = state.GoneSkip })
	r.refuses(reasons(state.BudgetGone), anchored(m)...)
	if out := r.applies(anchored(skip)...); !out.Skipped[1] || out.Figures[1] != nil {
		t.Error("not skipped")
	}
	// A budget of the same name is another one.
	r.define("b", 100, lifetime)
	r.give(spent, 50, "b")
	r.refuses(reasons(state.BudgetGone), anchored2("x", m)...)
	r.applies(anchored2("y", skip)...)
	r.stands("b", 50, 0, 0)
}

func anchored2(id string, ops ...state.Op) []state.Op {
	return append([]state.Op{claim(key(state.KindSpend, id))}, ops...)
}

// TestASpendCountsInEveryAncestor: a batch that forgets one is invalid.
func TestASpendCountsInEveryAncestor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("org", 100, lifetime)
	r.define("a", 100, lifetime, "org")
	r.define("b", 100, lifetime, "org")
	r.define("a/job", 100, lifetime, "a")
	add := func(to state.Bucket, amounts map[string]uint64) []state.Op {
		ops := anchored()
		for _, name := range []string{"a/job", "a", "b", "org"} {
			if n, ok := amounts[name]; ok {
				ops = append(ops, r.moves(state.Move{Window: state.CurrentWindow, Give: to, GiveAmount: n}, name)...)
			}
		}
		return ops
	}
	for name, amounts := range map[string]map[string]uint64{
		"no ancestor":              {"a/job": 5},
		"only the parent":          {"a/job": 5, "a": 5},
		"less in the parent":       {"a/job": 5, "a": 4, "org": 5},
		"less in the grandfather":  {"a/job": 5, "a": 5, "org": 4},
		"two children, not summed": {"a": 5, "b": 5, "org": 5},
	} {
		for _, to := range []state.Bucket{spent, fenced, held(start + hour)} {
			t.Log(name, to)
			r.fails(state.ErrInvalid, add(to, amounts)...)
		}
	}
	// In the same bucket.
	other := add(spent, map[string]uint64{"a": 5})
	r.fails(state.ErrInvalid, append(other, r.moves(state.Move{Window: state.CurrentWindow, Give: fenced, GiveAmount: 5}, "org")...)...)
	// What moves within a budget moves in its parents too.
	r.applies(add(held(start+hour), map[string]uint64{"a": 5, "b": 5, "org": 10})...)
	r.fails(state.ErrInvalid, r.shift(held(start+hour), 5, spent, 5, "a")...)
	// And so does what is charged on top.
	ops := r.shift(held(start+hour), 5, state.Bucket{}, 0, "a", "org")
	ops[1] = change(ops[1].(state.Move), func(m *state.Move) { m.Extra = 1 })
	r.fails(state.ErrInvalid, ops...)
	ops[2] = change(ops[2].(state.Move), func(m *state.Move) { m.Extra = 1 })
	r.applies(ops...)
	// A void gives back wherever it likes: what stays in an ancestor counts too much, never too little.
	r.applies(r.shift(held(start+hour), 5, state.Bucket{}, 0, "b")...)
	r.stands("org", 1, 0, 5)
}

// TestTwoMovesOnOneBudget are taken one after the other.
func TestTwoMovesOnOneBudget(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b", 20, lifetime)
	until := start + hour
	r.give(held(until), 10, "b")
	fence := r.moves(state.Move{Window: 0, Take: held(until), TakeAmount: 10, Give: fenced, GiveAmount: 10}, "b")[0]
	spend := func(n uint64) state.Op {
		return r.moves(state.Move{Window: state.CurrentWindow, Give: spent, GiveAmount: n}, "b")[0]
	}
	r.refuses(reasons(state.OverLimit), anchored(fence, spend(11))...)
	r.refuses(reasons(state.OverLimit), anchored(spend(11), fence)...)
	r.applies(anchored(fence, spend(10))...)
	r.stands("b", 10, 10, 0)
}

// tree defines org → team → job, with 100 each.
func (r *rig) tree(windows ...state.Window) {
	r.Helper()
	w := []state.Window{lifetime, lifetime, lifetime}
	copy(w, windows)
	r.define("org", 100, w[0])
	r.define("team", 100, w[1], "org")
	r.define("job", 100, w[2], "team")
}

func (r *rig) remove(name string, above ...string) state.Outcome {
	r.Helper()
	o := state.Remove{Key: budget(name), Generation: r.record(budget(name)).Budget().Generation}
	for _, a := range above {
		o.Ancestors = append(o.Ancestors, state.Ancestor{Key: budget(a), Generation: r.record(budget(a)).Budget().Generation})
	}
	return r.applies(o)
}

// TestRemoveGivesOpenHoldsBack: to all ancestors, whether they were named or
// not; what is spent or fenced stays there.
func TestRemoveGivesOpenHoldsBack(t *testing.T) {
	t.Parallel()
	for _, named := range [][]string{{"team", "org"}, {"team"}, {}, {"org"}} {
		r := newRig(t)
		r.tree()
		until := start + hour
		r.give(held(until), 10, "job", "team", "org")
		r.give(held(until), 7, "team", "org")
		r.give(spent, 5, "job", "team", "org")
		r.give(fenced, 3, "job", "team", "org")
		r.remove("job", named...)
		if r.record(budget("job")) != nil {
			t.Error("it is still there")
		}
		r.stands("team", 5, 3, 7)
		r.stands("org", 5, 3, 7)
		r.recount()
	}
}

// TestRemovedParentGivesBackOnce: it gave back what it counted for its children
// too, so that removing these later gives back nothing above it.
func TestRemovedParentGivesBackOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tree()
	until := start + hour
	r.give(held(until), 10, "job", "team", "org")
	r.give(held(until), 20, "org")
	job := state.Remove{Key: budget("job"), Generation: r.budget("job").Generation, Ancestors: []state.Ancestor{
		{Key: budget("team"), Generation: r.budget("team").Generation}, {Key: budget("org"), Generation: r.budget("org").Generation},
	}}
	r.remove("team", "org")
	r.stands("org", 0, 0, 20)
	r.define("team", 100, lifetime, "org") // another one
	r.applies(job)
	r.stands("org", 0, 0, 20)
	r.stands("team", 0, 0, 0)
}

// TestRemoveLeavesWhatAnAncestorNeverCounted: holds from before its window.
func TestRemoveLeavesWhatAnAncestorNeverCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tree(lifetime, state.Window{Kind: state.WindowFixed, Seconds: 3600})
	until := start + 3*hour
	r.give(held(until), 10, "job", "team", "org")
	r.Now += hour
	r.give(held(until+1), 5, "job", "team", "org")
	r.give(held(until), 1, "job", "team", "org") // in the same bucket as the old hold
	r.stands("team", 0, 0, 6)
	r.remove("job")
	// The new bucket is given back; in the mixed one too much stays, until it ends by itself.
	r.stands("team", 0, 0, 1)
	r.stands("org", 0, 0, 0)
	r.Now = until
	r.stands("team", 0, 0, 0)
}

func TestRemoveSkipsWhatIsMissingOrAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define("b", 1, lifetime)
	gen := r.budget("b").Generation
	if out := r.applies(state.Remove{Key: budget("b"), Generation: state.Version{9}}); !out.Skipped[0] || r.record(budget("b")) == nil {
		t.Error("another generation was removed")
	}
	r.applies(state.Remove{Key: budget("b"), Generation: gen})
	if out := r.applies(state.Remove{Key: budget("b"), Generation: gen}); !out.Skipped[0] {
		t.Error("not skipped")
	}
	k := key(state.KindCounter, "c")
	r.applies(state.Add{Key: k, Amount: 5})
	r.applies(state.Remove{Key: k})
	if out := r.applies(state.Remove{Key: k}); !out.Skipped[0] || r.record(k) != nil {
		t.Error("not skipped")
	}
	r.recount()
}

// book is one hold as its owner would note it.
type book struct {
	names                 []string
	until                 int64
	taken, captured, back uint64
	isFenced, isOver      bool
	expired               bool
}

// TestWhatAHoldTookIsCapturedReturnedOrStillThere: random holds on a tree of
// budgets, settled in every way; at every step each budget has exactly what the
// notes of its holds add up to.
func TestWhatAHoldTookIsCapturedReturnedOrStillThere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		r.tree()
		paths := [][]string{{"org"}, {"team", "org"}, {"job", "team", "org"}}
		var books []*book
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			r.Now += rapid.SampledFrom([]int64{0, second, minute, 10 * minute}).Draw(rt, "step")
			for _, b := range books {
				b.expired = b.expired || !b.isOver && !b.isFenced && r.Now >= b.until
			}
			if b := r.anyBook(rt, books); b != nil {
				r.turn(rt, b)
			} else {
				b := &book{
					names: rapid.SampledFrom(paths).Draw(rt, "path"), taken: rapid.Uint64Range(1, 40).Draw(rt, "amount"),
					until: state.HoldUntil(r.Now, rapid.SampledFrom([]int64{minute, 10 * minute, hour}).Draw(rt, "ttl")),
				}
				ops := anchored2(fmt.Sprint("h", len(books)), r.moves(state.Move{Window: state.CurrentWindow, Give: held(b.until), GiveAmount: b.taken}, b.names...)...)
				if out := r.do(ops...); out.Applied {
					books = append(books, b)
				}
			}
			for _, name := range paths[2] {
				var s, f, h uint64
				for _, b := range books {
					if !slices.Contains(b.names, name) {
						continue
					}
					s += b.captured
					rest := b.taken - b.captured - b.back
					switch {
					case b.isFenced:
						f += rest
					case !b.isOver && !b.expired:
						h += rest
					}
				}
				r.stands(name, s, f, h)
			}
		}
	})
}

// anyBook draws an open hold, or nil for a new one.
func (r *rig) anyBook(rt *rapid.T, books []*book) *book {
	open := slices.DeleteFunc(slices.Clone(books), func(b *book) bool { return b.isOver || b.expired })
	if len(open) == 0 || rapid.IntRange(0, 2).Draw(rt, "new") == 0 {
		return nil
	}
	return rapid.SampledFrom(open).Draw(rt, "hold")
}

// turn does something to a hold: capture, void, fence or extend.
func (r *rig) turn(rt *rapid.T, b *book) {
	from := held(b.until)
	if b.isFenced {
		from = fenced
	}
	switch rapid.SampledFrom([]string{"capture", "capture", "void", "fence", "extend"}).Draw(rt, "turn") {
	case "capture":
		n := rapid.Uint64Range(0, b.taken).Draw(rt, "captured")
		r.applies(r.shift(from, b.taken, spent, n, b.names...)...)
		b.captured, b.back, b.isOver, b.isFenced = n, b.taken-n, true, false
	case "void":
		r.applies(r.shift(from, b.taken, state.Bucket{}, 0, b.names...)...)
		b.back, b.isOver, b.isFenced = b.taken, true, false
	case "fence":
		if !b.isFenced {
			r.applies(r.shift(from, b.taken, fenced, b.taken, b.names...)...)
			b.isFenced = true
		}
	case "extend":
		if !b.isFenced {
			until := state.HoldUntil(r.Now, hour)
			r.applies(r.shift(from, b.taken, held(until), b.taken, b.names...)...)
			b.until = until
		}
	}
}
