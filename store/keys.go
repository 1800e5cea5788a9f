package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// ErrKeyInUse says that records are still sealed under an integrity key.
var ErrKeyInUse = errors.New("records are still sealed under the integrity key; run 'counterfoil key rotate' to the end first")

func keyCheckKey(id state.KeyID) state.Key {
	return state.Key{Scope: state.StoreScope, Kind: state.KindKeyCheck, ID: "integrity/" + hex.EncodeToString(id[:])}
}

// SetKeys gives the store other integrity keys while it is open. They must be
// able to read everything that is stored; a key to write with must have been
// announced, else it is [state.ErrKeyUnknown] and the old keys stay in use.
func (s *Store) SetKeys(ctx context.Context, keys *state.Keys) error {
	old := s.keys.Swap(keys)
	if err := s.checkKeys(ctx); err != nil {
		s.keys.Store(old)
		return err
	}
	return nil
}

// AnnounceKey tells the store that records may be sealed under the integrity
// key with that id from now on. From then on a process without it cannot open
// the store. It may be called again.
func (s *Store) AnnounceKey(ctx context.Context, id state.KeyID) error {
	check, ok := s.keys.Load().CheckValue(id)
	if !ok {
		return state.ErrKeyUnknown
	}
	out, err := s.Do(ctx, &state.Batch{Scope: state.StoreScope, Ops: []state.Op{state.PutKeyCheck{Key: keyCheckKey(id), Digest: check}}})
	if err != nil {
		return err
	}
	if r, ok := out.Because(state.Exists); ok && r.Record.Digest != check {
		return state.ErrKeyUnknown
	}
	return nil
}

// RetireKey makes the store forget an integrity key that no record is sealed
// under any more, so that a process without it can open the store.
func (s *Store) RetireKey(ctx context.Context, id state.KeyID) error {
	if id == s.keys.Load().WriteID() {
		return ErrKeyInUse
	}
	_, err := s.rewrite(ctx, func(_ state.Key, item *state.Sealed) (*state.Sealed, error) {
		if used, ok := state.SealedUnder(item); ok && used == id {
			return nil, ErrKeyInUse
		}
		return nil, nil //nolint:nilnil // nothing to rewrite.
	})
	if err != nil {
		return err
	}
	return s.must(ctx, &state.Batch{Scope: state.StoreScope, Ops: []state.Op{state.Remove{Key: keyCheckKey(id)}}})
}

// Reseal seals every record anew that is sealed under another key than the one
// to write with, in bounded batches beside other work, and counts them. A
// record that cannot be read is left as it is. What a record says, its version
// included, stays the same.
func (s *Store) Reseal(ctx context.Context) (int, error) {
	keys := s.keys.Load()
	return s.rewrite(ctx, func(key state.Key, item *state.Sealed) (*state.Sealed, error) {
		if used, ok := state.SealedUnder(item); !ok || used == keys.WriteID() {
			return nil, nil //nolint:nilnil // nothing to rewrite.
		}
		rec, err := keys.Open(key, item)
		if err != nil {
			return nil, nil //nolint:nilnil,nilerr // the doctor lists it.
		}
		return keys.Seal(key, rec), nil
	})
}

// rewrite walks over every record of every scope and puts in its place what
// change makes of it, nil to leave it, and counts what it put. Change may be
// called twice for a record.
func (s *Store) rewrite(ctx context.Context, change func(state.Key, *state.Sealed) (*state.Sealed, error)) (n int, err error) {
	err = s.eachScope(ctx, func(scope string) error {
		for _, kind := range state.Kinds() {
			for cursor := ""; ; {
				page, next, err := s.engine.Scan(ctx, scope, kind, "", cursor, rewriteBatch)
				if err != nil {
					return s.engineError(err)
				}
				put, err := s.rewritePage(ctx, page, change)
				if n += put; err != nil {
					return err
				}
				if cursor = next; cursor == "" {
					break
				}
			}
		}
		return nil
	})
	return n, err
}

func (s *Store) rewritePage(ctx context.Context, page []engine.Found, change func(state.Key, *state.Sealed) (*state.Sealed, error)) (n int, err error) {
	var keys []state.Key
	for _, f := range page {
		item, err := change(f.Key, f.Item)
		if err != nil {
			return 0, err
		}
		if item != nil {
			keys = append(keys, f.Key)
		}
	}
	if len(keys) == 0 {
		return 0, nil
	}
	err = s.engine.Transact(ctx, keys, func(snap engine.Snapshot) (engine.Plan, error) {
		plan := engine.Plan{NotAfter: snap.Now + notAfterMS}
		for i, item := range snap.Items {
			if item == nil {
				continue
			}
			next, err := change(snap.Keys[i], item)
			if err != nil {
				return engine.Plan{}, err
			}
			if next != nil {
				plan.Changes = append(plan.Changes, engine.Change{Key: snap.Keys[i], Item: next})
			}
		}
		n = len(plan.Changes)
		return plan, nil
	})
	if errors.Is(err, engine.ErrAmbiguous) || errors.Is(err, engine.ErrBroken) {
		return 0, fmt.Errorf("%w: %w", state.ErrUnknown, err)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// eachScope calls do for every scope, the store's own included.
func (s *Store) eachScope(ctx context.Context, do func(scope string) error) error {
	for cursor := ""; ; {
		names, next, err := s.engine.Scopes(ctx, cursor, 256)
		if err != nil {
			return s.engineError(err)
		}
		for _, name := range names {
			if err := do(name); err != nil {
				return err
			}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}
