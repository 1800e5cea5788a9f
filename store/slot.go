package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/counterfoil/counterfoil/engine"

	"github.com/counterfoil/counterfoil/state"
)

// seat is this instance's place in a scope for one commit: the number of its
// writer record and of the quota shard that its claims count in.
type seat struct {
	slot uint16
	// fresh: the slot was never used, so that the scope must learn of it.
	fresh bool
	was   state.Version // of this instance's writer record there, zero if it has none yet
}

// seat finds the slot that this instance has in the scope, or the lowest one
// that is free. Every commit compares and replaces the writer record, so that
// the version in it tells whether an earlier commit of unknown outcome was
// applied, and so that no earlier one can be applied afterwards.
func (t *transaction) seat(view *state.View, snap engine.Snapshot) (seat, []state.Key, error) {
	sc := t.scope
	rec, _, err := view.Get(state.ScopeKey(sc.name))
	if err != nil || rec == nil {
		// Each batch fails by itself, but for one that creates or mends the scope.
		return t.unused(view, 0)
	}
	if sc.held {
		w, known, err := view.Get(state.WriterKey(sc.name, sc.slot))
		if !known {
			return seat{}, []state.Key{state.WriterKey(sc.name, sc.slot)}, nil
		}
		if err == nil && w != nil && w.Writer().Instance == t.store.instance {
			return t.own(sc.slot, w, snap), nil, nil
		}
		// Another instance took the slot, after this one's lease was over.
		sc.held = false
		sc.tenure++
	}
	return t.takeSeat(view, rec.Scope().Writers, snap)
}

// own is the seat that this instance has already. Its writer record settles what
// is in doubt.
func (t *transaction) own(slot uint16, w *state.Record, snap engine.Snapshot) seat {
	if !snap.Foretold {
		t.scope.found(w.Version)
		t.judge()
	}
	return seat{slot: slot, was: w.Version}
}

// judge looks whether one of the group's doubtful commits is known to be applied
// by now.
func (t *transaction) judge() {
	for _, c := range t.doubts {
		if c.applied {
			t.settled = c
		}
	}
}

// takeSeat looks at all slots of the scope. It is also where this instance
// learns the latest time that any other has decided on.
func (t *transaction) takeSeat(view *state.View, writers uint16, snap engine.Snapshot) (seat, []state.Key, error) {
	if t.judge(); t.settled != nil {
		return seat{}, nil, nil
	}
	if slices.ContainsFunc(t.doubts, func(c *commit) bool { return c.tenure != t.scope.tenure }) {
		return seat{}, nil, fmt.Errorf("%w: another instance took over before the commit was settled", state.ErrUnknown)
	}
	var missing []state.Key
	var mine *state.Record
	free, own := int(writers), -1
	for slot := range writers {
		key := state.WriterKey(t.scope.name, slot)
		w, known, err := view.Get(key)
		switch {
		case !known:
			missing = append(missing, key)
		case err != nil:
			// A damaged writer record keeps its slot until it is mended.
		case w == nil:
			free = min(free, int(slot))
		default:
			if w.Writer().Mark <= snap.Now+state.Tolerance {
				t.now = max(t.now, w.Writer().Mark)
			}
			if w.Writer().Instance == t.store.instance {
				own, mine = int(slot), w
			} else if w.Writer().Lease <= snap.Now || !t.store.guarantee.Shared {
				// What belongs to one process alone has no other that is alive.
				free = min(free, int(slot))
			}
		}
	}
	switch {
	case missing != nil:
		return seat{}, missing, nil
	case own >= 0:
		return t.own(uint16(own), mine, snap), nil, nil
	case free >= state.MaxWriters:
		return seat{}, nil, fmt.Errorf("%w: %d instances use the scope already", state.ErrUnavailable, free)
	}
	if free == int(writers) {
		return t.unused(view, writers)
	}
	return seat{slot: uint16(free)}, nil, nil //nolint:gosec // below MaxWriters.
}

// unused is the seat in a slot that was never taken. Its absence is compared
// like everything else.
func (t *transaction) unused(view *state.View, slot uint16) (seat, []state.Key, error) {
	key := state.WriterKey(t.scope.name, slot)
	if _, known, _ := view.Get(key); !known {
		return seat{}, []state.Key{key}, nil
	}
	return seat{slot: slot, fresh: true}, nil, nil
}

// writes gives what a commit from this seat writes besides its batches.
func (p seat) writes(view *state.View, instance [16]byte, scope string, version state.Version, now int64) []state.Write {
	w := state.Writer{Instance: instance, Mark: now, Lease: now + writerLease}
	list := []state.Write{{Key: state.WriterKey(scope, p.slot), Record: state.NewWriterRecord(w, version, now)}}
	if !p.fresh {
		return list
	}
	rec, _, err := view.Get(state.ScopeKey(scope))
	if err != nil || rec == nil || rec.Scope().Writers > p.slot {
		return list
	}
	body := *rec.Scope()
	body.Writers = p.slot + 1
	return append(list, state.Write{Key: state.ScopeKey(scope), Record: rec.WithScope(body, version, now)})
}

// leave gives the slots of a shared engine back before their leases are over,
// as far as that is quickly done. Nothing is under way any more.
func (s *Store) leave() {
	if !s.guarantee.Shared || s.latch != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveFor)
	defer cancel()
	for name, sc := range s.scopes {
		if !sc.held || ctx.Err() != nil {
			continue
		}
		key := state.WriterKey(name, sc.slot)
		err := s.engine.Transact(ctx, []state.Key{key}, func(snap engine.Snapshot) (engine.Plan, error) {
			return s.leaving(key, snap)
		})
		if err != nil {
			s.options.Log.Warn("a slot could not be given back; it is free when its lease is over", "error", err)
			return
		}
	}
}

func (s *Store) leaving(key state.Key, snap engine.Snapshot) (engine.Plan, error) {
	if snap.Items[0] == nil {
		return engine.Plan{}, nil
	}
	rec, err := s.open(key, snap.Items[0])
	if err != nil || rec.Writer().Instance != s.instance {
		return engine.Plan{}, err
	}
	var version state.Version
	if err := s.options.Entropy.Fill(version[:]); err != nil {
		return engine.Plan{}, err
	}
	w := *rec.Writer()
	w.Lease = min(w.Lease, snap.Now)
	item := s.keys.Load().Seal(key, state.NewWriterRecord(w, version, rec.Updated))
	return engine.Plan{Changes: []engine.Change{{Key: key, Item: item}}, NotAfter: snap.Now + notAfterMS}, nil
}
