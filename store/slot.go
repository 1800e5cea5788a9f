package store

import (
	"context"
	"fmt"

	"github.com/counterfoil/counterfoil/engine"

	"github.com/counterfoil/counterfoil/state"
)

// seat is this instance's place in a scope for one commit: the number of its
// writer record and of the quota shard that its claims count in.
type seat struct {
	slot uint16
	// fresh: the slot was never used, so that the scope must learn of it.
	fresh bool
}

// seat finds the slot that this instance has in the scope, or the lowest one
// that is free. Every commit compares and replaces the writer record, so that
// the version in it tells whether an earlier commit of unknown outcome was
// applied, and so that no earlier one can be applied afterwards.
func (t *transaction) seat(view *state.View, engineNow int64) (seat, []state.Key, error) {
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
			t.settle(w.Version)
			return seat{slot: sc.slot}, nil, nil
		}
		// Another instance took the slot, after this one's lease was over.
		sc.held = false
		open := t.lost()
		if open {
			return seat{}, nil, fmt.Errorf("%w: another instance took over before the commit was settled", state.ErrUnknown)
		}
	}
	return t.takeSeat(view, rec.Scope().Writers, engineNow)
}

// takeSeat looks at all slots of the scope. It is also where this instance
// learns the latest time that any other has decided on.
func (t *transaction) takeSeat(view *state.View, writers uint16, engineNow int64) (seat, []state.Key, error) {
	var missing []state.Key
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
			if w.Writer().Mark <= engineNow+state.Tolerance {
				t.now = max(t.now, w.Writer().Mark)
			}
			if w.Writer().Instance == t.store.instance {
				own = int(slot)
				t.settle(w.Version)
			} else if w.Writer().Lease <= engineNow || !t.store.guarantee.Shared {
				// What belongs to one process alone has no other that is alive.
				free = min(free, int(slot))
			}
		}
	}
	switch {
	case missing != nil:
		return seat{}, missing, nil
	case own >= 0:
		return seat{slot: uint16(own)}, nil, nil
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

// settle compares the version of this instance's writer record with the
// commits whose outcome is not known: the one that carries it was applied.
func (t *transaction) settle(found state.Version) {
	for _, a := range t.scope.attempts {
		if a.version == found && &a.group[0] == &t.group[0] {
			t.settled, t.settledAs = a.results, a.version
		}
	}
}

// lost forgets the commits whose outcome can no longer be learned, and reports
// whether one of them is of this group.
func (t *transaction) lost() bool {
	mine := false
	for _, a := range t.scope.attempts {
		mine = mine || &a.group[0] == &t.group[0]
	}
	t.scope.attempts = nil
	return mine
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
