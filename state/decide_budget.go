package state

// extra is an amount that a Move would like to spend on top.
type extra struct {
	op     int
	amount uint64
	budget *Budget // after the Move; nil if the Move was skipped
	end    int64
}

// move checks one Move and notes the budget that it leaves.
func (d *decision) move(i int, o Move) {
	r := d.get(o.Key)
	if r == nil || r.budget.Generation != o.Generation {
		d.gone(i, o, o.IfGone, BudgetGone)
		return
	}
	b, end, err := r.budget.At(d.Now)
	if err != nil {
		d.fail(&RecordError{o.Key, ErrCorrupt})
		return
	}
	if o.Window != CurrentWindow && o.Window != b.Start {
		d.out.Figures[i] = b.Figures(o.Key.ID, end)
		d.gone(i, o, o.IfClosed, WindowOver)
		return
	}
	if !d.parentAsked(i, o, &b) {
		return
	}
	before := b.Used()
	if err := b.take(o.Take, o.TakeAmount); err != nil {
		if len(d.out.Refusals) == 0 {
			d.fail(&RecordError{o.Key, ErrCorrupt})
		}
		return
	}
	after := b.Used() + o.GiveAmount
	if after > before && !b.fits(after) {
		// The figures are those before the batch, with what it asked to add.
		b, end, _ = r.budget.At(d.Now)
		f := b.Figures(o.Key.ID, end)
		f.Amount = after - before
		d.refuse(Refusal{Op: i, Reason: OverLimit, Figures: f})
		return
	}
	b.give(o.Give, o.GiveAmount, d.Now)
	if len(b.Held) > MaxHeld {
		d.fail(invalidf("op %d: the budget has too many different hold expiries", i))
		return
	}
	if o.Extra > 0 {
		d.extras = append(d.extras, extra{i, o.Extra, &b, end})
	}
	d.putMoved(i, o, r, &b, end)
}

func (d *decision) putMoved(i int, o Move, r *Record, b *Budget, end int64) {
	f := b.Figures(o.Key.ID, end)
	if o.GiveAmount > o.TakeAmount {
		f.Amount = o.GiveAmount - o.TakeAmount
	}
	d.out.Figures[i] = f
	n := *r
	n.budget = b
	d.write(o.Key, &n)
}

// gone skips or refuses a Move whose budget or window is no longer there. An
// Extra on it cannot be charged.
func (d *decision) gone(i int, o Move, rule Gone, reason Reason) {
	if rule == GoneRefuse {
		d.refuse(Refusal{Op: i, Reason: reason})
		return
	}
	d.out.Skipped[i] = true
	if o.Extra > 0 {
		d.extras = append(d.extras, extra{op: i, amount: o.Extra})
	}
}

// parentAsked makes sure that a new amount counts in the parent too: the batch
// must hold a Move of at least that amount on it.
func (d *decision) parentAsked(i int, o Move, b *Budget) bool {
	if b.Parent == "" || o.Take.Kind != BucketNone || o.GiveAmount == 0 {
		return true
	}
	for _, op := range d.batch.Ops {
		p, ok := op.(Move)
		if !ok || p.Key.ID != b.Parent {
			continue
		}
		if p.Generation != b.ParentGen {
			d.refuse(Refusal{Op: i, Reason: BudgetGone})
			return false
		}
		if p.Give.Kind == o.Give.Kind && p.GiveAmount >= o.GiveAmount {
			return true
		}
	}
	d.fail(invalidf("op %d: the batch does not count the amount in the budget's parent", i))
	return false
}

// giveExtras spends the Extras of all Moves if all of them fit, else none.
func (d *decision) giveExtras() {
	if len(d.extras) == 0 || d.stopped() || len(d.out.Refusals) > 0 {
		return
	}
	for _, e := range d.extras {
		if e.budget == nil || !e.budget.fits(e.budget.Used()+e.amount) {
			return
		}
	}
	for _, e := range d.extras {
		e.budget.Spent += e.amount
		o := d.batch.Ops[e.op].(Move) //nolint:forcetypeassert // only Moves have Extras.
		asked := d.out.Figures[e.op].Amount + e.amount
		d.out.Figures[e.op] = e.budget.Figures(o.Key.ID, e.end)
		d.out.Figures[e.op].Amount = asked
	}
	d.out.Extra = true
}

func (d *decision) putBudget(i int, o PutBudget) {
	if r := d.get(o.Key); r != nil {
		old := r.budget
		if old.Unit != o.Unit || old.Window != o.Window || old.Parent != o.Parent {
			d.refuse(Refusal{Op: i, Reason: Differs, Figures: old.Figures(o.Key.ID, 0)})
			return
		}
		b, end, err := old.At(d.Now)
		if err != nil {
			d.fail(&RecordError{o.Key, ErrCorrupt})
			return
		}
		b.Limit, b.Unlimited = o.Limit, o.Unlimited
		n := *r
		n.budget = &b
		d.out.Figures[i] = b.Figures(o.Key.ID, end)
		d.write(o.Key, &n)
		return
	}
	b := &Budget{Unit: o.Unit, Limit: o.Limit, Unlimited: o.Unlimited, Window: o.Window, Parent: o.Parent, Generation: d.generation()}
	if o.Parent != "" && !d.parent(i, o, b) {
		return
	}
	start, end, err := o.Window.Bounds(d.Now)
	if err != nil {
		d.fail(invalidf("op %d: %v", i, err))
		return
	}
	b.Start = start
	d.out.Figures[i] = b.Figures(o.Key.ID, end)
	d.write(o.Key, &Record{State: Settled, Shard: d.Shard, Created: d.Now, budget: b})
}

// parent pins the parent of a new budget: it must be there, with the same
// unit, and with few enough ancestors of its own. As a budget is tied to the
// generation of its parent, there can be no cycle.
func (d *decision) parent(i int, o PutBudget, b *Budget) bool {
	name := o.Parent
	for depth := 2; name != ""; depth++ {
		if depth > MaxBudgetDepth {
			d.fail(invalidf("op %d: budgets can be at most %d deep", i, MaxBudgetDepth))
			return false
		}
		r := d.get(Key{o.Key.Scope, KindBudget, name})
		if d.stopped() {
			return false
		}
		if r == nil || depth > 2 && r.budget.Generation != b.ParentGen {
			d.refuse(Refusal{Op: i, Reason: Absent})
			return false
		}
		if depth == 2 {
			if r.budget.Unit != o.Unit {
				d.refuse(Refusal{Op: i, Reason: Differs, Figures: r.budget.Figures(name, 0)})
				return false
			}
			b.ParentGen = r.budget.Generation
		}
		name = r.budget.Parent
	}
	return true
}

// remove deletes a counter or a budget. What the budget's open holds take up
// in its ancestors is given back there; what is spent or fenced stays.
func (d *decision) remove(i int, o Remove) {
	r := d.get(o.Key)
	for _, a := range o.Ancestors {
		d.get(a.Key)
	}
	if d.stopped() {
		return
	}
	if r == nil || r.budget != nil && r.budget.Generation != o.Generation {
		d.out.Skipped[i] = true
		return
	}
	d.write(o.Key, nil)
	if r.budget == nil {
		return
	}
	b, _, err := r.budget.At(d.Now)
	if err != nil {
		d.fail(&RecordError{o.Key, ErrCorrupt})
		return
	}
	for _, a := range o.Ancestors {
		d.giveBack(a, b.Held)
		if d.stopped() {
			return
		}
	}
}

// giveBack takes the open holds of a removed budget out of an ancestor. The
// ancestor does not count holds from before its window, so an entry with such
// a hold in it stays there until it ends by itself: it may count too much for
// a while, never too little.
func (d *decision) giveBack(a Ancestor, held []Held) {
	r := d.get(a.Key)
	if r == nil || r.budget.Generation != a.Generation {
		return
	}
	b, _, err := r.budget.At(d.Now)
	for _, h := range held {
		if err == nil && h.Since >= b.Start {
			err = b.take(Bucket{BucketHeld, h.Until}, h.Amount)
		}
	}
	if err != nil {
		d.fail(&RecordError{a.Key, ErrCorrupt})
		return
	}
	n := *r
	n.budget = &b
	d.write(a.Key, &n)
}
