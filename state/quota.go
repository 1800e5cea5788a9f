package state

import (
	"encoding/binary"
	"slices"

	"github.com/counterfoil/counterfoil/internal/planted"
)

// meter is one thing that is counted: live records or tombstones of a kind, or
// bytes of receipts.
type meter struct {
	kind Kind
	what meterWhat
}

type meterWhat uint8

const (
	meterLive  meterWhat = 1
	meterTombs meterWhat = 2
	meterBytes meterWhat = 3
)

// quota is one shard of one meter, of a scope or of one owner in it. A store
// instance grows Used freely up to Allowance; the allowances of all shards
// together never exceed Cap, so that the sum of Used never does either.
type quota struct {
	Used      uint64
	Allowance uint64
	Cap       uint64 // that the allowance was granted under
}

// quotaKey is the key of a shard: meter, shard, and the owner's tag if the
// count is an owner's.
func quotaKey(scope string, m meter, owner OwnerTag, shard uint16) Key {
	id := make([]byte, 0, 4+len(owner))
	id = append(id, byte(m.kind), byte(m.what))
	if owner != (OwnerTag{}) {
		id = append(id, owner[:]...)
	}
	id = binary.BigEndian.AppendUint16(id, shard)
	return Key{Scope: scope, Kind: KindQuota, ID: string(id)}
}

func (c Caps) of(m meter, owner bool) uint64 {
	switch {
	case m.what == meterLive && owner:
		return c.OwnerLive
	case m.what == meterLive:
		return c.Live
	case m.what == meterTombs && owner:
		return c.OwnerTombstones
	case m.what == meterTombs:
		return c.Tombstones
	case owner:
		return c.OwnerBytes
	}
	return c.Bytes
}

// counts lists what a record of that kind counts as, nothing if it is nil or
// void.
func counts(kind Kind, r *Record) (list [2]count, n int) {
	if r == nil || r.State == Void || !kind.counted() {
		return list, 0
	}
	if r.Tomb {
		list[0] = count{meter{kind, meterTombs}, 1}
		return list, 1
	}
	list[0] = count{meter{kind, meterLive}, 1}
	if size := len(r.Body); kind == KindOperation && r.State == Settled && size > FreeBodyBytes {
		list[1] = count{meter{kind, meterBytes}, uint64(size)}
		return list, 2
	}
	return list, 1
}

type count struct {
	meter
	n uint64
}

// FreeBodyBytes is the size up to which a receipt does not count in the quota
// of receipt bytes: the short form of one that is not retained always fits.
const FreeBodyBytes = 128

// line is what a batch changes in one shard of one meter.
type line struct {
	meter
	owner OwnerTag
	shard uint16
	delta int64
}

// tally gathers what a batch changes in the counts, a line a shard.
type tally []line

func (t tally) add(m meter, owner OwnerTag, shard uint16, delta int64) tally {
	for i := range t {
		if l := &t[i]; l.meter == m && l.owner == owner && l.shard == shard {
			l.delta += delta
			return t
		}
	}
	return append(t, line{m, owner, shard, delta})
}

// net is what changes in all shards of the meter and owner of l together.
func (t tally) net(l line) (sum int64) {
	for _, o := range t {
		if o.meter == l.meter && o.owner == l.owner {
			sum += o.delta
		}
	}
	return sum
}

// record adds what r counts as, with a sign.
func (t tally) record(kind Kind, r *Record, sign int64) tally {
	list, n := counts(kind, r)
	for _, c := range list[:n] {
		delta := sign * int64(c.n) //nolint:gosec // at most MaxBodyBytes.
		t = t.add(c.meter, OwnerTag{}, r.Shard, delta)
		if r.OwnerTag != (OwnerTag{}) {
			t = t.add(c.meter, r.OwnerTag, r.Shard, delta)
		}
	}
	return t
}

// count brings the counts in line with what the batch writes. At a cap a
// receipt is kept in its short form, a tombstone is not made yet, and anything
// else is refused.
func (d *decision) count() {
	records := len(d.writes)
	for {
		full := d.countWrites(records)
		if d.stopped() || len(full) == 0 {
			return
		}
		d.writes = d.writes[:records]
		if d.shorten(full) {
			continue
		}
		if d.unsweep(full) {
			records--
			continue
		}
		for _, l := range full {
			reason := Full
			if l.owner != (OwnerTag{}) {
				reason = OwnerFull
			}
			op := d.growing(l)
			if !slices.ContainsFunc(d.out.Refusals, func(r Refusal) bool { return r.Op == op && r.Reason == reason }) {
				d.refuse(Refusal{Op: op, Reason: reason})
			}
		}
		return
	}
}

// countWrites adds the changed count shards to the first records of the
// writes. It gives the lines for which there is no room. What gets smaller
// goes first, so that it makes room.
func (d *decision) countWrites(records int) (full []line) {
	var room [4]line
	t := tally(room[:0])
	for _, w := range d.writes[:records] {
		e := d.view.entries[w.Key]
		if e.bad != nil {
			e.rec = d.adopted
		}
		t = t.record(w.Key.Kind, e.rec, -1)
		t = t.record(w.Key.Kind, w.Record, 1)
	}
	for _, l := range t {
		if l.delta < 0 {
			d.shrink(l)
		}
	}
	for _, l := range t {
		if l.delta > 0 && !d.grow(l, t.net(l)) {
			full = append(full, l)
		}
	}
	return full
}

// shrink takes off what is no longer there. Where an operator replaced a record
// that could not be read, its shard was a guess: what this shard lacks is then
// counted in others. It stops at 0, as what was replaced may not have been
// counted at all.
func (d *decision) shrink(l line) {
	take := uint64(-l.delta) //nolint:gosec // the caller has l.delta < 0.
	own := d.uncount(l, l.shard, take)
	for s := uint16(0); own < take && s < d.scope.Writers; s++ {
		own += d.uncount(l, s, take-own)
	}
}

// uncount takes off at most that much in one shard, and gives how much it was.
func (d *decision) uncount(l line, shard uint16, most uint64) uint64 {
	key := d.countKey(l, shard)
	q := d.quota(key)
	n := min(q.Used, most)
	if n > 0 {
		q.Used -= n
		d.putQuota(key, q)
	}
	return n
}

// grow makes room for l within the allowance of its shard, or reports that
// there is none. Unless the allowance is enough as it is, it looks at every
// shard, and takes room first from what no shard has been allowed, then from
// what others were allowed but do not use. Whoever finds a cap other than the
// one that allowances were granted under settles all of them anew. What only
// moves from one shard to another (a net of 0) is never refused, but gets no
// allowance where a lowered cap is overrun.
func (d *decision) grow(l line, net int64) bool {
	own := d.countKey(l, l.shard)
	q := d.quota(own)
	limit := d.scope.Caps.of(l.meter, l.owner != OwnerTag{})
	need := q.Used + uint64(l.delta) //nolint:gosec // the caller has l.delta > 0.
	if need <= q.Allowance && q.Cap == limit {
		q.Used = need
		d.putQuota(own, q)
		return true
	}
	shards := max(d.scope.Writers, l.shard+1)
	var used, allowed uint64
	changed := q != quota{} && q.Cap != limit
	for s := range shards {
		if s == l.shard {
			continue
		}
		o := d.quota(d.countKey(l, s))
		used += o.Used
		allowed += max(o.Used, o.Allowance)
		changed = changed || o != quota{} && o.Cap != limit
	}
	if d.stopped() {
		return true
	}
	if used+need > limit {
		if net <= 0 {
			d.settleOthers(l, shards, 0) // no cap has room for what they were allowed
			d.putQuota(own, quota{Used: need})
		}
		return net <= 0
	}
	if changed || allowed+need > limit {
		d.settleOthers(l, shards, limit)
		allowed = used
	}
	free := limit - allowed - need
	d.putQuota(own, quota{Used: need, Allowance: need + free/uint64(shards), Cap: limit})
	return true
}

// settleOthers takes back what the other shards of l were allowed and do not
// use, under a cap; under 0, the next of them to grow looks at all again.
func (d *decision) settleOthers(l line, shards uint16, limit uint64) {
	for s := range shards {
		key := d.countKey(l, s)
		if o := d.quota(key); s != l.shard && o != (quota{}) {
			d.putQuota(key, quota{Used: o.Used, Allowance: min(o.Used, limit), Cap: limit})
		}
	}
}

func (d *decision) countKey(l line, shard uint16) Key {
	return quotaKey(d.batch.Scope, l.meter, l.owner, shard)
}

// quota reads a shard; an absent one has used and been allowed nothing.
func (d *decision) quota(key Key) quota {
	if planted.On(planted.UncomparedCount) {
		if _, known := d.view.entries[key]; !known {
			return quota{}
		}
	}
	if r := d.written(key); r != nil {
		return *r.quota
	}
	return quota{}
}

// putQuota writes a shard. One that counts nothing goes; a scope's is kept for
// what it was allowed.
func (d *decision) putQuota(key Key, q quota) {
	if q.Used == 0 && (q.Allowance == 0 || len(key.ID) > len(OwnerTag{})) {
		d.write(key, nil)
		return
	}
	n := &struct {
		Record
		q quota
	}{Record{State: Settled}, q}
	n.Record.quota = &n.q
	d.write(key, &n.Record)
}

// shorten replaces the body of a receipt that finds no room by its short form.
func (d *decision) shorten(full []line) bool {
	for _, op := range d.batch.Ops {
		o, ok := op.(Settle)
		if !ok || o.Key.Kind != KindOperation || len(o.Body) <= FreeBodyBytes {
			continue
		}
		for i, w := range d.writes {
			if w.Key == o.Key && len(w.Record.Body) > FreeBodyBytes && lacks(full, w.Record) {
				n := *w.Record
				n.Body = o.Short
				d.writes[i].Record = &n
				return true
			}
		}
	}
	return false
}

// unsweep takes back a tombstone that finds no room, the last of an owner who
// has none rather than somebody else's: its receipt stays in its place.
func (d *decision) unsweep(full []line) bool {
	for _, l := range slices.Backward(full) { // a scope's line stands before those of its owners
		for i, w := range slices.Backward(d.writes) {
			if l.what != meterTombs || w.Record == nil || l.in(w.Key.Kind, w.Record) == 0 {
				continue
			}
			d.out.Skipped[slices.IndexFunc(d.batch.Ops, func(op Op) bool { return op.target() == w.Key })] = true
			d.writes = slices.Delete(d.writes, i, i+1)
			return true
		}
	}
	return false
}

// lacks reports whether r is a receipt that a full line counts the bytes of.
func lacks(full []line, r *Record) bool {
	return slices.ContainsFunc(full, func(l line) bool { return l.what == meterBytes && l.in(KindOperation, r) > 0 })
}

// growing finds the op that a full line refuses: the first that adds to it.
func (d *decision) growing(l line) int {
	return max(0, slices.IndexFunc(d.batch.Ops, func(op Op) bool {
		if op.code() == opRefuse {
			return false
		}
		key := op.target()
		return l.in(key.Kind, d.written(key)) > l.in(key.Kind, d.view.entries[key].rec)
	}))
}

// in is how much of r counts in the meter and owner of l.
func (l line) in(kind Kind, r *Record) uint64 {
	list, n := counts(kind, r)
	for _, c := range list[:n] {
		if c.meter == l.meter && (l.owner == OwnerTag{} || l.owner == r.OwnerTag) {
			return c.n
		}
	}
	return 0
}
