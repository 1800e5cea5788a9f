package store

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// Store decides and commits batches on one engine. It is safe for concurrent
// use, and several stores, in one process or many, may work on one engine that
// says it can be shared.
type Store struct {
	engine   engine.Engine
	options  Options
	keys     atomic.Pointer[state.Keys]
	instance [16]byte
	// guarantee is fixed while the engine is open.
	guarantee engine.Guarantee

	mu     sync.Mutex
	scopes map[string]*scope
	queued int // batches waiting in all scopes
	bytes  int // their estimated size
	closed bool
	latch  error // why the store is latched closed, nil if it is not

	running  chan struct{} // a place for each group under way
	handed   chan *scope   // to a worker that has nothing to do
	idle     atomic.Int32  // workers that have nothing to do
	work     sync.WaitGroup
	time     timekeeper
	witness  *witness
	handlers map[state.Kind]LeaseHandler // guarded by mu
	stop     context.CancelFunc
	stopped  context.Context
	corrupt  atomic.Uint64
	unknown  atomic.Uint64
	sweptAt  atomic.Int64
	commits  atomic.Uint64 // counted for a planted bug alone
}

// LeaseHandler is called by the sweeper for each record of a kind whose lease
// is over. It acts through [Store.Do], whose conditions check the record again.
type LeaseHandler func(ctx context.Context, key state.Key, rec *state.Record) error

// storeIDKey names the record that identifies a store.
var storeIDKey = state.Key{Scope: state.StoreScope, Kind: state.KindKeyCheck, ID: "store"}

// Create provisions an empty engine: the store's own scope, its identity, the
// check of the integrity key, the witness if one is named, and the scope
// "default". It fails with [engine.ErrStoreExists] if a store is there.
func Create(ctx context.Context, e engine.Engine, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if o.Witness != "" {
		if err := absent(o.Witness); err != nil {
			return err
		}
	}
	s, err := newStore(ctx, e, o)
	if err != nil {
		return err
	}
	defer s.shut()
	own := state.PutScope{Key: state.ScopeKey(state.StoreScope), Scope: state.NewScope(1)}
	out, err := s.Do(ctx, &state.Batch{Scope: state.StoreScope, Ops: []state.Op{own}})
	switch {
	case err != nil:
		return err
	case !out.Applied:
		return engine.ErrStoreExists
	}
	var id state.Digest
	if err := o.Entropy.Fill(id[:]); err != nil {
		return err
	}
	check, _ := o.Keys.CheckValue(o.Keys.WriteID())
	err = s.must(ctx, &state.Batch{Scope: state.StoreScope, Ops: []state.Op{
		state.PutKeyCheck{Key: storeIDKey, Digest: id},
		state.PutKeyCheck{Key: keyCheckKey(o.Keys.WriteID()), Digest: check},
	}})
	if err != nil {
		return err
	}
	if err := s.createScope(ctx, "default", 1); err != nil {
		return err
	}
	if o.Witness == "" {
		return nil
	}
	return writeWitness(o.Witness, witnessed{Format: witnessFormat, Store: hex.EncodeToString(id[:]), Generation: 1, Mark: s.highest()})
}

// Open opens a store that [Create] made. It never creates anything. It refuses
// a store that is missing ([engine.ErrNoStore]), that other integrity keys
// sealed ([state.ErrKeyUnknown]), or that is behind its witness
// ([ErrRolledBack]).
func Open(ctx context.Context, e engine.Engine, o Options) (*Store, error) {
	s, err := open(ctx, e, o)
	if err != nil {
		return nil, err
	}
	if s.options.Witness != "" {
		if err := s.openWitness(ctx); err != nil {
			s.shut()
			return nil, err
		}
	}
	s.background()
	return s, nil
}

// open is Open without the witness.
func open(ctx context.Context, e engine.Engine, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := newStore(ctx, e, o)
	if err != nil {
		return nil, err
	}
	if err := s.checkKeys(ctx); err != nil {
		s.shut()
		return nil, err
	}
	if !s.guarantee.Shared || o.Witness != "" {
		if err := s.readMarks(ctx); err != nil {
			s.shut()
			return nil, err
		}
	}
	return s, nil
}

func newStore(ctx context.Context, e engine.Engine, o Options) (*Store, error) {
	s := &Store{
		engine: e, options: o, guarantee: e.Guarantee(), scopes: map[string]*scope{},
		running: make(chan struct{}, groupsAtOnce), handed: make(chan *scope), handlers: map[state.Kind]LeaseHandler{},
	}
	s.keys.Store(o.Keys)
	s.stopped, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := o.Entropy.Fill(s.instance[:]); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	now, err := e.Now(ctx)
	if err != nil {
		return nil, err
	}
	s.time.start(o.Clock, now)
	return s, nil
}

// checkKeys makes sure that this process has every integrity key that the
// store was ever written with, and no others under their names.
func (s *Store) checkKeys(ctx context.Context) error {
	snap, err := s.engine.Read(ctx, []state.Key{state.ScopeKey(state.StoreScope)})
	if err != nil {
		return err
	}
	if snap.Items[0] == nil {
		return fmt.Errorf("%w: create one with 'counterfoil init'", engine.ErrNoStore)
	}
	found := map[state.Key]*state.Record{}
	for cursor := ""; ; {
		page, next, err := s.engine.Scan(ctx, state.StoreScope, state.KindKeyCheck, "", cursor, 256)
		if err != nil {
			return err
		}
		for _, f := range page {
			rec, err := s.keys.Load().Open(f.Key, f.Item)
			if err != nil {
				return err
			}
			found[f.Key] = rec
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if found[storeIDKey] == nil {
		return fmt.Errorf("%w: its identity is missing; 'counterfoil init' was cut off, start again with an empty place", engine.ErrForeign)
	}
	known := map[state.Key]bool{storeIDKey: true}
	for _, id := range s.keys.Load().IDs() {
		key := keyCheckKey(id)
		known[key] = true
		check, _ := s.keys.Load().CheckValue(id)
		switch rec := found[key]; {
		case rec == nil && id == s.keys.Load().WriteID():
			return fmt.Errorf("%w: the key to write with was never announced to this store; rotate keys with 'counterfoil key rotate'", state.ErrKeyUnknown)
		case rec != nil && rec.Digest != check:
			return fmt.Errorf("%w: a key has the name of another", state.ErrKeyUnknown)
		}
	}
	for key := range found {
		if !known[key] {
			return fmt.Errorf("%w: this store was written with a key that is not in the key directory", state.ErrKeyUnknown)
		}
	}
	return nil
}

// Close waits for the groups under way, writes the witness and closes the
// engine. Batches that still wait end with [state.ErrUnavailable].
func (s *Store) Close() error {
	s.shut()
	s.leave()
	var err error
	if s.witness != nil && s.latch == nil {
		err = s.witness.write(s.highest())
	}
	return errors.Join(err, s.engine.Close())
}

// shut stops taking batches and waits for what is under way.
func (s *Store) shut() {
	s.mu.Lock()
	s.closed = true
	for _, sc := range s.scopes {
		s.refuseWaiting(sc, fmt.Errorf("%w: it is being closed", state.ErrUnavailable))
	}
	s.mu.Unlock()
	s.stop()
	s.work.Wait()
}

// must runs a batch that cannot be refused.
func (s *Store) must(ctx context.Context, b *state.Batch) error {
	out, err := s.Do(ctx, b)
	if err == nil && !out.Applied && !out.Repeated {
		err = fmt.Errorf("store: refused: %s", out.Refusals[0].Reason)
	}
	return err
}

// Read gives the records of keys as they are stored, nil where there is none
// (expired ones are given; state.Record says when they end). It waits for no
// group: what it shows may not be durable yet, so that no positive answer may
// rest on it. An unreadable record is an error.
func (s *Store) Read(ctx context.Context, keys ...state.Key) ([]*state.Record, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	snap, err := s.engine.Read(ctx, keys)
	if err != nil {
		return nil, s.engineError(err)
	}
	recs := make([]*state.Record, 0, len(keys))
	for i, item := range snap.Items {
		var rec *state.Record
		if item != nil {
			if rec, err = s.open(snap.Keys[i], item); err != nil {
				return nil, err
			}
		}
		recs = append(recs, rec)
	}
	return recs, nil
}

// Entry is one record of a scan. Err is set if the record cannot be read.
type Entry struct {
	Key     state.Key
	Record  *state.Record
	Version state.Version // as stored, also of a record that cannot be read
	Err     error
}

// Scan lists records of one kind by ID, like [Store.Read] without waiting for
// durability. The next cursor is "" at the end.
func (s *Store) Scan(ctx context.Context, scope string, kind state.Kind, prefix, cursor string, limit int) ([]Entry, string, error) {
	if err := s.ready(); err != nil {
		return nil, "", err
	}
	page, next, err := s.engine.Scan(ctx, scope, kind, prefix, cursor, limit)
	if err != nil {
		return nil, "", s.engineError(err)
	}
	entries := make([]Entry, len(page))
	for i, f := range page {
		rec, err := s.open(f.Key, f.Item)
		entries[i] = Entry{f.Key, rec, f.Item.Version, err}
	}
	return entries, next, nil
}

// Leases lists records of one kind whose lease ends at or before a time,
// oldest first.
func (s *Store) Leases(ctx context.Context, scope string, kind state.Kind, before int64, cursor string, limit int) ([]Entry, string, error) {
	if err := s.ready(); err != nil {
		return nil, "", err
	}
	due, next, err := s.engine.Due(ctx, scope, engine.ByLease, kind, before, cursor, limit)
	if err != nil {
		return nil, "", s.engineError(err)
	}
	keys := make([]state.Key, len(due))
	for i, d := range due {
		keys[i] = d.Key
	}
	snap, err := s.engine.Read(ctx, keys)
	if err != nil {
		return nil, "", s.engineError(err)
	}
	entries := make([]Entry, 0, len(keys))
	for i, item := range snap.Items {
		if item == nil {
			continue // it went between the two reads
		}
		rec, err := s.open(keys[i], item)
		entries = append(entries, Entry{keys[i], rec, item.Version, err})
	}
	return entries, next, nil
}

// open decodes a sealed record and counts what it cannot read.
func (s *Store) open(key state.Key, item *state.Sealed) (*state.Record, error) {
	rec, err := s.keys.Load().Open(key, item)
	if err != nil {
		s.corrupt.Add(1)
	}
	return rec, err
}

// Now is the time that a batch sent now would be decided at, as well as it can
// be known before: callers compute expiries and leases from it.
func (s *Store) Now(ctx context.Context) (int64, error) {
	if err := s.ready(); err != nil {
		return 0, err
	}
	if s.guarantee.Shared && s.guarantee.Level != engine.Process {
		if now, ok := s.time.estimate(); ok {
			return max(now, s.highest()), nil
		}
	}
	now, err := s.engine.Now(ctx)
	if err != nil {
		return 0, s.engineError(err)
	}
	return max(now, s.highest()), s.time.judge(now, s.highest())
}

// counted is a version that a planted bug uses instead of a random one.
func (s *Store) counted() (v state.Version) {
	binary.BigEndian.PutUint64(v[8:], s.commits.Add(1))
	return v
}

// Token draws a fresh random token.
func (s *Store) Token() (state.Token, error) {
	var t state.Token
	if err := s.options.Entropy.Fill(t[:]); err != nil {
		return t, fmt.Errorf("%w: %w", state.ErrUnavailable, err)
	}
	return t, nil
}

// Fill draws random bytes from the store's source.
func (s *Store) Fill(p []byte) error {
	if err := s.options.Entropy.Fill(p); err != nil {
		return fmt.Errorf("%w: %w", state.ErrUnavailable, err)
	}
	return nil
}

// Engine is the engine under the store, for operators' verbs.
func (s *Store) Engine() engine.Engine { return s.engine }

// ready reports why the store takes nothing, nil if it does.
func (s *Store) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readyLocked()
}

func (s *Store) readyLocked() error {
	switch {
	case s.latch != nil:
		return fmt.Errorf("%w: %w", state.ErrLatched, s.latch)
	case s.closed:
		return fmt.Errorf("%w: it is closed", state.ErrUnavailable)
	}
	return nil
}

// engineError turns an engine's error from a read into the store's.
func (s *Store) engineError(err error) error {
	switch {
	case errors.Is(err, engine.ErrBroken):
		s.close(err)
		return fmt.Errorf("%w: %w", state.ErrLatched, err)
	case errors.Is(err, state.ErrInvalid):
		return err
	}
	return fmt.Errorf("%w: %w", state.ErrUnavailable, err)
}

// close latches the store.
func (s *Store) close(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latch != nil {
		return
	}
	s.latch = err
	s.options.Log.Error("the store is latched closed: a commit failed; reopen it", "error", err)
	for _, sc := range s.scopes {
		s.refuseWaiting(sc, fmt.Errorf("%w: %w", state.ErrLatched, err))
	}
}

// Health is what an operator's probe should know.
type Health struct {
	Guarantee  engine.Guarantee
	Generation uint64
	Latched    error         // why everything is refused, nil if it is not
	Clock      error         // why the clock is not trusted, nil if it is
	Witness    error         // why the witness does not follow: a rollback would not be noticed
	Downtime   time.Duration // the gap before open, if it was remarkably long
	Waiting    int           // batches in the queues
	Unreadable uint64        // records that could not be read since open, counted at each try
	Unknown    uint64        // batches whose outcome was unknown since open
	SweptAt    int64         // when the sweeper last finished a pass, ms
}

// Health reports the state of the store without asking the engine.
func (s *Store) Health() Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Health{
		Guarantee: s.guarantee, Latched: s.latch, Waiting: s.queued, Clock: s.time.last(), Downtime: s.time.downtime,
		Unreadable: s.corrupt.Load(), Unknown: s.unknown.Load(), SweptAt: s.sweptAt.Load(),
		Witness: s.witness.trouble(),
	}
	if s.closed && h.Latched == nil {
		h.Latched = state.ErrUnavailable
	}
	h.Generation = s.time.generation.Load()
	return h
}

// Ping asks the engine whether it answers and the clock whether it can be
// trusted, and reads the store's generation.
func (s *Store) Ping(ctx context.Context) error {
	if _, err := s.Now(ctx); err != nil {
		return err
	}
	recs, err := s.Read(ctx, state.ScopeKey(state.StoreScope))
	if err != nil {
		return err
	}
	if recs[0] == nil {
		return fmt.Errorf("%w: the store's own scope is gone", state.ErrUnavailable)
	}
	s.time.generation.Store(recs[0].Scope().Generation)
	return nil
}
