package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/counterfoil/counterfoil/internal/planted"
)

// Context is what a decision needs besides records and batch.
type Context struct {
	Now     int64   // the group's time, ms
	Version Version // of the commit that will write the records
	Shard   uint16  // the quota shard of the deciding store instance
	Seq     uint32  // of the batch within its group
}

// Decision is what [Decide] returns. Exactly one of these holds: Err is set
// and the batch has no outcome; Need is not empty and nothing is decided until
// the view knows those keys too; or Outcome is the answer and Writes, empty
// unless it is Applied, are the records to write.
type Decision struct {
	Outcome Outcome
	Writes  []Write
	Need    []Key
	Err     error
}

// Decide says whether a batch takes effect and what it writes. It holds every
// rule there is about records: it reads only the view, changes nothing, and
// gives the same answer for the same arguments.
//
// The order is: form, then scope, then whether the anchor shows that this same
// batch was applied before, then every precondition of every op, then quotas.
// If any precondition fails nothing is written, and every one that failed is
// listed. A record that cannot be read fails the batch, unless the anchor's
// key has a live record: that one answers alone.
func Decide(v *View, b *Batch, c Context) Decision {
	d := decision{view: v, batch: b, Context: c}
	if !b.valid {
		d.err = b.Validate()
	}
	if d.err == nil {
		d.run()
	}
	switch {
	case d.err != nil:
		return Decision{Err: d.err}
	case len(d.need) > 0:
		return Decision{Need: d.need}
	case !d.out.Applied && !planted.On(planted.RefusalThatWrites):
		return Decision{Outcome: d.out}
	}
	return Decision{Outcome: d.out, Writes: d.writes}
}

// decision is one run of Decide.
type decision struct {
	Context
	view   *View
	batch  *Batch
	scope  *Scope
	out    Outcome
	writes []Write
	extras []extra
	inside []inside
	room   []Figures // that the outcome's figures lie in
	// short is the budget with a bucket that holds less than is taken from it.
	short error
	// adopted stands for an unreadable record in the count of what is replaced.
	adopted *Record
	need    []Key
	err     error
}

func (d *decision) run() {
	if !d.loadScope() || !d.known() {
		return
	}
	d.out.Now = d.Now
	if d.repetition() || d.stopped() {
		return
	}
	n := len(d.batch.Ops)
	d.out.Figures, d.out.Values, d.out.Skipped = make([]*Figures, n), make([]uint64, n), make([]bool, n)
	if d.batch.NotAfter != 0 && d.Now > d.batch.NotAfter {
		d.refuse(Refusal{Op: -1, Reason: Stale})
	}
	d.effects()
	if d.err != nil && d.answered() && isRecordError(d.err) {
		d.err, d.out.Records = nil, nil
	}
	if d.stopped() {
		return
	}
	if len(d.out.Refusals) > 0 {
		slices.SortStableFunc(d.out.Refusals, func(a, b Refusal) int { return cmp.Compare(a.Op, b.Op) })
		// What the ops that held would have left is not where anything stands.
		clear(d.out.Figures)
		clear(d.out.Values)
		clear(d.out.Skipped)
		d.out.Extra = false
		return
	}
	d.out.Applied = true
	if a := d.batch.anchor(); a != nil {
		d.out.Anchor = d.written(a.target())
	}
}

// effects checks every op, notes what it would write, and brings the counts
// in line.
func (d *decision) effects() {
	for i, op := range d.batch.Ops {
		before := len(d.out.Refusals)
		if d.op(i, op); d.stopped() {
			// What the op met is not known: that is no refusal.
			d.out.Refusals = d.out.Refusals[:before]
			return
		}
	}
	d.countInParents()
	d.giveExtras()
	d.keep()
	if d.short != nil && len(d.out.Refusals) == 0 {
		d.fail(d.short)
	}
	d.read()
	if !d.stopped() {
		d.count()
	}
}

// answered reports whether the record in the way of the anchor's Claim is the
// answer, whatever the rest of the batch meets.
func (d *decision) answered() bool {
	r, refused := d.out.Refused(0)
	_, claim := d.batch.anchor().(Claim)
	return refused && claim && r.Reason == Exists
}

func isRecordError(err error) bool {
	var damaged *RecordError
	return errors.As(err, &damaged)
}

// loadScope finds the record that every batch of the scope rests on. A batch
// that creates the scope is the only one that can do without, one that mends
// it the only one that can do with a damaged one.
func (d *decision) loadScope() bool {
	r := d.get(ScopeKey(d.batch.Scope))
	if d.stopped() {
		if len(d.need) > 0 {
			return d.known()
		}
		if len(d.batch.Ops) != 1 || d.batch.Ops[0].code() != opReplace || d.batch.Ops[0].target().Kind != KindScope {
			return false
		}
		d.err, d.scope = nil, &Scope{}
		return true
	}
	if r != nil {
		d.scope = r.scope
		return true
	}
	if len(d.batch.Ops) == 1 {
		if p, ok := d.batch.Ops[0].(PutScope); ok && p.IfVersion.IsZero() {
			d.scope = &p.Scope
			return true
		}
	}
	d.fail(ErrNoScope)
	return false
}

// known reports whether the view was told about every key that the batch names,
// and else asks for all of them at once.
func (d *decision) known() bool {
	for _, op := range d.batch.Ops {
		if op.code() == opRefuse {
			continue
		}
		d.ask(op.target())
		switch o := op.(type) {
		case PutBudget:
			if o.Parent != "" {
				d.ask(o.parentKey())
			}
		case Remove:
			for _, a := range o.Ancestors {
				d.ask(a.Key)
			}
		}
	}
	for _, k := range d.batch.Read {
		d.ask(k)
	}
	return len(d.need) == 0
}

// ask notes that the decision needs a key that the view was not told about.
func (d *decision) ask(key Key) {
	if _, known := d.view.entries[key]; !known && !slices.Contains(d.need, key) {
		d.need = append(d.need, key)
	}
}

// repetition reports whether the anchor shows that this batch was applied
// before, or that it comes too late to be: then no other op is looked at.
func (d *decision) repetition() bool {
	anchor := d.batch.anchor()
	if anchor == nil {
		return false
	}
	r := d.get(anchor.target())
	if r == nil {
		return false
	}
	over := r.expired(anchor.target().Kind, d.Now, d.scope)
	repeated := false
	switch o := anchor.(type) {
	case Claim:
		switch {
		case r.Token != o.Token:
		case r.State == Void:
			d.refuse(Refusal{Op: 0, Reason: Aborted, Record: r})
			return true
		case over:
			d.refuse(Refusal{Op: 0, Reason: Expired, Record: r})
			return true
		default:
			repeated = r.Digest == o.Digest
		}
	case Settle:
		repeated = !over && r.State == Settled && r.Token == newer(o.Token, o.NewToken) && r.Given == o.Given
	case Drop:
		repeated = !over && r.State == Void && r.Token == newer(o.Token, o.NewToken)
	case Update:
		repeated = r.State == Pending && o.left(r)
	case Bump:
		repeated = r.scope.Epoch == o.From+1 && r.Token == o.Token
	}
	if repeated {
		d.out.Repeated, d.out.Anchor = true, r
		d.read()
	}
	return repeated
}

// left reports whether r is what the Update leaves behind.
func (o Update) left(r *Record) bool {
	if !o.NewToken.IsZero() {
		return r.Token == o.NewToken && r.Given == o.Given
	}
	return r.Token == o.Token && r.Lease == o.Lease && r.Expires == o.Expires && string(r.Body) == string(o.Body)
}

// read notes the records that the batch asked to see.
func (d *decision) read() {
	for _, k := range d.batch.Read {
		d.out.Records = append(d.out.Records, d.get(k))
	}
}

// op checks one op and notes what it would write.
func (d *decision) op(i int, op Op) {
	if d.scope.Quarantine != "" && !whileRecovering(op) && !d.answersAlone(op) {
		d.refuse(Refusal{Op: i, Reason: Recovering})
		return
	}
	switch o := op.(type) {
	case Claim:
		d.claim(i, o)
	case Update:
		d.update(i, o)
	case Settle:
		d.settle(i, o)
	case Drop:
		d.drop(i, o)
	case Move:
		d.move(i, o)
	case Remove:
		d.remove(i, o)
	case PutBudget:
		d.putBudget(i, o)
	case PutScope:
		d.putScope(i, o)
	case PutKeyCheck:
		d.putKeyCheck(i, o)
	case Check:
		d.check(i, o)
	case Bump:
		d.bump(i, o)
	case Raise:
		d.raise(i, o)
	case Add:
		d.addWithin(i, o.Key, o.Amount, MaxAmount)
	case Spend:
		d.addWithin(i, o.Key, o.Amount, o.Limit)
	case Refund:
		d.refund(i, o)
	case Refuse:
		d.refuse(Refusal{Op: i, Reason: o.Reason})
	case Replace:
		d.replace(i, o)
	case Sweep:
		d.sweep(i, o)
	default:
		d.fail(invalidf("op %d: %v", i, errForeignOp))
	}
}

// answersAlone reports whether an op in a scope in quarantine meets a record
// whose state is the answer: replaying it begins nothing new.
func (d *decision) answersAlone(op Op) bool {
	r := d.get(op.target())
	if r == nil {
		return false
	}
	switch op.code() {
	case opClaim:
		return r.live(op.target().Kind, d.Now, d.scope)
	case opSettle, opUpdate:
		return r.State != Pending
	}
	return false
}

// keep stores the figures in the anchor's record, if asked.
func (d *decision) keep() {
	if !d.batch.Keep || len(d.out.Refusals) > 0 {
		return
	}
	key := d.batch.anchor().target()
	for _, w := range d.writes {
		if w.Key == key {
			var room [512]byte // of four budgets' figures
			w.Record.Result = bytes.Clone(appendResult(room[:0], &d.out))
		}
	}
}

// get gives the record of a key as every op of the batch finds it. A key that
// the view does not know, or cannot read, stops the decision.
func (d *decision) get(key Key) *Record {
	e, known := d.view.entries[key]
	switch {
	case !known:
		d.ask(key)
	case e.bad != nil:
		d.fail(e.bad.err)
	case e.rec != nil:
		return e.rec.seen(d.Now)
	}
	return nil
}

// written is get, but gives what the batch has already decided to write.
func (d *decision) written(key Key) *Record {
	for i := range d.writes {
		if d.writes[i].Key == key {
			return d.writes[i].Record
		}
	}
	return d.get(key)
}

// write notes the record that a key gets; nil deletes it.
func (d *decision) write(key Key, r *Record) {
	if r != nil {
		r.Version, r.Updated = d.Version, d.Now
	}
	for i := range d.writes {
		if d.writes[i].Key == key {
			d.writes[i].Record = r
			return
		}
	}
	if d.writes == nil {
		d.writes = make([]Write, 0, len(d.batch.Ops)+2)
	}
	d.writes = append(d.writes, Write{key, r})
}

func (d *decision) refuse(r Refusal) { d.out.Refusals = append(d.out.Refusals, r) }

func (d *decision) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *decision) stopped() bool { return d.err != nil || len(d.need) > 0 }

// generation names what the batch creates, differently for each batch of one
// commit.
func (d *decision) generation() Version {
	g := d.Version
	binary.BigEndian.PutUint32(g[12:], binary.BigEndian.Uint32(g[12:])^d.Seq)
	return g
}
