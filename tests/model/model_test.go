// Package model runs random programs on a store and on a plain reference, and
// compares every answer and every record.
package model

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/engine/pebble"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/engine/redis"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/state/statetest"
	"github.com/counterfoil/counterfoil/store"
)

// start is a moment before a day ends in Berlin.
var start = time.UnixMilli(1_790_000_000_000)

// scopes that the programs work in, side by side.
var scopes = []string{"one", "two"}

// place is an engine that can be opened again with what it holds.
type place interface {
	open(c clock.Clock) (engine.Engine, error)
	// shared says that several stores can have it open at once.
	shared() bool
}

type inMemory struct{ records *memory.Engine }

func (p *inMemory) open(c clock.Clock) (engine.Engine, error) {
	if p.records == nil {
		p.records = memory.New(c)
	}
	return p.records.Share(), nil
}

func (*inMemory) shared() bool { return true }

type onDisk struct{ fs *vfs.MemFS }

func (p *onDisk) open(c clock.Clock) (engine.Engine, error) {
	o := pebble.Options{Clock: c, CacheBytes: 1 << 20, MemtableBytes: 1 << 20, FilterBytes: 1 << 20}
	if p.fs == nil {
		p.fs = vfs.NewMem()
		o.FS = p.fs
		if err := pebble.Create("/store", o); err != nil {
			return nil, err
		}
	}
	o.FS = p.fs
	return pebble.Open("/store", o)
}

func (*onDisk) shared() bool { return false }

// onRedis is a real server, which forgets what was there when it is first opened.
type onRedis struct {
	server *testserver.RedisServer
	made   bool
}

func (p *onRedis) open(c clock.Clock) (engine.Engine, error) {
	o := redis.Options{Clock: c}
	if !p.made {
		p.made = true
		p.server.Must("FLUSHALL")
		if err := redis.Create(context.Background(), p.server.URL(), o); err != nil {
			return nil, err
		}
	}
	e, err := redis.Open(context.Background(), p.server.URL(), o)
	if err != nil {
		return nil, err
	}
	return noLineage{e}, nil
}

func (*onRedis) shared() bool { return true }

// onPostgres is a real server, which forgets what was there when it is first opened.
type onPostgres struct {
	server *testserver.PostgresServer
	made   bool
}

func (p *onPostgres) open(c clock.Clock) (engine.Engine, error) {
	o := postgres.Options{Clock: c, Connections: 4, UnsafeDurability: true}
	if !p.made {
		p.made = true
		p.server.Exec("DROP SCHEMA IF EXISTS counterfoil CASCADE")
		if err := postgres.Create(context.Background(), p.server.DSN(), o); err != nil {
			return nil, err
		}
	}
	e, err := postgres.Open(context.Background(), p.server.DSN(), o)
	if err != nil {
		return nil, err
	}
	return noLineage{e}, nil
}

func (*onPostgres) shared() bool { return true }

// noLineage hides the history of a server's data, of which the model knows nothing.
type noLineage struct{ engine.Engine }

func (e noLineage) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	return e.Engine.Transact(ctx, keys, func(s engine.Snapshot) (engine.Plan, error) {
		s.Lineage = engine.Lineage{}
		return fn(s)
	})
}

func (e noLineage) Read(ctx context.Context, keys []state.Key) (engine.Snapshot, error) {
	s, err := e.Engine.Read(ctx, keys)
	s.Lineage = engine.Lineage{}
	return s, err
}

// program is one random run.
type program struct {
	*rapid.T
	clock  *clock.Manual
	keys   *state.Keys
	place  place
	seed   uint64
	stores []*store.Store
	models map[string]*statetest.Model
	seen   map[state.Version]bool

	transcript strings.Builder
}

// onServer is how many of the programs run on a server: what they compare costs it a second each.
const onServer = 6

func TestAStoreAnswersAsThePlainModelDoes(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func() place{
		"memory": func() place { return &inMemory{} }, "pebble": func() place { return &onDisk{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(r *rapid.T) { run(r, made(), beside(made())) })
		})
	}
	if testing.Short() {
		return // no servers
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := testserver.Redis(t, testserver.RedisOptions{})
		checkOnServer(t, func() place { return &onRedis{server: server} })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := testserver.Postgres(t, testserver.QuickPostgres)
		checkOnServer(t, func() place { return &onPostgres{server: server} })
	})
}

func checkOnServer(t *testing.T, made func() place) {
	t.Helper()
	programs := 0
	rapid.Check(t, func(r *rapid.T) {
		if programs++; programs <= onServer || r.Failed() {
			run(r, made(), 1)
		}
	})
}

func beside(at place) int {
	if at.shared() {
		return 1
	}
	return 0
}

// run runs one program, and gives what was asked and answered. Others work on the same records beside the first store.
func run(r *rapid.T, at place, others int) string {
	key := make([]byte, state.IntegrityKeyBytes)
	keys, err := state.NewKeys(state.IntegrityKeyID(key), [][]byte{key})
	p := &program{T: r, clock: clock.NewManual(start), keys: keys, place: at, seed: 1, models: map[string]*statetest.Model{}, seen: map[state.Version]bool{}}
	p.must(err)
	e, err := at.open(p.clock)
	p.must(err)
	p.must(store.Create(context.Background(), e, p.options()))
	p.stores = []*store.Store{p.open(e)}
	for range others {
		p.stores = append(p.stores, p.open(nil))
	}
	defer p.close()
	for _, scope := range scopes {
		p.models[scope] = statetest.NewModel(scope)
	}
	for range rapid.IntRange(5, 60).Draw(r, "batches") {
		p.clock.Advance(time.Duration(statetest.Step(r)) * time.Millisecond)
		switch rapid.IntRange(0, 19).Draw(r, "event") {
		case 0:
			p.restart()
		case 1:
			p.sweep()
		default:
			p.step(rapid.SampledFrom(scopes).Draw(r, "scope"))
		}
	}
	return p.transcript.String()
}

func (p *program) must(err error) {
	if err != nil {
		p.Fatalf("%v", err)
	}
}

func (p *program) options() store.Options {
	p.seed++
	return store.Options{Keys: p.keys, Clock: p.clock, Entropy: entropy.Seeded(p.seed)}
}

func (p *program) open(e engine.Engine) *store.Store {
	var err error
	if e == nil {
		e, err = p.place.open(p.clock)
		p.must(err)
	}
	s, err := store.Open(context.Background(), e, p.options())
	p.must(err)
	return s
}

func (p *program) close() {
	for _, s := range p.stores {
		p.must(s.Close())
	}
}

func (p *program) restart() {
	p.close()
	for i := range p.stores {
		p.stores[i] = p.open(nil)
	}
	for _, scope := range scopes {
		p.version(scope) // a store that leaves gives its slot back
		p.compare(scope)
	}
}

// sweep lets the store sweep everything, and the model too.
func (p *program) sweep() {
	_, err := p.stores[0].Sweep(context.Background())
	p.must(err)
	for _, scope := range scopes {
		for _, kind := range state.Kinds() {
			p.sweepModel(scope, kind)
		}
		p.version(scope)
		p.compare(scope)
	}
}

// sweepModel does to the model what a sweep of one kind does: each record by
// itself, as it finds it. A tombstone that found no room in the company of
// others is tried with what is left.
func (p *program) sweepModel(scope string, kind state.Kind) {
	records := p.records(scope)
	m := p.models[scope]
	for _, key := range statetest.SortedKeys(m.Facts) {
		if key.Kind != kind {
			continue
		}
		now, there := records[key]
		if there && (now.Tomb == m.Facts[key].Tomb) {
			continue // the store left it as it was
		}
		stamp := statetest.Stamp{Now: p.now()}
		if there {
			stamp.Version = now.Version
		}
		m.Apply(&state.Batch{Scope: scope, Ops: []state.Op{state.Sweep{Key: key}}}, stamp)
	}
}

func (p *program) now() int64 { return p.clock.Now().UnixMilli() }

// step runs one drawn batch on one of the stores, and compares.
func (p *program) step(scope string) {
	m := p.models[scope]
	b := statetest.Draw(p.T, m, p.now())
	s := rapid.SampledFrom(p.stores).Draw(p.T, "store")
	out, err := s.Do(context.Background(), b)
	bounded := p.bounded(b)
	stamp := statetest.StampOf(b, out)
	if err != nil {
		stamp.Now = p.now()
	}
	if v := p.version(scope); out.Applied {
		stamp.Version = v
	}
	want := m.Clone().Apply(bounded, stamp)
	got := statetest.AnswerOf(out, err)
	fmt.Fprintf(&p.transcript, "%d %s\n  %s\n", p.now(), statetest.Show(b), statetest.Show(got))
	if statetest.Diff(got, want) != "" && isFull(want) {
		// At a cap the store sweeps what is over, and tries again.
		for _, op := range b.Ops {
			if c, ok := op.(state.Claim); ok {
				p.sweepModel(scope, c.Key.Kind)
			}
		}
	}
	want = m.Apply(bounded, stamp)
	if diff := statetest.Diff(got, want); diff != "" {
		p.Fatalf("%s\nat %d, batch %s", diff, p.now(), statetest.Show(b))
	}
	p.compare(scope)
}

// bounded is the batch with the limit on its age that the store gives it.
func (p *program) bounded(b *state.Batch) *state.Batch {
	c := *b
	if c.NotAfter == 0 {
		c.NotAfter = p.now() + 60_000
		for _, op := range b.Ops {
			if o, ok := op.(state.Claim); ok && o.Expires > 0 {
				c.NotAfter = min(c.NotAfter, o.Expires)
			}
		}
	}
	return &c
}

func isFull(a statetest.Answer) bool {
	for _, r := range a.Refusals {
		if r.Reason != state.Full && r.Reason != state.OwnerFull {
			return false
		}
	}
	return len(a.Refusals) > 0
}

// version is that of the last commit in a scope: the one in a writer record
// that was not seen before.
func (p *program) version(scope string) (v state.Version) {
	for key, r := range p.records(scope) {
		if key.Kind == state.KindWriter && !p.seen[r.Version] {
			p.seen[r.Version] = true
			v = r.Version
		}
	}
	return v
}

func (p *program) records(scope string) map[state.Key]*state.Record {
	all := map[state.Key]*state.Record{}
	for _, kind := range state.Kinds() {
		page, next, err := p.stores[0].Scan(context.Background(), scope, kind, "", "", 1000)
		if p.must(err); next != "" {
			p.Fatalf("too many records for one page")
		}
		for _, e := range page {
			p.must(e.Err)
			all[e.Key] = e.Record
		}
	}
	return all
}

func (p *program) compare(scope string) {
	records := p.records(scope)
	if diff := p.models[scope].Compare(records); diff != "" {
		p.Fatalf("scope %s: %s", scope, diff)
	}
	if err := state.Recount(scope, records); err != nil && !errors.Is(err, state.ErrInvalid) {
		p.Fatalf("scope %s: %v", scope, err)
	}
}
