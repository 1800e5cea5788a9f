package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// ErrScopeExists says that a scope of that name is there already.
var ErrScopeExists = errors.New("the scope exists already")

// CreateScope creates a scope of the store's present generation.
func (s *Store) CreateScope(ctx context.Context, name string) error {
	if err := state.CheckScopeName(name); err != nil {
		return fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	_, generation, err := s.identity(ctx)
	if err != nil {
		return err
	}
	return s.createScope(ctx, name, generation)
}

func (s *Store) createScope(ctx context.Context, name string, generation uint64) error {
	body := state.NewScope(generation)
	// The scope begins on this history of the data, so that its first use, which may be a refusal, notes nothing.
	snap, err := s.engine.Read(ctx, []state.Key{state.ScopeKey(name)})
	if err != nil {
		return s.engineError(err)
	}
	body.Lineage = snap.Lineage.ID
	out, err := s.do(ctx, &state.Batch{Scope: name, Ops: []state.Op{
		state.PutScope{Key: state.ScopeKey(name), Scope: body},
	}})
	if err != nil {
		return err
	}
	if !out.Applied {
		return ErrScopeExists
	}
	return nil
}

// Scopes lists the callers' scopes by name, from cursor on.
func (s *Store) Scopes(ctx context.Context, cursor string, limit int) ([]string, string, error) {
	if err := s.ready(); err != nil {
		return nil, "", err
	}
	names, next, err := s.engine.Scopes(ctx, cursor, limit)
	if err != nil {
		return nil, "", s.engineError(err)
	}
	list := make([]string, 0, len(names))
	for _, n := range names {
		if n != state.StoreScope {
			list = append(list, n)
		}
	}
	return list, next, nil
}

// Scope reads a scope's record, as [Store.Read] does.
func (s *Store) Scope(ctx context.Context, name string) (state.Scope, error) {
	recs, err := s.Read(ctx, state.ScopeKey(name))
	if err != nil {
		return state.Scope{}, err
	}
	if recs[0] == nil {
		return state.Scope{}, state.ErrNoScope
	}
	return *recs[0].Scope(), nil
}

// changeTries bounds how often a change of a scope record is tried against
// others who change it too.
const changeTries = 16

// ChangeScope lets change edit a scope's record and writes it back if nobody
// else has changed it since, else it starts again. An error of change stops it.
func (s *Store) ChangeScope(ctx context.Context, name string, change func(*state.Scope, int64) error) error {
	for range changeTries {
		now, err := s.Now(ctx)
		if err != nil {
			return err
		}
		recs, err := s.Read(ctx, state.ScopeKey(name))
		if err != nil {
			return err
		}
		if recs[0] == nil {
			return state.ErrNoScope
		}
		body := *recs[0].Scope()
		if err := change(&body, now); err != nil {
			return err
		}
		if body == *recs[0].Scope() {
			return nil
		}
		out, err := s.do(ctx, &state.Batch{Scope: name, Ops: []state.Op{
			state.PutScope{Key: state.ScopeKey(name), IfVersion: recs[0].Version, Scope: body},
		}})
		if err != nil || out.Applied {
			return err
		}
	}
	return fmt.Errorf("%w: the scope is being changed by others all the time", state.ErrUnavailable)
}

// Lift ends the quarantine of a scope. The operator states by the note that
// what may have been lost was reconciled, and names the epoch to go on from,
// which is never lower than the stored one; 0 keeps it.
func (s *Store) Lift(ctx context.Context, name, note string, epoch uint64) error {
	if strings.TrimSpace(note) == "" || len(note) > 4096 {
		return fmt.Errorf("%w: say in a note of 1 to 4096 bytes how the scope was reconciled", state.ErrInvalid)
	}
	return s.ChangeScope(ctx, name, func(body *state.Scope, _ int64) error {
		switch {
		case body.Quarantine == "":
			return fmt.Errorf("%w: the scope is not in quarantine", state.ErrInvalid)
		case epoch != 0 && epoch < body.Epoch:
			return fmt.Errorf("%w: the epoch is %d already and never goes back", state.ErrInvalid, body.Epoch)
		}
		body.Quarantine, body.Note = "", note
		body.Epoch = max(body.Epoch, epoch)
		return nil
	})
}

// Recover opens a store that is behind its witness, or whose witness is lost,
// in a new generation: permits issued until now are refused, and every scope
// is in quarantine until [Store.Lift]. It may be cut off and run again.
func Recover(ctx context.Context, e engine.Engine, o Options, why string) (*Store, error) {
	if strings.TrimSpace(why) == "" || len(why) > 4096 {
		return nil, fmt.Errorf("%w: say in 1 to 4096 bytes why the store is recovered", state.ErrInvalid)
	}
	s, err := open(ctx, e, o)
	if err != nil {
		return nil, err
	}
	id, generation, err := s.identity(ctx)
	if err != nil {
		s.shut()
		return nil, err
	}
	if o.Witness != "" {
		if w, err := readWitness(o.Witness); err == nil && w.Store == id {
			generation = max(generation, w.Generation)
		}
	}
	generation++
	if err := s.quarantine(ctx, generation, why); err != nil {
		s.shut()
		return nil, err
	}
	if o.Witness != "" {
		w := witnessed{Format: witnessFormat, Store: id, Generation: generation, Mark: s.highest()}
		if err := writeWitness(o.Witness, w); err != nil {
			s.shut()
			return nil, err
		}
		s.witness = &witness{path: o.Witness, last: w}
	}
	s.time.generation.Store(generation)
	s.background()
	return s, nil
}

// quarantine brings every scope into a generation, the store's own last, so
// that a run that was cut off is noticed and repeated.
func (s *Store) quarantine(ctx context.Context, generation uint64, why string) error {
	err := s.eachScope(ctx, func(name string) error {
		if name == state.StoreScope {
			return nil
		}
		return s.ChangeScope(ctx, name, func(body *state.Scope, now int64) error {
			body.Generation = generation
			body.Floor = max(body.Floor, floorAt(now))
			body.Quarantine = why
			return nil
		})
	})
	if err != nil {
		return err
	}
	return s.ChangeScope(ctx, state.StoreScope, func(body *state.Scope, _ int64) error {
		body.Generation = generation
		return nil
	})
}

// floorAt is the floor that refuses every permit issued up to now, also by an
// issuer whose clock is ahead by the skew.
func floorAt(now int64) int64 { return (now + state.Skew + 999) / 1000 * 1000 }

// Rebaseline accepts the engine's clock as it is now, after a step: records
// from the time that is now ahead are brought back to it, and every scope gets
// a floor and goes into quarantine. The store must be used by nobody else
// meanwhile. It may be cut off and run again.
func Rebaseline(ctx context.Context, e engine.Engine, o Options, why string) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := newStore(ctx, e, o)
	if err != nil {
		return nil, err
	}
	if err = s.checkKeys(ctx); err == nil {
		err = s.bringBack(ctx)
	}
	s.shut()
	if err != nil {
		return nil, err
	}
	return Recover(ctx, e, o, why)
}

// bringBack rewrites every readable record that lies ahead of the engine's
// clock, in bounded batches.
func (s *Store) bringBack(ctx context.Context) error {
	now, err := s.engine.Now(ctx)
	if err != nil {
		return s.engineError(err)
	}
	_, err = s.rewrite(ctx, func(key state.Key, item *state.Sealed) (*state.Sealed, error) {
		rec, err := s.keys.Load().Open(key, item)
		if err != nil || !rec.IsAhead(now) {
			return nil, nil //nolint:nilnil,nilerr // what cannot be read is left to the doctor.
		}
		var version state.Version
		if err := s.Fill(version[:]); err != nil {
			return nil, err
		}
		return s.keys.Load().Seal(key, rec.BroughtBack(version, now)), nil
	})
	return err
}
