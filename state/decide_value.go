package state

// Values: floors, counters, the scope's own record and key checks.

func (d *decision) check(i int, o Check) {
	r := d.get(o.Key)
	var value uint64
	holds := true
	switch o.Key.Kind {
	case KindFloor:
		if r != nil {
			value = r.Value
		}
		holds = value < uint64(o.After) //nolint:gosec // validated.
	case KindScope:
		if o.After != 0 {
			value = uint64(d.scope.Floor) //nolint:gosec // never negative.
			holds = d.scope.Floor < o.After
		}
		if o.Epoch != 0 && holds {
			value = d.scope.Epoch
			holds = d.scope.Epoch == o.Epoch
		}
	case KindKeyCheck:
		holds = r != nil && r.Digest == o.Digest
	}
	if !holds {
		d.refuse(Refusal{Op: i, Reason: CheckFailed, Value: value})
	}
}

func (d *decision) bump(i int, o Bump) {
	if d.scope.Epoch != o.From {
		d.refuse(Refusal{Op: i, Reason: CheckFailed, Value: d.scope.Epoch})
		return
	}
	s := *d.scope
	s.Epoch++
	n := *d.get(o.Key)
	n.scope, n.Token = &s, o.Token
	d.out.Values[i] = s.Epoch
	d.write(o.Key, &n)
}

// raise never lowers, and writes nothing if there is nothing to lift.
func (d *decision) raise(i int, o Raise) {
	to := o.To
	if o.Ahead > 0 {
		to = max(to, uint64((d.Now+o.Ahead+999)/1000*1000)) //nolint:gosec // positive.
	}
	if to > MaxAmount {
		d.fail(invalidf("op %d: %v", i, errTime))
		return
	}
	r := d.get(o.Key)
	if o.Key.Kind == KindScope {
		s := *d.scope
		if uint64(s.Floor) < to { //nolint:gosec // never negative.
			s.Floor = int64(to)
			n := *r
			n.scope = &s
			d.write(o.Key, &n)
		}
		d.out.Values[i] = uint64(s.Floor) //nolint:gosec // never negative.
		return
	}
	value := valueOf(r)
	if to > value {
		value = to
		d.putValue(o.Key, r, value)
	}
	d.out.Values[i] = value
}

// valueOf gives the value of a counter or floor, 0 if there is none.
func valueOf(r *Record) uint64 {
	if r == nil {
		return 0
	}
	return r.Value
}

func (d *decision) putValue(key Key, r *Record, value uint64) {
	n := Record{State: Settled, Shard: d.Shard, Created: d.Now}
	if r != nil {
		n = *r
	}
	n.Value = value
	d.write(key, &n)
}

// addWithin is Add and Spend.
func (d *decision) addWithin(i int, key Key, amount, limit uint64) {
	r := d.get(key)
	value := valueOf(r)
	f := &Figures{Name: key.ID, Limit: limit, Spent: value, Amount: amount, Lifetime: true}
	if value < limit {
		f.Remaining = limit - value
	}
	if amount > f.Remaining {
		d.refuse(Refusal{Op: i, Reason: OverLimit, Figures: f})
		return
	}
	f.Spent, f.Remaining = value+amount, f.Remaining-amount
	d.out.Figures[i], d.out.Values[i] = f, f.Spent
	if amount > 0 {
		d.putValue(key, r, f.Spent)
	}
}

func (d *decision) refund(i int, o Refund) {
	r := d.get(o.Key)
	if r == nil {
		return
	}
	value := r.Value - min(r.Value, o.Amount)
	d.out.Values[i] = value
	if value != r.Value {
		d.putValue(o.Key, r, value)
	}
}

func (d *decision) putScope(i int, o PutScope) {
	r := d.get(o.Key)
	s := o.Scope
	switch {
	case r == nil:
		r = &Record{State: Settled, Created: d.Now}
	case r.Version != o.IfVersion:
		d.refuse(Refusal{Op: i, Reason: Changed, Record: r})
		return
	case s.Generation < r.scope.Generation || s.Epoch < r.scope.Epoch || s.Floor < r.scope.Floor || s.Writers < r.scope.Writers:
		d.fail(invalidf("a scope's generation, epoch, floor and writers never go back"))
		return
	}
	n := *r
	n.scope = &s
	d.write(o.Key, &n)
}

func (d *decision) putKeyCheck(i int, o PutKeyCheck) {
	if r := d.get(o.Key); r != nil {
		d.refuse(Refusal{Op: i, Reason: Exists, Record: r})
		return
	}
	d.write(o.Key, &Record{State: Settled, Created: d.Now, Digest: o.Digest})
}
