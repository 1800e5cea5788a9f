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
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/state"
)

func budgetSpendID(request string) string { return ids.Spend(owner, request) }

func TestSpendReachesTheExactLimitAndNotOneMore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("acme", 10, "")
		r.mustSpend("a", "acme", 9)
		s := r.mustSpend("b", "acme", 1)
		if s.Remaining != 0 || !s.Limited || s.ID != budgetSpendID("b") {
			t.Fatalf("the last one: %+v", s)
		}
		_, err := r.spend("c", "acme", 1)
		r.refused(err, budget.ErrExceeded)
		r.stands("acme", 10, 0)
	})
}

func TestZeroIsFreeAtALimitOfZero(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("none", 0, "")
		r.mustSpend("zero", "none", 0)
		r.must(r.refund(budgetSpendID("zero")))
		h := r.mustHold("zero", time.Minute, "none", 0)
		_, err := r.capture(h.ID, "none", 0)
		r.must(err)
		_, err = r.spend("one", "none", 1)
		r.refused(err, budget.ErrExceeded)
		_, err = r.hold("one", time.Minute, "none", 1)
		r.refused(err, budget.ErrExceeded)
		_, err = r.spend("unknown", "nobody", 0)
		r.refused(err, budget.ErrBudgetUnknown)
		r.stands("none", 0, 0)
	})
}

func TestSpendCountsInEveryAncestorAndSharedOnesOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("team", 50, "org")
		r.define("a", 40, "team")
		r.define("b", 40, "team")
		s := r.mustSpend("s", "a", 20, "b", 15)
		var names []string
		for _, f := range s.Budgets {
			names = append(names, f.Name+" "+strconv.FormatUint(f.Spent, 10)+" +"+strconv.FormatUint(f.Amount, 10))
		}
		if want := []string{"a 20 +20", "b 15 +15", "team 35 +35", "org 35 +35"}; !slices.Equal(names, want) {
			t.Fatalf("figures %v, want %v", names, want)
		}
		if s.Remaining != 15 {
			t.Fatalf("the smallest remaining is %d, want team's 15", s.Remaining)
		}
		// Each fits its own budget; together they do not fit the parent's 15.
		_, err := r.spend("s2", "a", 10, "b", 6)
		var over *budget.ExceededError
		if !errors.As(err, &over) || len(over.Refused) != 1 || over.Refused[0].Name != "team" || over.Refused[0].Amount != 16 {
			t.Fatalf("the sum above the parent's limit gave %v", err)
		}
		r.stands("a", 20, 0)
		r.stands("team", 35, 0)
	})
}

func TestSpendOfABudgetAndItsOwnParentIsSummedThere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 10, "")
		r.define("a", 10, "org")
		r.mustSpend("s", "org", 3, "a", 4)
		r.stands("org", 7, 0)
		r.stands("a", 4, 0)
		_, err := r.spend("s2", "org", 2, "a", 2)
		r.refused(err, budget.ErrExceeded)
		r.must(r.refund(budgetSpendID("s")))
		r.stands("org", 0, 0)
		r.stands("a", 0, 0)
	})
}

func TestUnlimitedBudgetsCountAndAreLeftOutOfTheSmallestRemaining(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		_, err := r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: budget.Definition{
			Name: "all", Unit: "cents", Unlimited: true, Window: budget.Window{Kind: budget.Lifetime},
		}})
		r.must(err)
		r.define("some", 50, "all")
		if s := r.mustSpend("a", "some", 20); s.Remaining != 30 || !s.Limited {
			t.Fatalf("%+v", s)
		}
		if s := r.mustSpend("b", "all", 1000); s.Limited {
			t.Fatalf("all of them are unlimited: %+v", s)
		}
		r.stands("all", 1020, 0)
		// What a stored integer can carry is the last limit.
		_, err = r.spend("c", "all", budget.MaxAmount)
		r.refused(err, budget.ErrExceeded)
	})
}

func TestARefusalListsEveryBudgetInTheWayWithItsFigures(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.defineIn("hour", 10, "", budget.Window{Kind: budget.Fixed, Seconds: 3600})
		r.defineIn("day", 20, "", budget.Window{Kind: budget.Day, Zone: "UTC"})
		r.define("free", 100, "")
		r.mustSpend("s", "hour", 6, "day", 12, "free", 1)
		first := r.mustHold("h", time.Minute, "day", 2)
		r.mustHold("h2", time.Hour, "day", 1)
		_, err := r.spend("s2", "hour", 5, "day", 8, "free", 5)
		var over *budget.ExceededError
		if !errors.As(err, &over) || len(over.Refused) != 2 {
			t.Fatalf("got %v", err)
		}
		day, hour := over.Refused[0], over.Refused[1]
		if day.Name != "day" || day.Unit != "cents" || day.Limit != 20 || day.Spent != 12 || day.Held != 3 || day.Remaining != 5 || day.Amount != 8 ||
			day.HeldUntil != first.ExpiresAt.UnixMilli() || day.Lifetime {
			t.Errorf("day: %+v", day)
		}
		if hour.Name != "hour" || hour.Spent != 6 || hour.Remaining != 4 || hour.Amount != 5 || hour.HeldUntil != 0 {
			t.Errorf("hour: %+v", hour)
		}
		reset := r.Clock.Now().Truncate(time.Hour).Add(time.Hour)
		if hour.ResetsAt != reset.UnixMilli() {
			t.Errorf("the hour begins anew at %v, want %v", time.UnixMilli(hour.ResetsAt).UTC(), reset)
		}
		r.stands("free", 1, 0)
		r.stands("hour", 6, 0)
	})
}

func TestWhenARefusedCallMayFit(t *testing.T) {
	t.Parallel()
	fixed := budget.Figures{Name: "w", Limit: 10, Spent: 8, Remaining: 2, Amount: 3, ResetsAt: 5000}
	held := budget.Figures{Name: "h", Limit: 10, Spent: 2, Held: 8, Amount: 3, ResetsAt: 9000, HeldUntil: 4000}
	later := held
	later.HeldUntil = 4500
	never := budget.Figures{Name: "l", Limit: 10, Spent: 8, Amount: 3, Lifetime: true}
	large := budget.Figures{Name: "x", Limit: 10, Amount: 11, ResetsAt: 5000}
	fenced := held
	fenced.HeldUntil = 0
	for name, c := range map[string]struct {
		refused []budget.Figures
		at      int64
	}{
		"the window's end":                     {[]budget.Figures{fixed}, 5000},
		"the first hold's end":                 {[]budget.Figures{held}, 4000},
		"the later of two budgets":             {[]budget.Figures{held, later}, 4500},
		"the latest end of a window":           {[]budget.Figures{fixed, held}, 5000},
		"fenced amounts stay for the window":   {[]budget.Figures{fenced}, 9000},
		"never in a lifetime":                  {[]budget.Figures{fixed, never}, 0},
		"never above the limit of an empty on": {[]budget.Figures{large}, 0},
	} {
		at, ok := (&budget.ExceededError{Refused: c.refused}).RetryAt()
		if ok != (c.at != 0) || ok && at.UnixMilli() != c.at {
			t.Errorf("%s: %v, %v; want %d", name, at, ok, c.at)
		}
	}
}

func TestARefusedSpendLeavesNothingAndItsRequestIDFree(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		r.define("b", 1, "")
		_, err := r.spend("s", "a", 5, "b", 2)
		r.refused(err, budget.ErrExceeded)
		r.stands("a", 0, 0)
		r.refused(r.refund(budgetSpendID("s")), budget.ErrSpendUnknown)
		if s := r.mustSpend("s", "a", 7); s.Repeated {
			t.Fatal("a refused request was remembered")
		}
	})
}

func TestTheSameRequestIsAnsweredWithTheFirstAnswerAndTakesNothingMore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		r.define("b", 10, "")
		first := r.mustSpend("s", "a", 5, "b", 1)
		r.mustSpend("between", "a", 2)
		for range 2 {
			again := r.mustSpend("s", "b", 1, "a", 5) // in whichever order
			if !again.Repeated || again.ID != first.ID || !slices.Equal(again.Budgets, first.Budgets) || again.Remaining != first.Remaining {
				t.Fatalf("got %+v, want the first answer %+v", again, first)
			}
			r.reopen()
		}
		r.stands("a", 7, 0)
		for _, other := range [][]any{{"a", 5}, {"a", 6, "b", 1}, {"a", 5, "c", 1}} {
			_, err := r.spend("s", other...)
			r.refused(err, budget.ErrRequestIDReused)
		}
		r.stands("a", 7, 0)
	})
}

func TestTheSameTokenIsRecognisedWhileItsFirstSendIsUnderWay(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 100, "")
		var fresh atomic.Int32
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				s, err := r.Spend(ctx(), budget.SpendParams{Scope: scope, Owner: owner, RequestID: "s", Entries: entries("a", 5), Token: state.Token{1}})
				if err != nil {
					t.Error(err)
				} else if !s.Repeated {
					fresh.Add(1)
				}
			})
		}
		wg.Wait()
		if fresh.Load() != 1 {
			t.Fatalf("%d sends were taken for the first", fresh.Load())
		}
		r.stands("a", 5, 0)
	})
}

func TestARequestIDIsItsOwnersAndFreeAfterADay(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		r.mustSpend("s", "a", 1)
		_, err := r.Spend(ctx(), budget.SpendParams{Scope: scope, Owner: "bob", RequestID: "s", Entries: entries("a", 2)})
		r.must(err)
		r.stands("a", 3, 0)
		r.Clock.Advance(24*time.Hour - time.Millisecond)
		if s := r.mustSpend("s", "a", 1); !s.Repeated {
			t.Fatal("forgotten within a day")
		}
		r.Clock.Advance(time.Millisecond)
		r.refused(r.refund(budgetSpendID("s")), budget.ErrSpendExpired)
		if s := r.mustSpend("s", "a", 1); s.Repeated {
			t.Fatal("remembered for more than a day")
		}
		r.stands("a", 4, 0)
	})
}

func TestRefundGivesBackExactlyWhatItsSpendTookOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("a", 40, "org")
		r.define("b", 40, "org")
		s := r.mustSpend("s", "a", 20, "b", 10)
		r.mustSpend("other", "a", 5)
		got, err := r.Refund(ctx(), budget.RefundParams{Scope: scope, Owner: owner, SpendID: s.ID})
		r.must(err)
		if got.Repeated || len(got.Budgets) != 3 {
			t.Fatalf("%+v", got)
		}
		r.stands("org", 5, 0)
		r.stands("a", 5, 0)
		got, err = r.Refund(ctx(), budget.RefundParams{Scope: scope, Owner: owner, SpendID: s.ID})
		r.must(err)
		if !got.Repeated {
			t.Fatal("the second refund is not said to be one")
		}
		r.stands("org", 5, 0)
		_, err = r.spend("s", "a", 20, "b", 10)
		r.refused(err, budget.ErrRefunded)
		_, err = r.spend("s", "a", 1)
		r.refused(err, budget.ErrRequestIDReused)
		r.stands("org", 5, 0)
	})
}

func TestOfManyRefundsAtOnceOneTakesEffect(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		second := budget.New(r.Second(), budget.Options{})
		r.define("a", 100, "")
		r.mustSpend("base", "a", 50)
		s := r.mustSpend("s", "a", 5)
		var first atomic.Int32
		var wg sync.WaitGroup
		for i := range 16 {
			on := []*budget.Budgets{r.Budgets, second}[i%2]
			wg.Go(func() {
				got, err := on.Refund(ctx(), budget.RefundParams{Scope: scope, Owner: owner, SpendID: s.ID})
				if err != nil {
					t.Error(err)
				} else if !got.Repeated {
					first.Add(1)
				}
			})
		}
		wg.Wait()
		if first.Load() != 1 {
			t.Fatalf("%d refunds took effect", first.Load())
		}
		r.stands("a", 50, 0)
	})
}

func TestARefundOfAnotherOwnersOrNoSpendIsUnknown(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		s := r.mustSpend("s", "a", 5)
		for _, p := range []budget.RefundParams{
			{Scope: scope, Owner: "mallory", SpendID: s.ID},
			{Scope: scope, Owner: owner, SpendID: budgetSpendID("never")},
			{Scope: scope, Owner: owner, SpendID: ""},
			{Scope: scope, Owner: owner, SpendID: "x"},
		} {
			_, err := r.Refund(ctx(), p)
			r.refused(err, budget.ErrSpendUnknown)
		}
		r.stands("a", 5, 0)
	})
}

func TestALateRefundLeavesTheNextWindowAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("total", 100, "")
		r.defineIn("hour", 10, "total", budget.Window{Kind: budget.Fixed, Seconds: 3600})
		s := r.mustSpend("s", "hour", 10)
		r.Clock.Advance(time.Hour)
		r.mustSpend("t", "hour", 7)
		r.stands("total", 17, 0)
		r.must(r.refund(s.ID))
		r.stands("hour", 7, 0)
		r.stands("total", 7, 0)
	})
}

func TestARefundDoesNotReviveAClosedBudget(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 100, "")
		r.define("a", 40, "org")
		s := r.mustSpend("s", "a", 20)
		s2 := r.mustSpend("s2", "a", 5)
		r.close("a")
		r.must(r.refund(s.ID))
		r.stands("org", 5, 0)
		_, err := r.Get(ctx(), budget.GetParams{Scope: scope, Name: "a"})
		r.refused(err, budget.ErrBudgetUnknown)
		// Defined anew it is another budget, which the old spend never touched.
		r.define("a", 40, "org")
		r.mustSpend("s3", "a", 1)
		r.must(r.refund(s2.ID))
		r.stands("a", 1, 0)
		r.stands("org", 1, 0)
	})
}

func TestABudgetThatNobodyDefinedIsNamed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		_, err := r.spend("s", "nobody/2", 1, "a", 1, "nobody/1", 1)
		var unknown *budget.UnknownError
		if !errors.As(err, &unknown) || !slices.Equal(unknown.Budgets, []string{"nobody/1", "nobody/2"}) {
			t.Fatalf("got %v", err)
		}
		_, err = r.Get(ctx(), budget.GetParams{Scope: scope, Name: "nobody"})
		r.refused(err, budget.ErrBudgetUnknown)
		r.stands("a", 0, 0)
	})
}

func TestABudgetDefinedAnewElsewhereIsFoundByEveryStore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		second := &rig{Fixture: r.Fixture, Budgets: budget.New(r.Second(), budget.Options{}), t: t}
		r.define("org", 100, "")
		r.define("a", 10, "org")
		second.mustSpend("s", "a", 3) // second remembers the ancestry
		r.close("a")
		_, err := second.spend("t", "a", 1)
		r.refused(err, budget.ErrBudgetUnknown)
		r.define("a", 10, "")
		second.mustSpend("u", "a", 10)
		r.stands("a", 10, 0)
		r.stands("org", 3, 0)
		r.close("a")
		r.define("a", 10, "org")
		second.mustSpend("v", "a", 10)
		r.stands("org", 13, 0)
	})
}

func TestABudgetWhoseParentWasClosedGrantsNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("org", 10, "")
		r.define("a", 10, "org")
		r.mustSpend("s", "a", 1)
		r.close("org")
		for range 2 {
			_, err := r.spend("t", "a", 1)
			var unknown *budget.UnknownError
			if !errors.As(err, &unknown) || !slices.Contains(unknown.Budgets, "org") {
				t.Fatalf("got %v", err)
			}
			// Another budget of the parent's name is not its parent.
			r.define("org", 1000, "")
		}
		r.stands("a", 1, 0)
		r.stands("org", 0, 0)
	})
}

func TestEntriesThatNobodyCanMeanAreInvalid(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		many := make([]budget.Entry, budget.MaxEntries+1)
		for i := range many {
			many[i] = budget.Entry{Budget: "b" + strconv.Itoa(i)}
		}
		for name, list := range map[string][]budget.Entry{
			"none":                {},
			"too many":            many,
			"named twice":         entries("a", 1, "a", 2),
			"above 2^53−1":        {{Budget: "a", Amount: budget.MaxAmount + 1}},
			"a name that is none": {{Budget: "a//b", Amount: 1}},
		} {
			_, err := r.Spend(ctx(), budget.SpendParams{Scope: scope, Owner: owner, RequestID: "s", Entries: list})
			if !errors.Is(err, budget.ErrInvalid) || !errors.Is(err, state.ErrInvalid) {
				t.Errorf("spend, %s: %v", name, err)
			}
			_, err = r.Hold(ctx(), budget.HoldParams{Scope: scope, Owner: owner, RequestID: "s", Entries: list, TTL: time.Minute})
			if !errors.Is(err, budget.ErrInvalid) {
				t.Errorf("hold, %s: %v", name, err)
			}
		}
		for _, id := range []string{"", "a\x00b", "\xff", string(make([]byte, 257))} {
			_, err := r.spend(id, "a", 1)
			r.refused(err, budget.ErrInvalid)
			_, err = r.Spend(ctx(), budget.SpendParams{Scope: scope, Owner: id, RequestID: "s", Entries: entries("a", 1)})
			r.refused(err, budget.ErrInvalid)
		}
		r.stands("a", 0, 0)
	})
}

func TestASumAboveTheCeilingInASharedAncestorIsLoud(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		_, err := r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: budget.Definition{
			Name: "org", Unit: "cents", Unlimited: true, Window: budget.Window{Kind: budget.Lifetime},
		}})
		r.must(err)
		r.define("a", budget.MaxAmount, "org")
		r.define("b", budget.MaxAmount, "org")
		_, err = r.spend("s", "a", budget.MaxAmount, "b", 1)
		r.refused(err, budget.ErrInvalid)
		r.mustSpend("s", "a", budget.MaxAmount)
		_, err = r.spend("t", "b", 1)
		r.refused(err, budget.ErrExceeded)
		r.stands("org", budget.MaxAmount, 0)
		if _, err := budget.Sum(entries("a", budget.MaxAmount), entries("a", 1)); !errors.Is(err, budget.ErrInvalid) {
			t.Fatalf("Sum gave %v", err)
		}
		if sum, err := budget.Sum(entries("a", 1, "b", 2), entries("b", 3, "c", 4)); err != nil || !slices.Equal(sum, entries("a", 1, "b", 5, "c", 4)) {
			t.Fatalf("Sum gave %v, %v", sum, err)
		}
	})
}

func TestMoreThanFortyBudgetsWithAncestorsAreInvalid(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		var list []any
		for chain := range 6 {
			parent := ""
			for depth := range 7 {
				name := "c" + strconv.Itoa(chain) + "/d" + strconv.Itoa(depth)
				r.define(name, 10, parent)
				parent = name
			}
			list = append(list, parent, 1)
		}
		_, err := r.spend("s", list...)
		r.refused(err, budget.ErrInvalid)
		s := r.mustSpend("s", list[:10]...)
		if len(s.Budgets) != 35 {
			t.Fatalf("%d budgets were spent from", len(s.Budgets))
		}
	})
}

func TestSpendAndHoldAreRefusedInQuarantineWhileSettlingGoesOn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 100, "")
		s := r.mustSpend("s", "a", 5)
		open, other, third := r.mustHold("h", time.Minute, "a", 10), r.mustHold("h2", time.Minute, "a", 10), r.mustHold("h3", time.Minute, "a", 1)
		r.Quarantine()
		_, err := r.spend("t", "a", 1)
		r.refused(err, state.ErrRecovering)
		_, err = r.hold("t", time.Minute, "a", 1)
		r.refused(err, state.ErrRecovering)
		// Before what is wrong with it is looked at.
		_, err = r.spend("t", "nobody", 1)
		r.refused(err, state.ErrRecovering)
		_, err = r.spend("t", "a", 1000)
		r.refused(err, state.ErrRecovering)
		if again := r.mustSpend("s", "a", 5); !again.Repeated {
			t.Fatal("a replay begins nothing new")
		}
		if again := r.mustHold("h", time.Minute, "a", 10); !again.Repeated {
			t.Fatal("a replay begins nothing new")
		}
		r.must(r.refund(s.ID))
		_, err = r.capture(open.ID, "a", 7)
		r.must(err)
		r.must(r.void(other.ID))
		_, err = r.extend(third.ID, time.Hour)
		r.must(err)
		r.stands("a", 7, 1)
		if r.close("a") != 1 {
			t.Fatal("close does not work in quarantine")
		}
	})
}

func TestSpendsBeyondTheQuotaAreRefusedAndTakeNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 100, "")
		r.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 3, 2 })
		r.mustSpend("1", "a", 1)
		r.mustSpend("2", "a", 1)
		_, err := r.spend("3", "a", 1)
		r.refused(err, state.ErrOwnerFull)
		_, err = r.spend("3", "nobody", 1)
		r.refused(err, budget.ErrBudgetUnknown)
		_, err = r.Spend(ctx(), budget.SpendParams{Scope: scope, Owner: "bob", RequestID: "1", Entries: entries("a", 1)})
		r.must(err)
		_, err = r.Spend(ctx(), budget.SpendParams{Scope: scope, Owner: "bob", RequestID: "2", Entries: entries("a", 1000)})
		r.refused(err, state.ErrFull) // which comes before what does not fit
		r.stands("a", 3, 0)
		if again := r.mustSpend("1", "a", 1); !again.Repeated {
			t.Fatal("the replay of a grant needs no room")
		}
	})
}

// TestSixtyFourSpendersGrantExactlyTheLimit is 64 × 1,000 spends of 1 on a limit of 10,000.
func TestSixtyFourSpendersGrantExactlyTheLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		const spenders, each, limit = 64, 1000, 10_000
		stores := []*budget.Budgets{r.Budgets, budget.New(r.Second(), budget.Options{})}
		r.define("hot", limit, "")
		var granted atomic.Int64
		var wg sync.WaitGroup
		for i := range spenders {
			wg.Go(func() {
				for j := range each {
					_, err := stores[i%2].Spend(ctx(), budget.SpendParams{
						Scope: scope, Owner: owner, RequestID: strconv.Itoa(i*each + j), Entries: entries("hot", 1),
					})
					switch {
					case err == nil:
						granted.Add(1)
					case !errors.Is(err, budget.ErrExceeded):
						t.Errorf("spend: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		if granted.Load() != limit {
			t.Fatalf("%d spends were granted", granted.Load())
		}
		r.stands("hot", limit, 0)
	})
}

func TestMixedAmountsNeverGoOver(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		stores := []*budget.Budgets{r.Budgets, budget.New(r.Second(), budget.Options{})}
		r.define("org", 1000, "")
		r.define("a", 700, "org")
		r.define("b", 700, "org")
		var spent [2]atomic.Uint64
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				for j := range 40 {
					amount, which := uint64(1+(i*7+j*3)%13), (i+j)%2
					s, err := stores[i%2].Spend(ctx(), budget.SpendParams{
						Scope: scope, Owner: owner, RequestID: strconv.Itoa(i*40 + j), Entries: []budget.Entry{{Budget: []string{"a", "b"}[which], Amount: amount}},
					})
					switch {
					case err == nil:
						spent[which].Add(amount)
						for _, f := range s.Budgets {
							if f.Spent > f.Limit {
								t.Errorf("granted above the limit: %+v", f)
							}
						}
					case !errors.Is(err, budget.ErrExceeded):
						t.Errorf("spend: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		r.stands("a", spent[0].Load(), 0)
		r.stands("b", spent[1].Load(), 0)
		r.stands("org", spent[0].Load()+spent[1].Load(), 0)
		// Every amount up to 13 was refused in the end: less than that is left.
		if left := 1000 - spent[0].Load() - spent[1].Load(); left > 12 {
			t.Fatalf("%d were left over", left)
		}
	})
}

func TestSpendsOutliveAReopen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("a", 10, "")
		s := r.mustSpend("s", "a", 4)
		r.reopen()
		r.stands("a", 4, 0)
		r.must(r.refund(s.ID))
		r.reopen()
		r.stands("a", 0, 0)
		r.refused(errOf(r.spend("s", "a", 4)), budget.ErrRefunded)
	})
}

func errOf[T any](_ T, err error) error { return err }

func TestAmountsAreNeverNegativeInTheStore(t *testing.T) {
	t.Parallel()
	// A record in which a bucket holds less than is taken, sealed by somebody who has the key: an error, never a wrap.
	f := storetest.Memory(t)
	r := newRig(t, f)
	r.define("a", 10, "")
	s := r.mustSpend("s", "a", 4)
	r.close("a")
	r.define("a", 10, "")
	key := state.Key{Scope: scope, Kind: state.KindBudget, ID: "a"}
	recs, err := r.Read(ctx(), key)
	r.must(err)
	generation := recs[0].Budget().Generation
	out, err := r.Do(ctx(), &state.Batch{Scope: scope, Ops: []state.Op{
		state.Settle{Key: state.Key{Scope: scope, Kind: state.KindSpend, ID: s.ID}, Token: spendToken(r, s.ID)},
		state.Move{Key: key, Generation: generation, Take: state.Bucket{Kind: state.BucketSpent}, TakeAmount: 1},
	}})
	if !errors.Is(err, state.ErrCorrupt) {
		t.Fatalf("taking more than a bucket holds gave %+v, %v", out, err)
	}
	r.stands("a", 0, 0)
}

func spendToken(r *rig, id string) state.Token {
	recs, err := r.Read(ctx(), state.Key{Scope: scope, Kind: state.KindSpend, ID: id})
	r.must(err)
	return recs[0].Token
}

// TestNoBudgetIsUnknownByWhatIsRemembered closes and defines a line of budgets anew on one store, while the other remembers
// a part of the old one.
func TestNoBudgetIsUnknownByWhatIsRemembered(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		second := &rig{Fixture: r.Fixture, Budgets: budget.New(r.Second(), budget.Options{}), t: t}
		r.define("org", 10, "")
		r.define("org/a", 10, "org")
		second.mustSpend("s", "org/a", 1)
		r.close("org")
		r.define("org", 10, "")
		second.mustSpend("t", "org", 1) // remembers the new org and the old org/a
		r.define("org/a", 10, "org")
		second.mustSpend("u", "org/a", 1)
		r.stands("org", 2, 0)
	})
}
