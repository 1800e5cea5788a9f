package statetest

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/state"
)

// tree is the budgets of a random program, each with its parent.
var tree = []struct{ name, parent string }{
	{"org", ""}, {"org/team", "org"}, {"org/team/job", "org/team"}, {"other", "org"}, {"alone", ""},
}

// missing reports whether a budget of the tree is not defined.
func (d *drawer) missing() bool {
	for _, b := range tree {
		if d.m.Facts[d.m.budgetKey(b.name)] == nil {
			return true
		}
	}
	return false
}

func (d *drawer) budgetName() (name, parent string) {
	b := rapid.SampledFrom(tree).Draw(d.T, "budget")
	return b.name, b.parent
}

// budgets draws a definition or a removal.
func (d *drawer) budgets(b *state.Batch) {
	name, parent := d.budgetName()
	for _, b := range tree {
		if d.m.Facts[d.m.budgetKey(b.name)] == nil && !d.one("in disorder", 6) {
			name, parent = b.name, b.parent
			break
		}
	}
	f := d.m.Facts[d.m.budgetKey(name)]
	if f != nil && d.one("remove", 3) {
		o := state.Remove{Key: d.m.budgetKey(name), Generation: f.Budget.Gen}
		if d.one("wrong generation", 6) {
			o.Generation = state.Version{9}
		}
		for _, a := range d.chain(name)[1:] {
			o.Ancestors = append(o.Ancestors, state.Ancestor{Key: a.key, Generation: a.gen})
		}
		b.Ops = append(b.Ops, o)
		return
	}
	o := state.PutBudget{
		Key: d.m.budgetKey(name), Unit: "USD", Limit: uint64(d.pick("limit", 100, 50, 1000, 10, 0)), Parent: parent,
		Window: rapid.SampledFrom([]state.Window{
			{Kind: state.WindowLifetime}, {Kind: state.WindowLifetime}, {Kind: state.WindowFixed, Seconds: 3600}, {Kind: state.WindowDay, Zone: "Europe/Berlin"},
		}).Draw(d.T, "window"),
	}
	switch {
	case d.one("unlimited", 8):
		o.Unlimited, o.Limit = true, 0
	case d.one("other unit", 20):
		o.Unit = "EUR"
	case d.one("other parent", 20):
		o.Parent = "alone"
	}
	if f != nil && !d.one("redefine", 4) {
		o.Unit, o.Window, o.Parent = f.Budget.Unit, f.Budget.Window, f.Budget.Parent
	}
	if o.Parent == name {
		o.Parent = ""
	}
	b.Ops = append(b.Ops, o)
}

// link is one budget on the way up.
type link struct {
	key    state.Key
	gen    state.Version
	budget Budget
}

// chain gives a budget and its ancestors as somebody reads them now.
func (d *drawer) chain(name string) (links []link) {
	for name != "" {
		b, _, ok := d.m.BudgetAt(name, d.now)
		if !ok {
			return append(links, link{key: d.m.budgetKey(name), gen: state.Version{9}})
		}
		links = append(links, link{d.m.budgetKey(name), b.Gen, b})
		name = b.Parent
	}
	return links
}

// reserve draws a spend or a hold on one or two budgets.
func (d *drawer) reserve(b *state.Batch) {
	name, _ := d.budgetName()
	other, _ := d.budgetName()
	names := []string{name}
	if other != name && d.one("two budgets", 3) {
		names = append(names, other)
	}
	give, claim := state.Bucket{Kind: state.BucketSpent}, d.fresh(state.KindSpend)
	if d.one("hold", 2) {
		until := state.HoldUntil(d.now, d.pick("ttl", hour, 10*second, 2*day, second))
		give, claim = state.Bucket{Kind: state.BucketHeld, Until: until}, d.fresh(state.KindHold)
		claim.State, claim.Expires = state.Pending, until
	}
	b.Ops = append(b.Ops, claim)
	d.give(b, names, give, d.amount())
}

// fresh draws a claim that mostly meets nothing in its way.
func (d *drawer) fresh(kind state.Kind) state.Claim {
	c := d.claim(d.key(kind))
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		if key := (state.Key{Scope: d.m.Name, Kind: kind, ID: id}); d.m.Facts[key] == nil && !d.one("not free", 5) {
			c.Key = key
			break
		}
	}
	if c.Expires != 0 && c.Expires <= d.now {
		c.Expires = 0
	}
	return c
}

func (d *drawer) amount() uint64 {
	return uint64(d.pick("amount", 10, 7, 1, 30, 0, state.MaxAmount))
}

// give adds an amount to budgets and to all above them, summed where they meet.
func (d *drawer) give(b *state.Batch, names []string, to state.Bucket, amount uint64) {
	for _, name := range names {
		for _, l := range d.chain(name) {
			i := slices.IndexFunc(b.Ops, func(op state.Op) bool {
				m, ok := op.(state.Move)
				return ok && m.Key == l.key && m.Give == to && m.Take.Kind == state.BucketNone
			})
			if i >= 0 {
				m := b.Ops[i].(state.Move)
				m.GiveAmount += amount
				b.Ops[i] = m
				continue
			}
			m := state.Move{Key: l.key, Generation: l.gen, Window: state.CurrentWindow, Give: to, GiveAmount: amount}
			if d.one("frozen", 6) {
				m.Window = l.budget.Start
			}
			b.Ops = append(b.Ops, m)
		}
		if d.one("forget the parents", 15) {
			b.Ops = b.Ops[:min(len(b.Ops), 2)]
		}
	}
}

// finish draws what ends a hold or a spend: some of what is in a bucket of a
// budget goes elsewhere, in it and in all above it.
func (d *drawer) finish(b *state.Batch) {
	name, _ := d.budgetName()
	for _, b := range tree {
		if at, _, ok := d.m.BudgetAt(b.name, d.now); ok && at.used() > 0 && d.one("in use", 2) {
			name = b.name
		}
	}
	links := d.chain(name)
	key, ok := d.pending(state.KindHold, state.KindSpend, state.KindOperation)
	switch {
	case !ok || d.one("claim", 4):
		b.Ops = append(b.Ops, d.fresh(state.KindHold))
	case d.one("settle", 2):
		s := d.settle(key)
		s.IfVersion, s.IfLeaseOver = state.Version{}, false
		b.Ops = append(b.Ops, s)
	default:
		b.Ops = append(b.Ops, state.Update{Key: key, Token: d.tokenOf(key), NewToken: d.newToken(), Body: []byte("fenced")})
	}
	from, amount := d.bucket(links[0].budget)
	to := rapid.SampledFrom([]state.Bucket{
		{Kind: state.BucketSpent}, {}, {Kind: state.BucketFenced}, {Kind: state.BucketHeld, Until: state.HoldUntil(d.now, hour)},
	}).Draw(d.T, "to")
	given := uint64(0)
	if to.Kind != state.BucketNone {
		given = amount - min(amount, uint64(d.pick("less", 0, 0, 1)))
	}
	extra := uint64(0)
	if d.one("extra", 4) {
		extra = uint64(d.pick("extra", 1, 10, 60))
	}
	rule := state.Gone(d.pick("rule", 0, 1))
	if to.Kind == state.BucketHeld {
		rule = state.GoneRefuse
	}
	for _, l := range links {
		m := state.Move{
			Key: l.key, Generation: l.gen, Window: l.budget.Start, Take: from, TakeAmount: amount, Give: to, GiveAmount: given, Extra: extra,
			IfGone: rule, IfClosed: rule,
		}
		if m.Take.Kind == state.BucketNone {
			m.TakeAmount = 0
		}
		if d.one("another window", 10) && l.budget.Start > hour {
			m.Window -= hour
		}
		if d.one("another generation", 20) {
			m.Generation = state.Version{8}
		}
		b.Ops = append(b.Ops, m)
	}
	if extra == 0 && d.one("and spend", 5) {
		for _, l := range links {
			b.Ops = append(b.Ops, state.Move{
				Key: l.key, Generation: l.gen, Window: state.CurrentWindow, Give: state.Bucket{Kind: state.BucketSpent}, GiveAmount: 2,
			})
		}
	}
}

// bucket draws a bucket of a budget that holds something, and some of it.
func (d *drawer) bucket(b Budget) (from state.Bucket, amount uint64) {
	type full struct {
		bucket state.Bucket
		amount uint64
	}
	var choice []full
	for until, h := range b.Holds {
		choice = append(choice, full{state.Bucket{Kind: state.BucketHeld, Until: until}, h.Amount})
	}
	choice = slices.DeleteFunc(choice, func(f full) bool { return f.amount == 0 })
	slices.SortFunc(choice, func(a, b full) int { return int(a.bucket.Until - b.bucket.Until) })
	choice = append(choice, full{state.Bucket{Kind: state.BucketFenced}, b.Fenced}, full{state.Bucket{Kind: state.BucketSpent}, b.Spent})
	choice = slices.DeleteFunc(choice, func(f full) bool { return f.amount == 0 })
	if len(choice) == 0 {
		return state.Bucket{}, 0
	}
	c := rapid.SampledFrom(choice).Draw(d.T, "from")
	switch d.pick("part", 0, 1, 2) {
	case 1:
		return c.bucket, (c.amount + 1) / 2
	case 2:
		if d.one("too much", 10) {
			return c.bucket, c.amount + 1
		}
	}
	return c.bucket, c.amount
}
