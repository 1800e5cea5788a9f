package budget_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/state"
)

func definition(name string) budget.Definition {
	return budget.Definition{Name: name, Unit: "cents", Limit: 10, Window: budget.Window{Kind: budget.Lifetime}}
}

func TestDefineCreatesThenChangesTheLimitAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		d := definition("acme")
		got, err := r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: d})
		r.must(err)
		if !got.Created || got.Limit != 10 || got.Remaining != 10 || !got.Lifetime {
			t.Fatalf("a new budget: %+v", got)
		}
		r.mustSpend("s", "acme", 8)
		d.Limit = 5
		got, err = r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: d})
		r.must(err)
		if got.Created || got.Limit != 5 || got.Spent != 8 || got.Remaining != 0 {
			t.Fatalf("a lower limit takes nothing back and remains at 0: %+v", got)
		}
		_, err = r.spend("s2", "acme", 1)
		r.refused(err, budget.ErrExceeded)
		d.Limit, d.Unlimited = 0, true
		_, err = r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: d})
		r.must(err)
		r.mustSpend("s2", "acme", 1_000_000)
		r.stands("acme", 1_000_008, 0)
	})
}

func TestUnitWindowAndParentAreFixedOnceDefined(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("top", 10, "")
		r.define("acme", 10, "top")
		r.define("euros", 10, "")
		for name, change := range map[string]func(*budget.Definition){
			"unit":      func(d *budget.Definition) { d.Unit = "tokens" },
			"window":    func(d *budget.Definition) { d.Window = budget.Window{Kind: budget.Fixed, Seconds: 60} },
			"parent":    func(d *budget.Definition) { d.Parent = "euros" },
			"no parent": func(d *budget.Definition) { d.Parent = "" },
		} {
			d := definition("acme")
			d.Parent = "top"
			change(&d)
			if _, err := r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: d}); !errors.Is(err, budget.ErrDiffers) {
				t.Errorf("another %s gave %v, want ErrDiffers", name, err)
			}
		}
	})
}

func TestParentMustExistWithTheSameUnitAndFewerThanEightBelow(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		d := definition("child")
		d.Parent = "nobody"
		_, err := r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: d})
		var unknown *budget.UnknownError
		if !errors.As(err, &unknown) || !slices.Equal(unknown.Budgets, []string{"nobody"}) {
			t.Fatalf("a missing parent gave %v", err)
		}
		r.define("top", 10, "")
		d.Parent, d.Unit = "top", "tokens"
		_, err = r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: d})
		r.refused(err, budget.ErrDiffers)
		if !strings.Contains(err.Error(), "cents") {
			t.Fatalf("the refusal does not say the parent's unit: %v", err)
		}
		parent := "top"
		for i := 2; i <= state.MaxBudgetDepth; i++ {
			name := "deep" + strconv.Itoa(i)
			r.define(name, 10, parent)
			parent = name
		}
		d = definition("deep9")
		d.Parent = parent
		_, err = r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: d})
		r.refused(err, state.ErrInvalid)
		r.mustSpend("s", parent, 3)
		r.stands("top", 3, 0)
	})
}

func TestDefinitionsThatNobodyCanMeanAreInvalid(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		for name, change := range map[string]func(*budget.Definition){
			"no name":               func(d *budget.Definition) { d.Name = "" },
			"empty segment":         func(d *budget.Definition) { d.Name = "a//b" },
			"final slash":           func(d *budget.Definition) { d.Name = "a/" },
			"dot":                   func(d *budget.Definition) { d.Name = "a/." },
			"dots":                  func(d *budget.Definition) { d.Name = "../a" },
			"space":                 func(d *budget.Definition) { d.Name = "a b" },
			"nine segments":         func(d *budget.Definition) { d.Name = "1/2/3/4/5/6/7/8/9" },
			"long segment":          func(d *budget.Definition) { d.Name = strings.Repeat("a", 65) },
			"no unit":               func(d *budget.Definition) { d.Unit = "" },
			"limit above 2^53−1":    func(d *budget.Definition) { d.Limit = budget.MaxAmount + 1 },
			"unlimited with limit":  func(d *budget.Definition) { d.Unlimited = true },
			"no window":             func(d *budget.Definition) { d.Window = budget.Window{} },
			"window of no length":   func(d *budget.Definition) { d.Window = budget.Window{Kind: budget.Fixed} },
			"the machine's zone":    func(d *budget.Definition) { d.Window = budget.Window{Kind: budget.Day, Zone: "Local"} },
			"no zone":               func(d *budget.Definition) { d.Window = budget.Window{Kind: budget.Day} },
			"zone that is not":      func(d *budget.Definition) { d.Window = budget.Window{Kind: budget.Month, Zone: "Mars/Olympus"} },
			"its own parent":        func(d *budget.Definition) { d.Parent = d.Name },
			"parent that cannot be": func(d *budget.Definition) { d.Parent = "a//b" },
		} {
			d := definition("acme")
			change(&d)
			if _, err := r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: d}); !errors.Is(err, state.ErrInvalid) {
				t.Errorf("%s gave %v, want ErrInvalid", name, err)
			}
		}
	})
}

func TestAScopeThatNobodyCreatedIsAnErrorNotAnEmptyOne(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		_, err := r.Get(ctx(), budget.GetParams{Scope: "elsewhere", Name: "acme"})
		r.refused(err, state.ErrNoScope)
		_, err = r.Define(ctx(), budget.DefineParams{Scope: "elsewhere", Definition: definition("acme")})
		r.refused(err, state.ErrNoScope)
	})
}

func TestScopesDoNotSeeEachOthersBudgets(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.must(r.CreateScope(ctx(), "other"))
		r.define("acme", 10, "")
		_, err := r.Get(ctx(), budget.GetParams{Scope: "other", Name: "acme"})
		r.refused(err, budget.ErrBudgetUnknown)
		_, err = r.Spend(ctx(), budget.SpendParams{Scope: "other", Owner: owner, RequestID: "s", Entries: entries("acme", 1)})
		r.refused(err, budget.ErrBudgetUnknown)
		r.stands("acme", 0, 0)
	})
}

func TestGetTellsTheWindowAndWhenItBeginsAnew(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.defineIn("hour", 10, "", budget.Window{Kind: budget.Fixed, Seconds: 3600})
		r.defineIn("day", 10, "", budget.Window{Kind: budget.Day, Zone: "Europe/Berlin"})
		b, err := r.Get(ctx(), budget.GetParams{Scope: scope, Name: "hour"})
		r.must(err)
		start := r.Clock.Now().Truncate(time.Hour)
		if b.WindowAt != start.UnixMilli() || b.ResetsAt != start.Add(time.Hour).UnixMilli() || b.Lifetime {
			t.Fatalf("the hour's window: %+v", b)
		}
		b, err = r.Get(ctx(), budget.GetParams{Scope: scope, Name: "day"})
		r.must(err)
		midnight := time.Date(2030, 1, 2, 0, 0, 0, 0, time.FixedZone("CET", 3600))
		if b.WindowAt != midnight.UnixMilli() || b.ResetsAt != midnight.AddDate(0, 0, 1).UnixMilli() || b.Window.Zone != "Europe/Berlin" {
			t.Fatalf("the day's window: %+v", b)
		}
	})
}

func list(t *testing.T, r *rig, prefix string, limit int) []string {
	t.Helper()
	var names []string
	for cursor := ""; ; {
		page, err := r.List(ctx(), budget.ListParams{Scope: scope, Prefix: prefix, Cursor: cursor, Limit: limit})
		r.must(err)
		if len(page.Items) > limit {
			t.Fatalf("%d items, the limit was %d", len(page.Items), limit)
		}
		for _, b := range page.Items {
			names = append(names, b.Name)
		}
		if cursor = page.Next; cursor == "" {
			return names
		}
	}
}

func TestListGoesByNameAndItsPrefixMatchesWholeSegments(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		for _, name := range []string{"acme", "acme/s1", "acme/s1/x", "acme/s1-b", "acme/s10", "acmex", "b"} {
			r.define(name, 10, "")
		}
		for prefix, want := range map[string][]string{
			"":         {"acme", "acme/s1", "acme/s1-b", "acme/s1/x", "acme/s10", "acmex", "b"},
			"acme":     {"acme", "acme/s1", "acme/s1-b", "acme/s1/x", "acme/s10"},
			"acme/":    {"acme", "acme/s1", "acme/s1-b", "acme/s1/x", "acme/s10"},
			"acme/s1":  {"acme/s1", "acme/s1/x"},
			"acme/s1/": {"acme/s1", "acme/s1/x"},
			"acme/s":   nil,
			"c":        nil,
		} {
			for _, limit := range []int{1, 2, 3, 500} {
				if got := list(t, r, prefix, limit); !slices.Equal(got, want) {
					t.Errorf("prefix %q, %d a page: %v, want %v", prefix, limit, got, want)
				}
			}
			for _, name := range list(t, r, "", 500) {
				if budget.Within(prefix, name) != slices.Contains(want, name) {
					t.Errorf("Within(%q, %q) differs from the list", prefix, name)
				}
			}
		}
	})
}

func TestADamagedBudgetIsAnErrorNotAZero(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("acme", 10, "")
		r.define("b", 10, "")
		r.mustSpend("s", "acme", 4)
		key := state.Key{Scope: scope, Kind: state.KindBudget, ID: "acme"}
		r.Damage(key)
		_, err := r.Get(ctx(), budget.GetParams{Scope: scope, Name: "acme"})
		r.refused(err, state.ErrCorrupt)
		_, err = r.spend("s2", "acme", 1)
		r.refused(err, state.ErrCorrupt)
		_, err = r.spend("s3", "b", 1, "acme", 1)
		r.refused(err, state.ErrCorrupt)
		_, err = r.hold("h", time.Minute, "acme", 1)
		r.refused(err, state.ErrCorrupt)
		_, err = r.List(ctx(), budget.ListParams{Scope: scope})
		r.refused(err, state.ErrCorrupt)
		_, err = r.Budgets.Close(ctx(), budget.CloseParams{Scope: scope, Prefix: "acme"})
		r.refused(err, state.ErrCorrupt)
		r.refused(r.refund(budgetSpendID("s")), state.ErrCorrupt)
		r.stands("b", 0, 0)
	})
}
