package state

import "encoding/binary"

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

// tally gathers what a batch changes in the quotas, a line a shard.
type tally struct {
	scope string
	lines []line
}

type line struct {
	meter
	owner OwnerTag
	shard uint16
	delta int64
}

func (t *tally) add(m meter, owner OwnerTag, shard uint16, delta int64) {
	for i := range t.lines {
		if l := &t.lines[i]; l.meter == m && l.owner == owner && l.shard == shard {
			l.delta += delta
			return
		}
	}
	t.lines = append(t.lines, line{m, owner, shard, delta})
}

// replace counts the step from one record of a key to the next.
func (t *tally) replace(kind Kind, before, after *Record) {
	list, n := counts(kind, before)
	for _, c := range list[:n] {
		t.record(c, before, -1)
	}
	list, n = counts(kind, after)
	for _, c := range list[:n] {
		t.record(c, after, 1)
	}
}

func (t *tally) record(c count, r *Record, sign int64) {
	delta := sign * int64(c.n) //nolint:gosec // at most MaxBodyBytes.
	t.add(c.meter, OwnerTag{}, r.Shard, delta)
	if r.OwnerTag != (OwnerTag{}) {
		t.add(c.meter, r.OwnerTag, r.Shard, delta)
	}
}

// settle turns the tally into quota records to write. It reports the first
// meter that has no room, or nil; room is looked for in the shard's own
// allowance first, then in what no shard has been allowed, then in what other
// shards were allowed but do not use.
func (d *decision) settle(t *tally) (full *line) {
	for i := range t.lines {
		l := &t.lines[i]
		if l.delta == 0 {
			continue
		}
		q := d.quota(t.scope, l.meter, l.owner, l.shard)
		if d.stopped() {
			return nil
		}
		if l.delta < 0 {
			take := uint64(-l.delta)
			if q.Used < take {
				d.fail(&RecordError{Key: quotaKey(t.scope, l.meter, l.owner, l.shard), Err: ErrCorrupt})
				return nil
			}
			q.Used -= take
			d.putQuota(t.scope, l, q)
			continue
		}
		if !d.grow(t.scope, l, &q) {
			return l
		}
		if d.stopped() {
			return nil
		}
		q.Used += uint64(l.delta)
		d.putQuota(t.scope, l, q)
	}
	return nil
}

// grow makes room for l.delta within q's allowance, or reports that there is
// none. Unless the allowance is enough as it is, it looks at every shard.
func (d *decision) grow(scope string, l *line, q *quota) bool {
	limit := d.scope.Caps.of(l.meter, l.owner != OwnerTag{})
	need := q.Used + uint64(l.delta) //nolint:gosec // the caller has l.delta > 0.
	if need <= q.Allowance && q.Cap == limit {
		return true
	}
	shards := max(d.scope.Writers, l.shard+1)
	others := make([]quota, shards)
	var used, allowed uint64
	for s := range shards {
		if s == l.shard {
			continue
		}
		others[s] = d.quota(scope, l.meter, l.owner, s)
		used += others[s].Used
		allowed += max(others[s].Used, others[s].Allowance)
	}
	if d.stopped() {
		return true
	}
	if used+need > limit {
		return false
	}
	if allowed+need > limit || q.Cap != limit {
		// Take back what the others were allowed and do not use.
		for s := range shards {
			if o := others[s]; s != l.shard && o.Allowance > o.Used {
				o.Allowance = o.Used
				d.putQuota(scope, &line{l.meter, l.owner, s, 0}, o)
			}
		}
		allowed = used
	}
	free := limit - allowed - need
	q.Allowance, q.Cap = need+free/uint64(shards), limit
	return true
}

// quota reads a shard; an absent one has used and been allowed nothing.
func (d *decision) quota(scope string, m meter, owner OwnerTag, shard uint16) quota {
	if r := d.get(quotaKey(scope, m, owner, shard)); r != nil {
		return *r.quota
	}
	return quota{}
}

func (d *decision) putQuota(scope string, l *line, q quota) {
	key := quotaKey(scope, l.meter, l.owner, l.shard)
	if q.Used == 0 && (q.Allowance == 0 || l.owner != OwnerTag{}) {
		d.write(key, nil)
		return
	}
	d.write(key, &Record{State: Settled, quota: &q})
}
