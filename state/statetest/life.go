package statetest

import (
	"github.com/counterfoil/counterfoil/state"
)

// Rules of the ops that do not touch budgets.

// untilLifted reports whether an op waits for the end of a quarantine: it
// would begin something new, and no record is there that answers instead.
func (t *trial) untilLifted(op state.Op) bool {
	if t.scope.Quarantine == "" {
		return false
	}
	begins := map[state.Kind]bool{
		state.KindOperation: true, state.KindHold: true, state.KindSpend: true, state.KindChallenge: true, state.KindApproval: true,
	}
	decides := map[state.Kind]bool{state.KindChallenge: true, state.KindApproval: true}
	switch o := op.(type) {
	case state.Claim:
		return begins[o.Key.Kind] && !t.live(o.Key.Kind, t.look(o.Key))
	case state.Settle:
		f := t.look(o.Key)
		return decides[o.Key.Kind] && (f == nil || f.State == state.Pending)
	case state.Update:
		f := t.look(o.Key)
		return decides[o.Key.Kind] && (f == nil || f.State == state.Pending)
	case state.Bump, state.Spend:
		return true
	}
	return false
}

func (t *trial) op(i int, op state.Op) {
	if t.untilLifted(op) {
		t.refuse(i, state.Recovering)
		return
	}
	switch o := op.(type) {
	case state.Claim:
		t.claim(i, o)
	case state.Update:
		t.update(i, o)
	case state.Settle:
		t.settle(i, o)
	case state.Drop:
		t.drop(i, o)
	case state.Move:
		t.move(i, o)
	case state.Remove:
		t.remove(i, o)
	case state.PutBudget:
		t.putBudget(i, o)
	case state.PutScope:
		t.putScope(i, o)
	case state.PutKeyCheck:
		if f := t.look(o.Key); f != nil {
			t.refuse(i, state.Exists).Record = t.shown(f)
			return
		}
		t.after[o.Key] = &Fact{Seen: Seen{State: state.Settled, Created: t.Now, Digest: o.Digest}}
	case state.Check:
		t.check(i, o)
	case state.Bump:
		if t.scope.Epoch != o.From {
			t.refuse(i, state.CheckFailed).Value = t.scope.Epoch
			return
		}
		f := *t.look(o.Key)
		f.Token = o.Token
		f.Seen.Scope.Epoch++
		t.after[o.Key], t.a.Values[i] = &f, f.Seen.Scope.Epoch
	case state.Raise:
		t.raise(i, o)
	case state.Add:
		t.count(i, o.Key, o.Amount, state.MaxAmount)
	case state.Spend:
		t.count(i, o.Key, o.Amount, o.Limit)
	case state.Refund:
		if f := t.look(o.Key); f != nil {
			left := uint64(0)
			if f.Value > o.Amount {
				left = f.Value - o.Amount
			}
			t.a.Values[i] = left
			t.setValue(o.Key, f, left)
		}
	case state.Refuse:
		t.refuse(i, o.Reason)
	case state.Replace:
		t.replace(i, o)
	case state.Sweep:
		t.sweep(i, o)
	}
}

func (t *trial) claim(i int, o state.Claim) {
	old := t.look(o.Key)
	if t.live(o.Key.Kind, old) {
		t.refuse(i, state.Exists).Record = t.shown(old)
		return
	}
	if o.Expires != 0 && o.Expires <= t.Now {
		t.refuse(i, state.Expired)
		return
	}
	f := &Fact{Seen: Seen{
		State: o.State, Token: o.Token, Owner: o.Owner, ownerTag: state.TagOwner(o.Owner), Digest: o.Digest, Created: t.Now,
		Expires: o.Expires, Lease: o.Lease, Body: string(o.Body),
	}}
	if o.Key.Kind == state.KindOperation {
		f.Fence = uint64(t.Now) * 1000
		if old != nil {
			f.Fence = max(f.Fence, old.Fence+1)
		}
	}
	if o.Key.Kind == state.KindChallenge {
		f.Epoch, f.Generation = t.scope.Epoch, t.scope.Generation
	}
	t.after[o.Key] = f
}

// rule is a reason that holds or not; the first that does is given.
type rule struct {
	broken bool
	reason state.Reason
}

func (t *trial) broken(i int, f *Fact, rules ...rule) bool {
	for _, r := range rules {
		if r.broken {
			t.refuse(i, r.reason).Record = t.shown(f)
			return true
		}
	}
	return false
}

// holder gives the record that an op of its holder finishes or changes, nil if
// it was refused.
func (t *trial) holder(i int, key state.Key, token state.Token, version state.Version) *Fact {
	f := t.look(key)
	if f == nil || f.State == state.Void && t.over(key.Kind, f) {
		t.refuse(i, state.Absent)
		return nil
	}
	over := t.over(key.Kind, f)
	if t.broken(i, f,
		rule{over && f.State == state.Settled, state.Expired},
		rule{f.Token != token, state.NotHolder},
		rule{f.State != state.Pending, state.NotPending},
		rule{over, state.Expired},
		rule{version != (state.Version{}) && version != f.Version, state.Changed},
	) {
		return nil
	}
	c := *f
	return &c
}

func (t *trial) late(i int, expires int64) bool {
	if expires != 0 && expires <= t.Now {
		t.refuse(i, state.Expired)
		return true
	}
	return false
}

func (t *trial) update(i int, o state.Update) {
	f := t.holder(i, o.Key, o.Token, o.IfVersion)
	if f == nil || t.broken(i, f, rule{o.IfLeaseAlive && t.Now >= f.Lease, state.LeaseOver}) || t.late(i, o.Expires) {
		return
	}
	f.Lease, f.Expires, f.Body = o.Lease, o.Expires, string(o.Body)
	if o.NewToken != (state.Token{}) {
		f.Token, f.Given = o.NewToken, o.Given
	} else if o.Given != (state.Digest{}) {
		f.Given = o.Given
	}
	t.after[o.Key] = f
}

func (t *trial) settle(i int, o state.Settle) {
	f := t.holder(i, o.Key, o.Token, o.IfVersion)
	if f == nil || t.broken(i, f, rule{o.IfLeaseOver && t.Now < f.Lease, state.LeaseAlive}) || t.late(i, o.Expires) {
		return
	}
	f.State, f.Lease, f.Expires, f.Retain, f.Body, f.Given = state.Settled, 0, o.Expires, o.Retain, string(o.Body), o.Given
	if o.NewToken != (state.Token{}) {
		f.Token = o.NewToken
	}
	t.after[o.Key] = f
}

func (t *trial) drop(i int, o state.Drop) {
	f := t.holder(i, o.Key, o.Token, o.IfVersion)
	if f == nil || t.broken(i, f, rule{o.IfLeaseOver && t.Now < f.Lease, state.LeaseAlive}) {
		return
	}
	f.State, f.Lease, f.Expires, f.Retain, f.Body, f.Given, f.Kept = state.Void, 0, t.Now+state.VoidKeep, 0, string(o.Why), o.Given, nil
	if o.NewToken != (state.Token{}) {
		f.Token = o.NewToken
	}
	t.after[o.Key] = f
}

func (t *trial) check(i int, o state.Check) {
	f := t.look(o.Key)
	switch o.Key.Kind {
	case state.KindFloor:
		if f != nil && f.Value >= uint64(o.After) {
			t.refuse(i, state.CheckFailed).Value = f.Value
		}
	case state.KindScope:
		switch {
		case o.After != 0 && t.scope.Floor >= o.After:
			t.refuse(i, state.CheckFailed).Value = uint64(t.scope.Floor)
		case o.Epoch != 0 && t.scope.Epoch != o.Epoch:
			t.refuse(i, state.CheckFailed).Value = t.scope.Epoch
		}
	default:
		if f == nil || f.Digest != o.Digest {
			t.refuse(i, state.CheckFailed)
		}
	}
}

func (t *trial) raise(i int, o state.Raise) {
	to := o.To
	if o.Ahead > 0 {
		second := (uint64(t.Now) + uint64(o.Ahead)) / 1000
		if (uint64(t.Now)+uint64(o.Ahead))%1000 != 0 {
			second++
		}
		to = max(to, second*1000)
	}
	if to > state.MaxAmount {
		panic(stop{state.ErrInvalid})
	}
	f := t.look(o.Key)
	if o.Key.Kind == state.KindScope {
		c := *f
		if to > uint64(c.Seen.Scope.Floor) {
			c.Seen.Scope.Floor = int64(to)
			t.after[o.Key] = &c
		}
		t.a.Values[i] = uint64(c.Seen.Scope.Floor)
		return
	}
	is := uint64(0)
	if f != nil {
		is = f.Value
	}
	t.a.Values[i] = max(is, to)
	t.setValue(o.Key, f, max(is, to))
}

// count adds to a counter within a limit.
func (t *trial) count(i int, key state.Key, amount, limit uint64) {
	f := t.look(key)
	is := uint64(0)
	if f != nil {
		is = f.Value
	}
	room := uint64(0)
	if limit > is {
		room = limit - is
	}
	figures := state.Figures{Name: key.ID, Limit: limit, Spent: is, Remaining: room, Amount: amount, Lifetime: true}
	if amount > room {
		t.refuse(i, state.OverLimit).Figures = &figures
		return
	}
	figures.Spent, figures.Remaining = is+amount, room-amount
	t.a.Figures[i], t.a.Values[i] = &figures, is+amount
	t.setValue(key, f, is+amount)
}

// setValue leaves no trace where nothing changes.
func (t *trial) setValue(key state.Key, f *Fact, value uint64) {
	if f == nil && value == 0 || f != nil && f.Value == value {
		return
	}
	c := Fact{Seen: Seen{State: state.Settled, Created: t.Now}}
	if f != nil {
		c = *f
	}
	c.Value = value
	t.after[key] = &c
}

func (t *trial) putScope(i int, o state.PutScope) {
	f := t.look(o.Key)
	if f == nil {
		t.after[o.Key] = &Fact{Seen: Seen{State: state.Settled, Created: t.Now, Scope: o.Scope}}
		return
	}
	if f.Version != o.IfVersion {
		t.refuse(i, state.Changed).Record = t.shown(f)
		return
	}
	is := f.Seen.Scope
	if o.Scope.Generation < is.Generation || o.Scope.Epoch < is.Epoch || o.Scope.Floor < is.Floor || o.Scope.Writers < is.Writers {
		panic(stop{state.ErrInvalid})
	}
	c := *f
	c.Seen.Scope = o.Scope
	t.after[o.Key] = &c
}

func (t *trial) replace(i int, o state.Replace) {
	f, ok := t.Facts[o.Key]
	switch {
	case !ok || !f.Damaged:
		r := t.refuse(i, state.Readable)
		if ok {
			r.Record = t.shown(t.look(o.Key))
		}
		return
	case f.Version != o.Version:
		t.refuse(i, state.Changed)
		return
	case t.late(i, o.Expires):
		return
	}
	c := &Fact{Seen: Seen{
		State: o.State, Token: o.Token, Owner: o.Owner, ownerTag: state.TagOwner(o.Owner), Digest: o.Digest, Given: o.Given, Created: t.Now,
		Retain: o.Retain, Expires: o.Expires, Body: string(o.Body),
	}}
	if o.State == state.Void {
		c.Retain, c.Expires = 0, t.Now+state.VoidKeep
	}
	t.after[o.Key] = c
}

func (t *trial) sweep(i int, o state.Sweep) {
	f, ok := t.Facts[o.Key]
	if !ok || f.Damaged {
		t.a.Skipped[i] = true
		return
	}
	gone := f.Expires + state.KeepPast
	if o.Key.Kind == state.KindHold && f.State == state.Pending {
		gone = f.Expires + state.HoldKeep
	}
	settled := f.State == state.Settled && !f.Tomb && f.Retain != 0 && (f.Expires == 0 || f.Retain < f.Expires)
	switch {
	case f.Expires != 0 && t.Now >= gone:
		t.after[o.Key] = nil
	case settled && t.Now >= f.Retain:
		t.after[o.Key] = f.tombstone()
	default:
		t.a.Skipped[i] = true
	}
}
