package state

// extra is an amount that a Move would like to spend on top.
type extra struct {
	op     int
	amount uint64
	budget *Budget // after the Move; nil if the Move was skipped
	end    int64
}

// inside is a Move that adds to a budget that has a parent.
type inside struct {
	op     int
	budget *Budget
}

// move checks one Move and notes the budget that it leaves.
func (d *decision) move(i int, o Move) {
	r := d.written(o.Key)
	if r == nil || r.budget.Generation != o.Generation {
		d.gone(i, o, o.IfGone, BudgetGone)
		return
	}
	n := &struct {
		Record
		b Budget
	}{*r, *r.budget}
	b := &n.b
	n.Record.budget = b
	end, err := b.roll(d.Now)
	if err != nil {
		d.fail(&RecordError{o.Key, ErrCorrupt})
		return
	}
	if o.Window != CurrentWindow && o.Window != b.Start {
		d.out.Figures[i] = d.figures(b, o.Key.ID, end)
		d.gone(i, o, o.IfClosed, WindowOver)
		return
	}
	if o.GiveAmount > 0 && d.past(i, o.Give.Until) {
		return
	}
	if b.Parent != "" && (o.GiveAmount > 0 || o.Extra > 0) {
		if d.inside == nil {
			d.inside = make([]inside, 0, len(d.batch.Ops)-i)
		}
		d.inside = append(d.inside, inside{i, b})
	}
	before := b.Used()
	if err := b.take(o.Take, o.TakeAmount); err != nil {
		// Unless a refusal explains it (a hold that is over), the record is wrong.
		d.short = &RecordError{o.Key, ErrCorrupt}
		return
	}
	if after := b.Used() + o.GiveAmount; after > before && !b.fits(after) {
		at, end, _ := r.budget.At(d.Now) // before the take; it was possible above
		f := d.figures(&at, o.Key.ID, end)
		f.Amount = after - before
		d.refuse(Refusal{Op: i, Reason: OverLimit, Figures: f})
		return
	}
	b.give(o.Give, o.GiveAmount, d.Now)
	if len(b.Held) > MaxHeld {
		d.fail(invalidf("op %d: the budget has too many different hold expiries", i))
		return
	}
	f := d.figures(b, o.Key.ID, end)
	if o.GiveAmount > o.TakeAmount {
		f.Amount = o.GiveAmount - o.TakeAmount
	}
	d.out.Figures[i] = f
	if o.Extra > 0 {
		d.extras = append(d.extras, extra{i, o.Extra, b, end})
	}
	if o.TakeAmount > 0 || o.GiveAmount > 0 || o.Extra > 0 { // nothing for nothing leaves no trace
		d.write(o.Key, &n.Record)
	}
}

// figures gives where a budget stands, in room that all of the batch share.
func (d *decision) figures(b *Budget, name string, end int64) *Figures {
	if d.room == nil {
		d.room = make([]Figures, 0, len(d.batch.Ops))
	}
	d.room = append(d.room, b.Figures(name, end))
	return &d.room[len(d.room)-1]
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

// countInParents makes sure that whatever the batch adds to a budget counts in
// its parent too: it must add as much to the same bucket there.
func (d *decision) countInParents() {
	for _, in := range d.inside {
		give := d.moveAt(in.op).Give
		need, extra := uint64(0), uint64(0)
		for _, sibling := range d.inside {
			if sibling.budget.Parent != in.budget.Parent || sibling.budget.ParentGen != in.budget.ParentGen {
				continue
			}
			m := d.moveAt(sibling.op)
			if extra += m.Extra; m.Give == give {
				need += m.GiveAmount
			}
		}
		for _, op := range d.batch.Ops {
			m, ok := op.(Move)
			if !ok || m.Key.ID != in.budget.Parent {
				continue
			}
			if m.Generation != in.budget.ParentGen {
				d.refuse(Refusal{Op: in.op, Reason: BudgetGone})
				need, extra = 0, 0
				break
			}
			if m.Give == give {
				need -= min(need, m.GiveAmount)
			}
			extra -= min(extra, m.Extra)
		}
		if need > 0 || extra > 0 {
			d.fail(invalidf("op %d: the batch does not count the amount in the budget's parent", in.op))
		}
	}
}

// moveAt gives the Move with that index.
func (d *decision) moveAt(op int) Move { return d.batch.Ops[op].(Move) } //nolint:forcetypeassert // so noted by move.

// giveExtras spends the Extras of all Moves if all of them fit, else none.
func (d *decision) giveExtras() {
	if len(d.extras) == 0 || len(d.out.Refusals) > 0 {
		return
	}
	for _, e := range d.extras {
		if e.budget == nil || !e.budget.fits(e.budget.Used()+e.amount) {
			return
		}
	}
	for _, e := range d.extras {
		e.budget.Spent += e.amount
		asked := d.out.Figures[e.op].Amount + e.amount
		d.out.Figures[e.op] = d.figures(e.budget, d.moveAt(e.op).Key.ID, e.end)
		d.out.Figures[e.op].Amount = asked
	}
	d.out.Extra = true
}

func (d *decision) putBudget(i int, o PutBudget) {
	if r := d.get(o.Key); r != nil {
		old := r.budget
		b, end, err := old.At(d.Now)
		switch {
		case err != nil:
			d.fail(&RecordError{o.Key, ErrCorrupt})
			return
		case old.Unit != o.Unit || old.Window != o.Window || old.Parent != o.Parent:
			d.refuse(Refusal{Op: i, Reason: Differs, Figures: d.figures(&b, o.Key.ID, end)})
			return
		case o.Parent != "" && !d.has(o.parentKey(), old.ParentGen):
			d.refuse(Refusal{Op: i, Reason: BudgetGone})
			return
		}
		b.Limit, b.Unlimited = o.Limit, o.Unlimited
		n := *r
		n.budget = &b
		d.out.Figures[i] = d.figures(&b, o.Key.ID, end)
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
	d.out.Figures[i] = d.figures(b, o.Key.ID, end)
	d.write(o.Key, &Record{State: Settled, Shard: d.Shard, Created: d.Now, budget: b})
}

func (o PutBudget) parentKey() Key { return Key{o.Key.Scope, KindBudget, o.Parent} }

// has reports whether a budget of that generation is there.
func (d *decision) has(key Key, generation Version) bool {
	r := d.get(key)
	return r != nil && r.budget.Generation == generation
}

// parent pins the parent of a new budget: it must be there, with the same
// unit, and with few enough ancestors of its own, all of them there. As a
// budget is tied to the generation of its parent, there can be no cycle.
func (d *decision) parent(i int, o PutBudget, b *Budget) bool {
	r := d.get(o.parentKey())
	if r == nil {
		d.refuse(Refusal{Op: i, Reason: Absent})
		return false
	}
	if r.budget.Unit != o.Unit {
		above, end, err := r.budget.At(d.Now)
		if err != nil {
			d.fail(&RecordError{o.parentKey(), ErrCorrupt})
			return false
		}
		d.refuse(Refusal{Op: i, Reason: Differs, Figures: d.figures(&above, o.Parent, end)})
		return false
	}
	b.ParentGen = r.budget.Generation
	for depth := 2; ; depth++ {
		if depth > MaxBudgetDepth {
			d.fail(invalidf("op %d: budgets can be at most %d deep", i, MaxBudgetDepth))
			return false
		}
		above := r.budget
		if above.Parent == "" {
			return true
		}
		r = d.get(Key{o.Key.Scope, KindBudget, above.Parent})
		if d.stopped() {
			return false
		}
		if r == nil || r.budget.Generation != above.ParentGen {
			d.refuse(Refusal{Op: i, Reason: BudgetGone})
			return false
		}
	}
}

// remove deletes a counter or a budget. What the budget's open holds take up
// in its ancestors is given back there; what is spent or fenced stays. An
// ancestor that is gone ends the walk: its own removal has given back what it
// counted in those above it.
func (d *decision) remove(i int, o Remove) {
	r := d.get(o.Key)
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
	for above := r.budget; above.Parent != ""; {
		key := Key{o.Key.Scope, KindBudget, above.Parent}
		p := d.get(key)
		if p == nil || p.budget.Generation != above.ParentGen {
			return
		}
		d.giveBack(key, p, b.Held)
		above = p.budget
	}
}

// giveBack takes the open holds of a removed budget out of an ancestor. The
// ancestor does not count holds from before its window, so an entry with such
// a hold in it stays there until it ends by itself: it may count too much for
// a while, never too little.
func (d *decision) giveBack(key Key, r *Record, held []Held) {
	b, _, err := r.budget.At(d.Now)
	if len(held) == 0 && err == nil {
		return
	}
	for _, h := range held {
		if err == nil && h.Since >= b.Start {
			err = b.take(Bucket{BucketHeld, h.Until}, h.Amount)
		}
	}
	if err != nil {
		d.fail(&RecordError{key, ErrCorrupt})
		return
	}
	n := *r
	n.budget = &b
	d.write(key, &n)
}
