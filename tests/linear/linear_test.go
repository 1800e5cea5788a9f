package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/engine/pebble"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/engine/redis"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

const (
	clients  = 8
	calls    = 60 // of each client in one history
	keys     = 4  // of each sort
	checkFor = time.Minute
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// setting is an engine under one store or several, with faults between.
type setting struct {
	name   string
	stores int
	engine func(t *testing.T) engine.Engine
	// faults draws how a commit ends.
	faults func(rng *rand.Rand) enginetest.Failure
}

func memoryEngine(*testing.T) engine.Engine { return memory.New(clock.NewManual(start)) }

func pebbleEngine(t *testing.T) engine.Engine {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	o := pebble.Options{Clock: clock.NewManual(start)}
	if err := pebble.Create(dir, o); err != nil {
		t.Fatal(err)
	}
	e, err := pebble.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// redisDatabases is how many histories one server can keep apart.
const redisDatabases = 512

// redisEngine gives each history a database of its own on one real server of the test.
func redisEngine() func(t *testing.T) engine.Engine {
	var server *testserver.RedisServer
	var of *testing.T // whose server it is
	used := 0
	return func(t *testing.T) engine.Engine {
		t.Helper()
		if of != t {
			server, of, used = testserver.Redis(t, testserver.RedisOptions{Config: []string{fmt.Sprint("databases ", redisDatabases)}}), t, 0
		}
		used++
		url := fmt.Sprintf("%s/%d", server.URL(), used)
		o := redis.Options{Clock: clock.NewManual(start)}
		if err := redis.Create(t.Context(), url, o); err != nil {
			t.Fatal(err)
		}
		e, err := redis.Open(t.Context(), url, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
}

// postgresEngine gives each history an empty database on one real server of the binary.
func postgresEngine(t *testing.T) engine.Engine {
	t.Helper()
	url := testserver.SharedPostgres(t, testserver.QuickPostgres).Database()
	o := postgres.Options{Clock: clock.NewManual(start), Connections: 8, UnsafeDurability: true}
	if err := postgres.Create(t.Context(), url, o); err != nil {
		t.Fatal(err)
	}
	e, err := postgres.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// lossy loses requests and replies, refuses, and contends.
func lossy(rng *rand.Rand) enginetest.Failure {
	return []enginetest.Failure{
		enginetest.None, enginetest.None, enginetest.None, enginetest.LoseRequest, enginetest.LoseReply, enginetest.Delay, enginetest.Refuse, enginetest.Contend,
	}[rng.IntN(8)]
}

// refusing only refuses: what an embedded engine can do without being broken.
func refusing(rng *rand.Rand) enginetest.Failure {
	return []enginetest.Failure{enginetest.None, enginetest.None, enginetest.None, enginetest.Refuse}[rng.IntN(4)]
}

var settings = []setting{
	{"memory", 1, memoryEngine, lossy},
	{"two stores on one memory engine", 2, memoryEngine, lossy},
	{"four stores on one memory engine", 4, memoryEngine, lossy},
	{"pebble", 1, pebbleEngine, refusing},
	{"redis", 1, redisEngine(), lossy},
	{"three stores on one Redis server", 3, redisEngine(), lossy},
	{"postgres", 1, postgresEngine, lossy},
	{"three stores on one PostgreSQL server", 3, postgresEngine, lossy},
}

// TestHistoriesAreLinearizable lets clients work on a few keys at once, some of
// whom give up waiting, and asks whether there is one order of all calls, within
// the time each took, in which every answer was right.
func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	histories := 30
	if testing.Short() {
		histories = 3
	}
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if v := os.Getenv("COUNTERFOIL_SEED"); v != "" {
				seed, err := strconv.ParseUint(v, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				check(t, s, seed)
				return
			}
			for range histories {
				check(t, s, rand.Uint64())
			}
		})
	}
}

func check(t *testing.T, s setting, seed uint64) {
	t.Helper()
	h := observe(t, s, seed)
	switch result, info := porcupine.CheckOperationsVerbose(model.ToModel(), h, checkFor); result {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Fatalf("the checker did not finish within %v; replay: COUNTERFOIL_SEED=%d", checkFor, seed)
	default:
		path := filepath.Join(os.TempDir(), fmt.Sprintf("counterfoil-history-%d.html", seed)) //nolint:usetesting // it must outlive the test.
		if err := porcupine.VisualizePath(model.ToModel(), info, path); err != nil {
			t.Log(err)
		}
		t.Fatalf("the history is not linearizable, see %s; replay: COUNTERFOIL_SEED=%d go test ./tests/linear -run 'TestHistoriesAreLinearizable/%s'", path, seed, s.name)
	}
}

// observe runs the clients once and returns what they saw.
func observe(t *testing.T, s setting, seed uint64) []porcupine.Operation {
	t.Helper()
	key := make([]byte, state.IntegrityKeyBytes)
	integrity, err := state.NewKeys(state.IntegrityKeyID(key), [][]byte{key})
	if err != nil {
		t.Fatal(err)
	}
	e := enginetest.Faulty(s.engine(t))
	o := store.Options{Keys: integrity, Clock: clock.NewManual(start), Entropy: entropy.Seeded(seed)}
	if err := store.Create(t.Context(), e, o); err != nil {
		t.Fatal(err)
	}
	stores := make([]*store.Store, s.stores)
	for i := range stores {
		o.Entropy = entropy.Seeded(seed + uint64(i) + 1)
		if stores[i], err = store.Open(t.Context(), e, o); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	e.Plan(func(string, int) enginetest.Failure {
		mu.Lock()
		defer mu.Unlock()
		return s.faults(rng)
	})
	r := recorder{clock: new(atomic.Int64)}
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() { r.client(c, stores[c%len(stores)], rand.New(rand.NewPCG(seed, uint64(c)+1))) })
	}
	wg.Wait()
	e.Plan(nil)
	if _, err := e.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	// One last look at everything, so that what unknown calls did shows.
	final := recorder{clock: r.clock}
	for k := range keys {
		final.call(t.Context(), clients, stores[0], input{call: look, key: fmt.Sprint("op", k)})
		final.call(t.Context(), clients, stores[0], input{call: spend, key: fmt.Sprint("counter", k)})
	}
	history := append(r.history, final.history...)
	end := r.clock.Add(1)
	for i := range history {
		if history[i].Output.(output).answer == unknown {
			history[i].Return = end
		}
	}
	return history
}

// recorder gathers the calls of all clients, timed by one counter.
type recorder struct {
	clock   *atomic.Int64
	mu      sync.Mutex
	history []porcupine.Operation
}

func (r *recorder) client(id int, s *store.Store, rng *rand.Rand) {
	for range calls {
		in := input{call: []call{claim, claim, settle, drop, spend, spend, refund, look}[rng.IntN(8)], token: byte(1 + rng.IntN(3)), amount: uint64(rng.IntN(4))}
		in.key = fmt.Sprint("op", rng.IntN(keys))
		if in.call == spend || in.call == refund {
			in.key = fmt.Sprint("counter", rng.IntN(keys))
		}
		ctx, cancel := context.WithCancel(context.Background())
		if rng.IntN(6) == 0 {
			go cancel() // gives up at some moment
		}
		r.call(ctx, id, s, in)
		cancel()
	}
}

func (r *recorder) call(ctx context.Context, id int, s *store.Store, in input) {
	begin := r.clock.Add(1)
	out := run(ctx, s, in)
	end := r.clock.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, porcupine.Operation{ClientId: id, Input: in, Call: begin, Output: out, Return: end})
}

// run makes a call on a store.
func run(ctx context.Context, s *store.Store, in input) output {
	key := state.Key{Scope: "default", Kind: state.KindOperation, ID: in.key}
	token := state.Token{in.token}
	b := &state.Batch{Scope: "default"}
	switch in.call {
	case claim:
		b.Ops = []state.Op{state.Claim{Key: key, Token: token, State: state.Pending}}
	case settle:
		b.Ops = []state.Op{state.Settle{Key: key, Token: token}}
	case drop:
		b.Ops = []state.Op{state.Drop{Key: key, Token: token}}
	case spend:
		key.Kind = state.KindCounter
		b.Ops = []state.Op{state.Spend{Key: key, Amount: in.amount, Limit: limit}}
	case refund:
		key.Kind = state.KindCounter
		b.Ops = []state.Op{state.Refund{Key: key, Amount: in.amount}}
	case look:
		b.Read = []state.Key{key}
	}
	out, err := s.Do(ctx, b)
	switch {
	case errors.Is(err, state.ErrUnknown):
		return output{answer: unknown}
	case err != nil:
		return output{answer: nothing}
	case out.Repeated:
		return output{answer: repeated, record: seen(out.Anchor)}
	case !out.Applied:
		return refusal(out.Refusals[0])
	case in.call == look:
		return output{answer: applied, record: seen(out.Records[0])}
	case in.call == spend || in.call == refund:
		return output{answer: applied, value: out.Values[0]}
	}
	return output{answer: applied}
}

func refusal(r state.Refusal) output {
	o := output{answer: refused, reason: r.Reason, record: seen(r.Record)}
	if r.Figures != nil {
		o.value = r.Figures.Spent
	}
	return o
}

func seen(r *state.Record) record {
	if r == nil {
		return record{}
	}
	return record{state: r.State, token: r.Token[0]}
}
