package state

import (
	"encoding/binary"
	"errors"
	"slices"
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
// listed.
func Decide(v *View, b *Batch, c Context) Decision {
	d := decision{view: v, batch: b, Context: c}
	if d.err = b.Validate(); d.err == nil {
		d.run()
	}
	switch {
	case d.err != nil:
		return Decision{Err: d.err}
	case len(d.need) > 0:
		return Decision{Need: d.need}
	case !d.out.Applied:
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
	// adopted stands for an unreadable record in the count of what is replaced.
	adopted *Record
	need    []Key
	err     error
}

func (d *decision) run() {
	if !d.loadScope() {
		return
	}
	for _, op := range d.batch.Ops {
		if c := op.code(); c != opRefuse && c != opSweep && c != opReplace {
			d.get(op.target())
		}
	}
	for _, k := range d.batch.Read {
		d.get(k)
	}
	if d.stopped() {
		return
	}
	d.out.Now = d.Now
	if d.repetition() {
		return
	}
	n := len(d.batch.Ops)
	d.out.Figures, d.out.Values, d.out.Skipped = make([]*Figures, n), make([]uint64, n), make([]bool, n)
	for _, k := range d.batch.Read {
		d.out.Records = append(d.out.Records, d.shown(d.get(k)))
	}
	if d.batch.NotAfter != 0 && d.Now > d.batch.NotAfter {
		d.refuse(Refusal{Op: -1, Reason: Stale})
	}
	for i, op := range d.batch.Ops {
		d.op(i, op)
		if d.stopped() {
			return
		}
	}
	d.giveExtras()
	d.keep()
	d.count()
	if d.stopped() {
		return
	}
	if d.out.Applied = len(d.out.Refusals) == 0; !d.out.Applied {
		return
	}
	if a := d.batch.anchor(); a != nil {
		d.out.Anchor = d.get(a.target())
	}
}

// loadScope finds the record that every batch of the scope rests on. A batch
// that creates the scope is the only one that can do without.
func (d *decision) loadScope() bool {
	r := d.get(ScopeKey(d.batch.Scope))
	if d.stopped() {
		if len(d.batch.Ops) == 1 && d.batch.Ops[0].code() == opReplace && d.batch.Ops[0].target().Kind == KindScope {
			d.err, d.need = nil, nil
			d.scope = &Scope{}
			return true
		}
		return false
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

// repetition reports whether the anchor shows that this batch was applied
// before, or can never be: then no other op is looked at.
func (d *decision) repetition() bool {
	anchor := d.batch.anchor()
	if anchor == nil {
		return false
	}
	r := d.get(anchor.target())
	if r == nil {
		return false
	}
	repeated := false
	switch o := anchor.(type) {
	case Claim:
		if r.Token != o.Token {
			return false
		}
		if r.State == Void {
			d.refuse(Refusal{Op: 0, Reason: Aborted, Record: d.shown(r)})
			return true
		}
		repeated = r.Digest == o.Digest && r.live(o.Key.Kind, d.Now, d.scope)
	case Settle:
		repeated = r.State == Settled && !r.Tomb && r.Token == newer(o.Token, o.NewToken) && r.Given == o.Given
	case Drop:
		repeated = r.State == Void && r.Token == newer(o.Token, o.NewToken)
	case Update:
		if o.NewToken.IsZero() {
			repeated = r.State == Pending && r.Token == o.Token && r.Lease == o.Lease && r.Expires == o.Expires && string(r.Body) == string(o.Body)
		} else {
			repeated = r.State == Pending && r.Token == o.NewToken && r.Given == o.Given
		}
	case Bump:
		repeated = r.scope.Epoch == o.From+1 && r.Token == o.Token
	}
	if repeated {
		d.out.Repeated, d.out.Anchor = true, d.shown(r)
		for _, k := range d.batch.Read {
			d.out.Records = append(d.out.Records, d.shown(d.get(k)))
		}
	}
	return repeated
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
		d.settleRecord(i, o)
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
		d.add(i, o)
	case Spend:
		d.spend(i, o)
	case Refund:
		d.refund(i, o)
	case Refuse:
		d.refuse(Refusal{Op: i, Reason: o.Reason})
	case Replace:
		d.replace(i, o)
	case Sweep:
		d.sweep(i, o)
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
	case opSettle:
		return r.State != Pending
	}
	return false
}

func (d *decision) claim(i int, o Claim) {
	old := d.get(o.Key)
	if old != nil && old.live(o.Key.Kind, d.Now, d.scope) {
		d.refuse(Refusal{Op: i, Reason: Exists, Record: d.shown(old)})
		return
	}
	if o.Expires != 0 && o.Expires <= d.Now {
		d.refuse(Refusal{Op: i, Reason: Expired})
		return
	}
	r := &Record{
		State: o.State, Shard: d.Shard, Token: o.Token, Owner: o.Owner, OwnerTag: TagOwner(o.Owner), Digest: o.Digest,
		Created: d.Now, Expires: o.Expires, Lease: o.Lease, Body: o.Body,
	}
	switch o.Key.Kind {
	case KindOperation:
		r.Fence = uint64(d.Now) * 1000 //nolint:gosec // a time after 1970.
		if old != nil && old.Fence >= r.Fence {
			r.Fence = old.Fence + 1
		}
	case KindChallenge:
		r.Epoch, r.Generation = d.scope.Epoch, d.scope.Generation
	}
	d.write(o.Key, r)
}

// mine finds the live pending record that an op of its holder is about, or
// refuses.
func (d *decision) mine(i int, key Key, token Token, version Version) *Record {
	r := d.get(key)
	reason := Reason("")
	switch {
	case r == nil || r.State == Void && r.expired(key.Kind, d.Now, d.scope):
		d.refuse(Refusal{Op: i, Reason: Absent})
		return nil
	case r.Token != token:
		reason = NotHolder
	case r.State != Pending:
		reason = NotPending
	case r.expired(key.Kind, d.Now, d.scope):
		reason = Expired
	case !version.IsZero() && r.Version != version:
		reason = Changed
	}
	if reason != "" {
		d.refuse(Refusal{Op: i, Reason: reason, Record: d.shown(r)})
		return nil
	}
	return r
}

func (d *decision) update(i int, o Update) {
	r := d.mine(i, o.Key, o.Token, o.IfVersion)
	if r == nil {
		return
	}
	if o.IfLeaseAlive && r.Lease <= d.Now {
		d.refuse(Refusal{Op: i, Reason: LeaseOver, Record: d.shown(r)})
		return
	}
	if o.Expires != 0 && o.Expires <= d.Now {
		d.refuse(Refusal{Op: i, Reason: Expired})
		return
	}
	n := *r
	n.Token, n.Lease, n.Expires, n.Body = newer(o.Token, o.NewToken), o.Lease, o.Expires, o.Body
	if !o.NewToken.IsZero() || o.Given != (Digest{}) {
		n.Given = o.Given
	}
	d.write(o.Key, &n)
}

func (d *decision) settleRecord(i int, o Settle) {
	r := d.mine(i, o.Key, o.Token, o.IfVersion)
	if r == nil || d.leaseAlive(i, r, o.IfLeaseOver) {
		return
	}
	n := *r
	n.State, n.Token, n.Given, n.Body, n.Lease = Settled, newer(o.Token, o.NewToken), o.Given, o.Body, 0
	n.Retain, n.Expires = o.Retain, o.Expires
	d.write(o.Key, &n)
}

func (d *decision) drop(i int, o Drop) {
	r := d.mine(i, o.Key, o.Token, o.IfVersion)
	if r == nil || d.leaseAlive(i, r, o.IfLeaseOver) {
		return
	}
	n := *r
	n.State, n.Token, n.Given, n.Body, n.Lease = Void, newer(o.Token, o.NewToken), o.Given, o.Why, 0
	n.Retain, n.Expires, n.Result = 0, d.Now+VoidKeep, nil
	d.write(o.Key, &n)
}

// leaseAlive refuses if the op asks for the lease to be over and it is not.
func (d *decision) leaseAlive(i int, r *Record, asked bool) bool {
	if !asked || r.Lease == 0 || r.Lease <= d.Now {
		return false
	}
	d.refuse(Refusal{Op: i, Reason: LeaseAlive, Record: d.shown(r)})
	return true
}

func newer(token, newToken Token) Token {
	if newToken.IsZero() {
		return token
	}
	return newToken
}

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
	r := d.get(o.Key)
	if o.Key.Kind == KindScope {
		s := *d.scope
		if uint64(s.Floor) < to { //nolint:gosec // never negative.
			s.Floor = int64(to) //nolint:gosec // validated.
			n := *r
			n.scope = &s
			d.write(o.Key, &n)
		}
		d.out.Values[i] = uint64(s.Floor) //nolint:gosec // never negative.
		return
	}
	value := uint64(0)
	if r != nil {
		value = r.Value
	}
	if to > value {
		value = to
		d.putValue(o.Key, r, value)
	}
	d.out.Values[i] = value
}

func (d *decision) putValue(key Key, r *Record, value uint64) {
	n := Record{State: Settled, Shard: d.Shard, Created: d.Now}
	if r != nil {
		n = *r
	}
	n.Value = value
	d.write(key, &n)
}

func (d *decision) add(i int, o Add) {
	d.addWithin(i, o.Key, o.Amount, MaxAmount)
}

func (d *decision) spend(i int, o Spend) {
	d.addWithin(i, o.Key, o.Amount, o.Limit)
}

func (d *decision) addWithin(i int, key Key, amount, limit uint64) {
	r := d.get(key)
	value := uint64(0)
	if r != nil {
		value = r.Value
	}
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
	switch {
	case r == nil && !o.IfVersion.IsZero(), r != nil && r.Version != o.IfVersion:
		d.refuse(Refusal{Op: i, Reason: Changed, Record: r})
		return
	case r == nil:
		r = &Record{State: Settled, Created: d.Now}
	case o.Scope.Generation < r.scope.Generation || o.Scope.Epoch < r.scope.Epoch || o.Scope.Floor < r.scope.Floor || o.Scope.Writers < r.scope.Writers:
		d.fail(invalidf("a scope's generation, epoch, floor and writers never go back"))
		return
	}
	s := o.Scope
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

// sweep does what the expiry index promised, if the record is still due: a
// receipt past its retention becomes a tombstone as soon as there is room for
// one, everything else that is over for long enough goes.
func (d *decision) sweep(i int, o Sweep) {
	r := d.getUnchecked(o.Key)
	if r == nil {
		d.out.Skipped[i] = true
		return
	}
	due := r.ExpiryIndex()
	if due == 0 || due > d.Now {
		d.out.Skipped[i] = true
		return
	}
	if due == r.Retain && r.State == Settled && !r.Tomb && (r.Expires == 0 || d.Now < r.Expires+KeepPast) {
		d.write(o.Key, &Record{
			State: Settled, Tomb: true, Shard: r.Shard, OwnerTag: r.OwnerTag, Created: r.Created, Expires: r.Expires, Fence: r.Fence,
		})
		return
	}
	d.write(o.Key, nil)
}

// replace overwrites a record that nobody can read. Which quota slot it was
// counted in cannot be read either, so it takes over one of its owner's.
func (d *decision) replace(i int, o Replace) {
	e, known := d.view.entries[o.Key]
	switch {
	case !known:
		d.need = append(d.need, o.Key)
		return
	case e.err == nil:
		d.refuse(Refusal{Op: i, Reason: Readable, Record: d.shown(e.rec)})
		return
	case !errors.Is(e.err, ErrCorrupt):
		d.fail(e.err)
		return
	case e.stored != o.Version:
		d.refuse(Refusal{Op: i, Reason: Changed})
		return
	}
	n := &Record{
		State: o.State, Shard: d.Shard, Owner: o.Owner, OwnerTag: TagOwner(o.Owner), Token: o.Token, Digest: o.Digest, Given: o.Given,
		Created: d.Now, Retain: o.Retain, Expires: o.Expires, Body: o.Body,
	}
	if o.State == Void {
		n.Expires = d.Now + VoidKeep
	}
	if err := n.decodeBody(o.Key.Kind); err != nil {
		d.fail(invalidf("op %d: the body does not fit the kind", i))
		return
	}
	if o.Key.Kind.counted() {
		d.adopt(o.Key, n)
	}
	d.write(o.Key, n)
}

// adopt counts n, which replaces an unreadable record, in the shard that
// counts a record of its kind and owner, and takes one off there: the
// unreadable record's.
func (d *decision) adopt(key Key, n *Record) {
	live := meter{key.Kind, meterLive}
	for s := range max(d.scope.Writers, d.Shard+1) {
		if d.quota(key.Scope, live, n.OwnerTag, s).Used > 0 && d.quota(key.Scope, live, OwnerTag{}, s).Used > 0 {
			n.Shard = s
			d.adopted = &Record{State: Pending, Shard: s, OwnerTag: n.OwnerTag}
			return
		}
	}
}

// count brings the quotas in line with what the batch writes.
func (d *decision) count() {
	if d.stopped() {
		return
	}
	records := len(d.writes)
	full := d.settle(d.tally(records))
	if full != nil && full.what == meterBytes && d.shorten() {
		d.writes = d.writes[:records]
		full = d.settle(d.tally(records))
	}
	if full == nil {
		return
	}
	if full.what == meterTombs {
		// No room for a tombstone: the receipt stays in its place.
		d.unsweep()
		return
	}
	reason := Full
	if full.owner != (OwnerTag{}) {
		reason = OwnerFull
	}
	d.refuse(Refusal{Op: d.claimOf(full.kind), Reason: reason})
}

func (d *decision) tally(records int) *tally {
	t := &tally{scope: d.batch.Scope}
	for _, w := range d.writes[:records] {
		before := d.view.entries[w.Key].rec
		if d.adopted != nil && d.view.entries[w.Key].err != nil {
			before = d.adopted
		}
		t.replace(w.Key.Kind, before, w.Record)
	}
	return t
}

// shorten replaces the body of the receipt that the batch settles by its short
// form.
func (d *decision) shorten() bool {
	for _, op := range d.batch.Ops {
		o, ok := op.(Settle)
		if !ok || o.Key.Kind != KindOperation {
			continue
		}
		for i := range d.writes {
			if d.writes[i].Key == o.Key {
				n := *d.writes[i].Record
				n.Body = o.Short
				d.writes[i].Record = &n
				return true
			}
		}
	}
	return false
}

// unsweep gives up on tombstones: a batch of the sweeper that finds no room
// for them does nothing.
func (d *decision) unsweep() {
	d.writes = nil
	for i := range d.out.Skipped {
		d.out.Skipped[i] = true
	}
}

func (d *decision) claimOf(kind Kind) int {
	return max(0, slices.IndexFunc(d.batch.Ops, func(op Op) bool { return op.code() != opRefuse && op.target().Kind == kind }))
}

// keep stores the figures in the anchor's record, if asked.
func (d *decision) keep() {
	if !d.batch.Keep || d.stopped() {
		return
	}
	key := d.batch.anchor().target()
	for i := range d.writes {
		if d.writes[i].Key == key {
			n := *d.writes[i].Record
			n.Result = appendResult(nil, &d.out)
			d.writes[i].Record = &n
			return
		}
	}
}

// get gives the record of a key as the batch finds it, or as it has already
// decided to write it. A key that the view does not know, or cannot read,
// stops the decision.
func (d *decision) get(key Key) *Record {
	for i := range d.writes {
		if d.writes[i].Key == key {
			return d.writes[i].Record
		}
	}
	e, known := d.view.entries[key]
	switch {
	case !known:
		if !slices.Contains(d.need, key) {
			d.need = append(d.need, key)
		}
	case e.err != nil:
		d.fail(e.err)
	}
	return e.rec
}

// getUnchecked is get for the sweeper, which passes over what it cannot read.
func (d *decision) getUnchecked(key Key) *Record {
	e, known := d.view.entries[key]
	if !known {
		d.need = append(d.need, key)
	}
	return e.rec
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
	d.writes = append(d.writes, Write{key, r})
}

// shown is a record as an answer may show it: without the body of a receipt
// whose retention is over.
func (d *decision) shown(r *Record) *Record {
	if r == nil || r.State != Settled || r.Retained(d.Now) {
		return r
	}
	n := *r
	n.Body, n.Result, n.Given = nil, nil, Digest{}
	return &n
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
