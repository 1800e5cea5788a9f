package state

import (
	"errors"

	"github.com/counterfoil/counterfoil/internal/planted"
)

// The life of a claimed record: claim, update, settle, drop, sweep, replace.

func (d *decision) claim(i int, o Claim) {
	old := d.get(o.Key)
	if old != nil && old.live(o.Key.Kind, d.Now, d.scope) {
		if planted.On(planted.OwnTokenAnywhere) && old.Token == o.Token {
			return
		}
		d.refuse(Refusal{Op: i, Reason: Exists, Record: old})
		return
	}
	if d.past(i, o.Expires) {
		return
	}
	r := &Record{
		State: o.State, Shard: d.Shard, Token: o.Token, Owner: o.Owner, OwnerTag: d.view.tag(o.Owner), Digest: o.Digest,
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

// past refuses an op that would leave a record that is over from the start.
func (d *decision) past(i int, expires int64) bool {
	if expires == 0 || expires > d.Now {
		return false
	}
	d.refuse(Refusal{Op: i, Reason: Expired})
	return true
}

// mine finds the live pending record that an op of its holder is about, or
// refuses.
func (d *decision) mine(i int, key Key, token Token, version Version) *Record {
	r := d.get(key)
	over := r != nil && r.expired(key.Kind, d.Now, d.scope)
	var reason Reason
	switch {
	case r == nil || r.State == Void && over:
		d.refuse(Refusal{Op: i, Reason: Absent})
		return nil
	case r.State == Settled && over:
		reason = Expired
	case r.Token != token:
		reason = NotHolder
	case r.State != Pending:
		reason = NotPending
	case over:
		reason = Expired
	case !version.IsZero() && r.Version != version:
		reason = Changed
	default:
		return r
	}
	d.refuse(Refusal{Op: i, Reason: reason, Record: r})
	return nil
}

func (d *decision) update(i int, o Update) {
	r := d.mine(i, o.Key, o.Token, o.IfVersion)
	if r == nil {
		return
	}
	if o.IfLeaseAlive && r.Lease <= d.Now {
		d.refuse(Refusal{Op: i, Reason: LeaseOver, Record: r})
		return
	}
	if d.past(i, o.Expires) {
		return
	}
	n := *r
	n.Token, n.Lease, n.Expires, n.Body = newer(o.Token, o.NewToken), o.Lease, o.Expires, o.Body
	if !o.NewToken.IsZero() || o.Given != (Digest{}) {
		n.Given = o.Given
	}
	d.write(o.Key, &n)
}

func (d *decision) settle(i int, o Settle) {
	r := d.mine(i, o.Key, o.Token, o.IfVersion)
	if r == nil || d.leaseAlive(i, r, o.IfLeaseOver) || d.past(i, o.Expires) {
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
	if !asked || r.Lease <= d.Now {
		return false
	}
	d.refuse(Refusal{Op: i, Reason: LeaseAlive, Record: r})
	return true
}

func newer(token, newToken Token) Token {
	if newToken.IsZero() {
		return token
	}
	return newToken
}

// sweep does what the expiry index promised, if the record is still due: a
// receipt past its retention becomes a tombstone as soon as there is room for
// one, everything else that is over for long enough goes. It passes over what
// it cannot read.
func (d *decision) sweep(i int, o Sweep) {
	r := d.view.entries[o.Key].rec
	if r == nil {
		d.out.Skipped[i] = true
		return
	}
	due := r.ExpiryIndex(o.Key.Kind)
	switch {
	case due == 0 || due > d.Now:
		d.out.Skipped[i] = true
	case r.shrinks() && (r.Expires == 0 || d.Now < r.Expires+KeepPast):
		d.write(o.Key, r.tombstone())
	default:
		d.write(o.Key, nil)
	}
}

// replace overwrites a record that nobody can read. Where it was counted cannot
// be read either, so it takes over a place of its kind and owner.
func (d *decision) replace(i int, o Replace) {
	bad := d.view.entries[o.Key].bad
	switch {
	case bad == nil:
		d.refuse(Refusal{Op: i, Reason: Readable, Record: d.get(o.Key)})
		return
	case !errors.Is(bad.err, ErrCorrupt):
		d.fail(bad.err)
		return
	case bad.stored != o.Version:
		d.refuse(Refusal{Op: i, Reason: Changed})
		return
	case d.past(i, o.Expires):
		return
	}
	n := &Record{
		State: o.State, Shard: d.Shard, Owner: o.Owner, OwnerTag: d.view.tag(o.Owner), Token: o.Token, Digest: o.Digest, Given: o.Given,
		Created: d.Now, Retain: o.Retain, Expires: o.Expires, Body: o.Body,
	}
	if o.State == Void {
		n.Retain, n.Expires = 0, d.Now+VoidKeep
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

// adopt lets n, which replaces an unreadable record, take over that one's place
// in the counts, if records of its kind and owner are counted at all.
func (d *decision) adopt(key Key, n *Record) {
	used := uint64(0)
	for s := range max(d.scope.Writers, d.Shard+1) {
		used += d.quota(quotaKey(key.Scope, meter{key.Kind, meterLive}, n.OwnerTag, s)).Used
	}
	if used > 0 {
		d.adopted = &Record{State: Pending, Shard: n.Shard, OwnerTag: n.OwnerTag}
	}
}
