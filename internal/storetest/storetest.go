// Package storetest gives tests of what stands on the store the same list of
// engines, a clock that moves when told, and randomness that repeats.
//
//	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) {
//		permits := permit.New(f.Store, permit.Options{})
//		f.Clock.Advance(time.Minute)
//	})
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// Scope is the scope that every fixture has.
const Scope = "default"

// Start is what the clock of a fresh fixture shows.
var Start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// Fixture is one store on one engine.
type Fixture struct {
	*store.Store
	Clock   *clock.Manual
	Entropy entropy.Source
	// Engine is the handle that Store works on.
	Engine engine.Engine

	t       testing.TB
	medium  medium
	options store.Options
	seconds []*store.Store
}

// medium is where the records of one fixture lie.
type medium interface {
	// create makes the handle of an empty engine.
	create(t testing.TB) engine.Engine
	// again makes another handle on the same records; of an embedded engine
	// only after the one before is closed.
	again(t testing.TB) engine.Engine
}

// engines are all that every test runs on: a new one joins by one line. Short
// runs start no servers.
var engines = []struct {
	name   string
	make   func(testing.TB, clock.Clock) medium
	server bool
}{
	{"memory", inMemory, false},
	{"pebble", onPebble, false},
	{"redis", onRedis, true},
	{"postgres", onPostgres, true},
}

// Each runs test once on a fresh store of every engine, as a parallel subtest
// of the engine's name.
func Each(t *testing.T, test func(t *testing.T, f *Fixture)) {
	t.Helper()
	testserver.KeepShared(t)
	for _, e := range engines {
		if e.server && testing.Short() {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			c := clock.NewManual(Start)
			test(t, start(t, c, e.make(t, c)))
		})
	}
}

// Memory gives a fresh store on the memory engine, for tests that look at no
// engine: properties, which run too often for a disk, and examples of refusals.
func Memory(t testing.TB) *Fixture {
	t.Helper()
	c := clock.NewManual(Start)
	return start(t, c, inMemory(t, c))
}

func start(t testing.TB, c *clock.Manual, m medium) *Fixture {
	t.Helper()
	f := &Fixture{t: t, Clock: c, Entropy: entropy.Seeded(1), medium: m, Engine: m.create(t)}
	f.options = store.Options{Keys: Keys(t), Clock: c, Entropy: f.Entropy}
	if err := store.Create(context.Background(), f.Engine, f.options); err != nil {
		t.Fatalf("create the store: %v", err)
	}
	f.Store = f.open(f.Engine)
	t.Cleanup(f.close)
	return f
}

// Keys gives the integrity keys that every fixture uses.
func Keys(t testing.TB) *state.Keys {
	t.Helper()
	key := make([]byte, state.IntegrityKeyBytes)
	key[0] = 7
	keys, err := state.NewKeys(state.IntegrityKeyID(key), [][]byte{key})
	if err != nil {
		t.Fatalf("make keys: %v", err)
	}
	return keys
}

func (f *Fixture) open(e engine.Engine) *store.Store {
	f.t.Helper()
	s, err := store.Open(context.Background(), e, f.options)
	if err != nil {
		f.t.Fatalf("open the store: %v", err)
	}
	return s
}

func (f *Fixture) close() {
	for _, s := range append(f.seconds, f.Store) {
		if err := s.Close(); err != nil {
			f.t.Errorf("close the store: %v", err)
		}
	}
}

// Reopen closes the store, as a restart does, and opens it again. What was
// made on the old one must be made anew on f.Store.
func (f *Fixture) Reopen() {
	f.t.Helper()
	if err := f.Store.Close(); err != nil {
		f.t.Fatalf("close the store: %v", err)
	}
	f.Engine = f.medium.again(f.t)
	f.Store = f.open(f.Engine)
}

// Second opens another store on the same records, as another process does. On
// an engine that belongs to one process it gives the store that there is.
func (f *Fixture) Second() *store.Store {
	f.t.Helper()
	if !f.Engine.Guarantee().Shared {
		return f.Store
	}
	s := f.open(f.medium.again(f.t))
	f.seconds = append(f.seconds, s)
	return s
}

// Now is what the clock shows, in ms.
func (f *Fixture) Now() int64 { return f.Clock.Now().UnixMilli() }

// Caps changes the caps of the scope.
func (f *Fixture) Caps(change func(*state.Caps)) {
	f.t.Helper()
	err := f.ChangeScope(context.Background(), Scope, func(s *state.Scope, _ int64) error {
		change(&s.Caps)
		return nil
	})
	if err != nil {
		f.t.Fatalf("change the caps: %v", err)
	}
}

// Quarantine puts the scope into quarantine, as a recovery does.
func (f *Fixture) Quarantine() {
	f.t.Helper()
	err := f.ChangeScope(context.Background(), Scope, func(s *state.Scope, _ int64) error {
		s.Quarantine = "the test took the store back"
		return nil
	})
	if err != nil {
		f.t.Fatalf("put the scope into quarantine: %v", err)
	}
}

// Damage flips a bit of a stored record, as a failing disk does.
func (f *Fixture) Damage(key state.Key) {
	f.t.Helper()
	err := f.Engine.Transact(context.Background(), []state.Key{key}, func(s engine.Snapshot) (engine.Plan, error) {
		if s.Items[0] == nil {
			return engine.Plan{}, engine.ErrNoStore
		}
		item := *s.Items[0]
		item.Data = append([]byte(nil), item.Data...)
		item.Data[len(item.Data)/2] ^= 0x10
		return engine.Plan{Changes: []engine.Change{{Key: key, Item: &item}}, NotAfter: s.Now + 60_000}, nil
	})
	if err != nil {
		f.t.Fatalf("damage the %s record: %v", key.Kind, err)
	}
}

// Rewrite seals another record in place of a stored one, as only somebody with
// the integrity key can. change gets nil if there is none.
func (f *Fixture) Rewrite(key state.Key, change func(*state.Record) *state.Record) {
	f.t.Helper()
	err := f.Engine.Transact(context.Background(), []state.Key{key}, func(s engine.Snapshot) (engine.Plan, error) {
		var rec *state.Record
		if s.Items[0] != nil {
			opened, err := f.options.Keys.Open(key, s.Items[0])
			if err != nil {
				return engine.Plan{}, err
			}
			changed := *opened
			rec = &changed
		}
		rec = change(rec)
		if err := f.Entropy.Fill(rec.Version[:]); err != nil {
			return engine.Plan{}, err
		}
		change := engine.Change{Key: key, Item: f.options.Keys.Seal(key, rec)}
		return engine.Plan{Changes: []engine.Change{change}, NotAfter: s.Now + 60_000}, nil
	})
	if err != nil {
		f.t.Fatalf("rewrite the %s record: %v", key.Kind, err)
	}
}
