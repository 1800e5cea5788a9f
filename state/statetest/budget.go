package statetest

import (
	"maps"
	"slices"

	"github.com/counterfoil/counterfoil/state"
)

// Budget is a budget as a list of what is in it.
type Budget struct {
	Unit           string
	Limit          uint64
	Unlimited      bool
	Window         state.Window
	Parent         string
	ParentGen, Gen state.Version
	Start          int64
	Spent, Fenced  uint64
	Holds          map[int64]Hold // by the moment they end
}

// Hold is what is held until a moment.
type Hold struct {
	Amount uint64
	Since  int64 // when the oldest of it was held
}

func (m *Model) budgetKey(name string) state.Key {
	return state.Key{Scope: m.Name, Kind: state.KindBudget, ID: name}
}

// BudgetAt gives a budget as it stands at now, in the window that is open then.
func (m *Model) BudgetAt(name string, now int64) (b Budget, ends int64, ok bool) {
	f, ok := m.Facts[m.budgetKey(name)]
	if !ok {
		return Budget{}, 0, false
	}
	b, ends = f.Budget.at(now)
	return b, ends, true
}

func (b *Budget) at(now int64) (Budget, int64) {
	c := *b
	c.Holds = map[int64]Hold{}
	start, end, err := b.Window.Bounds(now)
	if err != nil {
		panic(err)
	}
	if b.Window.Kind != state.WindowLifetime && start > c.Start {
		c.Start, c.Spent, c.Fenced = start, 0, 0
		return c, end
	}
	for until, h := range b.Holds {
		if until > now {
			c.Holds[until] = h
		}
	}
	return c, end
}

func (b *Budget) used() uint64 {
	sum := b.Spent + b.Fenced
	for _, h := range b.Holds {
		sum += h.Amount
	}
	return sum
}

func (b *Budget) roomFor(used uint64) bool {
	if b.Unlimited {
		return used <= state.MaxAmount
	}
	return used <= b.Limit
}

func (b *Budget) figures(name string, ends int64) *state.Figures {
	f := &state.Figures{
		Name: name, Unit: b.Unit, Limit: b.Limit, Unlimited: b.Unlimited, Spent: b.Spent, Held: b.used() - b.Spent,
		Lifetime: b.Window.Kind == state.WindowLifetime, WindowAt: b.Start, ResetsAt: ends, Generation: b.Gen,
	}
	top := b.Limit
	if b.Unlimited {
		top = state.MaxAmount
	}
	if b.used() < top {
		f.Remaining = top - b.used()
	}
	for until := range b.Holds {
		if f.HeldUntil == 0 || until < f.HeldUntil {
			f.HeldUntil = until
		}
	}
	return f
}

// put adds to a bucket; a negative amount takes away. It reports false if there
// is not enough.
func (b *Budget) put(bucket state.Bucket, amount int64, now int64) bool {
	change := func(n *uint64) bool {
		if int64(*n)+amount < 0 {
			return false
		}
		*n = uint64(int64(*n) + amount)
		return true
	}
	switch bucket.Kind {
	case state.BucketSpent:
		return change(&b.Spent)
	case state.BucketFenced:
		return change(&b.Fenced)
	case state.BucketHeld:
		h, ok := b.Holds[bucket.Until]
		if !ok {
			h.Since = now
		}
		if !change(&h.Amount) {
			return false
		}
		if b.Holds[bucket.Until] = h; h.Amount == 0 {
			delete(b.Holds, bucket.Until)
		}
	}
	return true
}

// budgetNow gives a budget as an earlier Move of the batch left it.
func (t *trial) budgetNow(key state.Key) *Fact {
	if f, ok := t.after[key]; ok {
		return f
	}
	return t.look(key)
}

func (t *trial) move(i int, o state.Move) {
	f := t.budgetNow(o.Key)
	if f == nil || f.Budget.Gen != o.Generation {
		t.pass(i, o, o.IfGone, state.BudgetGone)
		return
	}
	b, ends := f.Budget.at(t.Now)
	before := b
	before.Holds = maps.Clone(b.Holds)
	if o.Window != state.CurrentWindow && o.Window != b.Start {
		t.a.Figures[i] = b.figures(o.Key.ID, ends)
		t.pass(i, o, o.IfClosed, state.WindowOver)
		return
	}
	if o.GiveAmount > 0 && t.late(i, o.Give.Until) {
		return
	}
	if !b.put(o.Take, -int64(o.TakeAmount), t.Now) {
		t.short = true
		return
	}
	if sum := b.used() + o.GiveAmount; sum > before.used() && !b.roomFor(sum) {
		r := t.refuse(i, state.OverLimit)
		r.Figures = before.figures(o.Key.ID, ends)
		r.Figures.Amount = sum - before.used()
		return
	}
	if o.GiveAmount > 0 {
		b.put(o.Give, int64(o.GiveAmount), t.Now)
	}
	if o.Extra > 0 {
		t.extras[i] = o.Extra
	}
	t.a.Figures[i] = b.figures(o.Key.ID, ends)
	if o.GiveAmount > o.TakeAmount {
		t.a.Figures[i].Amount = o.GiveAmount - o.TakeAmount
	}
	if o.TakeAmount+o.GiveAmount+o.Extra > 0 {
		c := *f
		c.Budget = &b
		t.after[o.Key] = &c
	}
}

// pass does without a Move, or refuses it.
func (t *trial) pass(i int, o state.Move, rule state.Gone, reason state.Reason) {
	if rule != state.GoneSkip {
		t.refuse(i, reason)
		return
	}
	t.a.Skipped[i] = true
	if o.Extra > 0 {
		t.extras[i] = o.Extra
	}
}

// checkParents: what is put into a budget is put into the same bucket of its
// parent, all that is put into its children together.
func (t *trial) checkParents() {
	moves := map[int]state.Move{}
	for i, op := range t.b.Ops {
		if m, ok := op.(state.Move); ok {
			moves[i] = m
		}
	}
	inParent := func(i int) (*Budget, bool) {
		f := t.Facts[moves[i].Key]
		if f == nil || f.Budget.Gen != moves[i].Generation || f.Budget.Parent == "" || t.a.Skipped[i] {
			return nil, false
		}
		if slices.ContainsFunc(t.a.Refusals, func(r Refused) bool {
			return r.Op == i && (r.Reason == state.WindowOver || r.Reason == state.Expired || r.Reason == state.BudgetGone)
		}) {
			return nil, false
		}
		return f.Budget, true
	}
	for i := range len(t.b.Ops) {
		m, ok := moves[i]
		b, has := inParent(i)
		if !ok || !has || m.GiveAmount == 0 && m.Extra == 0 {
			continue
		}
		var given, extra, wanted, wantedExtra uint64
		renewed := false
		for j, other := range moves {
			if other.Key.ID == b.Parent {
				renewed = renewed || other.Generation != b.ParentGen
				extra += other.Extra
				if other.Give == m.Give {
					given += other.GiveAmount
				}
			}
			if sibling, ok := inParent(j); ok && sibling.Parent == b.Parent && sibling.ParentGen == b.ParentGen {
				wantedExtra += other.Extra
				if other.Give == m.Give {
					wanted += other.GiveAmount
				}
			}
		}
		if renewed {
			t.refuse(i, state.BudgetGone)
			continue
		}
		if given < wanted || extra < wantedExtra {
			panic(stop{state.ErrInvalid})
		}
	}
}

func (t *trial) giveExtras() {
	if len(t.extras) == 0 || len(t.a.Refusals) > 0 {
		return
	}
	for i, amount := range t.extras {
		if t.a.Skipped[i] {
			return
		}
		if b := t.after[keyOf(t.b.Ops[i])].Budget; !b.roomFor(b.used() + amount) {
			return
		}
	}
	t.a.Extra = true
	for i, amount := range t.extras {
		key := keyOf(t.b.Ops[i])
		b := t.after[key].Budget
		b.Spent += amount
		was := t.a.Figures[i]
		t.a.Figures[i] = b.figures(key.ID, was.ResetsAt)
		t.a.Figures[i].Amount = was.Amount + amount
	}
}

func (t *trial) putBudget(i int, o state.PutBudget) {
	parent := (*Budget)(nil)
	if o.Parent != "" {
		if f := t.look(t.budgetKey(o.Parent)); f != nil {
			parent = f.Budget
		}
	}
	if f := t.look(o.Key); f != nil {
		b, ends := f.Budget.at(t.Now)
		if b.Unit != o.Unit || b.Window != o.Window || b.Parent != o.Parent {
			t.refuse(i, state.Differs).Figures = b.figures(o.Key.ID, ends)
			return
		}
		if o.Parent != "" && (parent == nil || parent.Gen != b.ParentGen) {
			t.refuse(i, state.BudgetGone)
			return
		}
		b.Limit, b.Unlimited = o.Limit, o.Unlimited
		c := *f
		c.Budget, t.a.Figures[i] = &b, b.figures(o.Key.ID, ends)
		t.after[o.Key] = &c
		return
	}
	b := Budget{Unit: o.Unit, Limit: o.Limit, Unlimited: o.Unlimited, Window: o.Window, Parent: o.Parent, Gen: t.Generation}
	if o.Parent != "" {
		if parent == nil {
			t.refuse(i, state.Absent)
			return
		}
		if parent.Unit != o.Unit {
			above, until := parent.at(t.Now)
			t.refuse(i, state.Differs).Figures = above.figures(o.Parent, until)
			return
		}
		b.ParentGen = parent.Gen
		depth := 2
		for up := parent; up.Parent != ""; depth++ {
			if depth == state.MaxBudgetDepth {
				panic(stop{state.ErrInvalid})
			}
			f := t.look(t.budgetKey(up.Parent))
			if f == nil || f.Budget.Gen != up.ParentGen {
				t.refuse(i, state.BudgetGone)
				return
			}
			up = f.Budget
		}
	}
	start, ends, err := o.Window.Bounds(t.Now)
	if err != nil {
		panic(err)
	}
	b.Start = start
	t.a.Figures[i] = b.figures(o.Key.ID, ends)
	t.after[o.Key] = &Fact{Seen: Seen{State: state.Settled, Created: t.Now}, Budget: &b}
}

func (t *trial) remove(i int, o state.Remove) {
	for _, a := range o.Ancestors {
		t.look(a.Key)
	}
	f := t.look(o.Key)
	if f == nil || f.Budget != nil && f.Budget.Gen != o.Generation {
		t.a.Skipped[i] = true
		return
	}
	t.after[o.Key] = nil
	if f.Budget == nil {
		return
	}
	gone, _ := f.Budget.at(t.Now)
	for up := &gone; up.Parent != ""; {
		key := t.budgetKey(up.Parent)
		p := t.look(key)
		if p == nil || p.Budget.Gen != up.ParentGen {
			return
		}
		b, _ := p.Budget.at(t.Now)
		for until, h := range gone.Holds {
			// What was held before the ancestor's window began is not in it any more, or
			// mixed with what is: then it stays until it ends.
			if h.Since >= b.Start && !b.put(state.Bucket{Kind: state.BucketHeld, Until: until}, -int64(h.Amount), t.Now) {
				panic(stop{state.ErrCorrupt})
			}
		}
		if len(gone.Holds) > 0 {
			c := *p
			c.Budget = &b
			t.after[key] = &c
		}
		up = p.Budget
	}
}
