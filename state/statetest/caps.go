package statetest

import (
	"slices"

	"github.com/counterfoil/counterfoil/state"
)

// counted is one thing that has a cap; the zero owner is the scope.
type counted struct {
	kind  state.Kind
	what  string
	owner state.OwnerTag
}

type weight struct {
	counted
	n uint64
}

// weigh gives what a record counts as.
func weigh(kind state.Kind, f *Fact) (all []weight) {
	if f == nil || f.State == state.Void || kind < state.KindFloor {
		return nil
	}
	put := func(what string, n uint64) {
		all = append(all, weight{counted{kind, what, state.OwnerTag{}}, n})
		if f.ownerTag != (state.OwnerTag{}) {
			all = append(all, weight{counted{kind, what, f.ownerTag}, n})
		}
	}
	if f.Tomb {
		put("tombstones", 1)
		return all
	}
	put("live", 1)
	if kind == state.KindOperation && f.State == state.Settled && len(f.Body) > state.FreeBodyBytes {
		put("bytes", uint64(len(f.Body)))
	}
	return all
}

func (f *Fact) weighs(kind state.Kind, c counted) uint64 {
	for _, w := range weigh(kind, f) {
		if w.counted == c {
			return w.n
		}
	}
	return 0
}

func (t *trial) capOf(c counted) uint64 {
	caps, owner := t.scope.Caps, c.owner != state.OwnerTag{}
	switch {
	case c.what == "live" && owner:
		return caps.OwnerLive
	case c.what == "live":
		return caps.Live
	case c.what == "tombstones" && owner:
		return caps.OwnerTombstones
	case c.what == "tombstones":
		return caps.Tombstones
	case owner:
		return caps.OwnerBytes
	}
	return caps.Bytes
}

// full lists what would grow above its cap.
func (t *trial) full() map[counted]bool {
	before, after := map[counted]uint64{}, map[counted]uint64{}
	for k, f := range t.Facts {
		for _, w := range weigh(k.Kind, f) {
			before[w.counted] += w.n
			after[w.counted] += w.n
		}
	}
	for k, f := range t.after {
		for _, w := range weigh(k.Kind, t.Facts[k]) {
			after[w.counted] -= w.n
		}
		for _, w := range weigh(k.Kind, f) {
			after[w.counted] += w.n
		}
	}
	full := map[counted]bool{}
	for c, n := range after {
		if n > before[c] && n > t.capOf(c) {
			full[c] = true
		}
	}
	return full
}

func (t *trial) checkCaps() {
	full := t.full()
	for len(full) > 0 && t.makeDo(full) {
		full = t.full()
	}
	for i, op := range t.b.Ops {
		key := keyOf(op)
		f, written := t.after[key]
		if !written {
			continue
		}
		for _, w := range weigh(key.Kind, f) {
			if !full[w.counted] || w.n <= t.Facts[key].weighs(key.Kind, w.counted) {
				continue
			}
			reason := state.Full
			if w.owner != (state.OwnerTag{}) {
				reason = state.OwnerFull
			}
			delete(full, w.counted)
			if !slices.ContainsFunc(t.a.Refusals, func(r Refused) bool { return r.Op == i && r.Reason == reason }) {
				t.refuse(i, reason)
			}
		}
	}
}

// makeDo keeps a receipt in its short form, or leaves a receipt that a sweep
// would have made a tombstone of.
func (t *trial) makeDo(full map[counted]bool) bool {
	lacks := func(key state.Key, what string, owners bool) bool {
		return slices.ContainsFunc(weigh(key.Kind, t.after[key]), func(w weight) bool {
			return w.what == what && full[w.counted] && (!owners || w.owner != state.OwnerTag{})
		})
	}
	for _, op := range t.b.Ops {
		if o, ok := op.(state.Settle); ok && lacks(o.Key, "bytes", false) {
			f := *t.after[o.Key]
			f.Body = string(o.Short)
			t.after[o.Key] = &f
			return true
		}
	}
	for _, owners := range []bool{true, false} {
		for i, op := range slices.Backward(t.b.Ops) {
			if o, ok := op.(state.Sweep); ok && lacks(o.Key, "tombstones", owners) {
				delete(t.after, o.Key)
				t.a.Skipped[i] = true
				return true
			}
		}
	}
	return false
}

// keyOf gives the key that an op is about.
func keyOf(op state.Op) state.Key {
	switch o := op.(type) {
	case state.Claim:
		return o.Key
	case state.Update:
		return o.Key
	case state.Settle:
		return o.Key
	case state.Drop:
		return o.Key
	case state.Move:
		return o.Key
	case state.Remove:
		return o.Key
	case state.PutBudget:
		return o.Key
	case state.PutScope:
		return o.Key
	case state.PutKeyCheck:
		return o.Key
	case state.Check:
		return o.Key
	case state.Bump:
		return o.Key
	case state.Raise:
		return o.Key
	case state.Add:
		return o.Key
	case state.Spend:
		return o.Key
	case state.Refund:
		return o.Key
	case state.Replace:
		return o.Key
	case state.Sweep:
		return o.Key
	}
	return state.Key{}
}
