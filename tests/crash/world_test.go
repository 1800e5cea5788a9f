package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/pebble"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

const dir = "/store"

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// contents are the records of one scope as the engine keeps them.
type contents map[state.Key]state.Version

// history notes, in the order in which an engine applies them, the commits of
// each scope: contents[n] is what the scope holds after n of them.
type history struct {
	engine.Engine
	mu    sync.Mutex
	after map[string][]contents
	acked map[string]int // commits whose caller has been told
}

func newHistory(e engine.Engine) *history {
	return &history{Engine: e, after: map[string][]contents{}, acked: map[string]int{}}
}

// Transact notes the plan when the engine is about to apply it, which it does
// in this order, and notes the answer.
func (h *history) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	scope, at := keys[0].Scope, 0
	err := h.Engine.Transact(ctx, keys, func(snap engine.Snapshot) (engine.Plan, error) {
		plan, err := fn(snap)
		if err != nil || len(plan.More) > 0 || len(plan.Changes) == 0 {
			return plan, err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		next := contents{}
		if n := len(h.after[scope]); n > 0 {
			next = maps.Clone(h.after[scope][n-1])
		} else {
			h.after[scope] = []contents{{}}
		}
		for _, c := range plan.Changes {
			if c.Item == nil {
				delete(next, c.Key)
			} else {
				next[c.Key] = c.Item.Version
			}
		}
		h.after[scope] = append(h.after[scope], next)
		at = len(h.after[scope]) - 1
		return plan, err
	})
	if err == nil {
		h.mu.Lock()
		h.acked[scope] = max(h.acked[scope], at)
		h.mu.Unlock()
	}
	return err
}

// known copies how far each scope had been acknowledged.
func (h *history) known() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.acked)
}

// world is a store on a file system that can be cut off at any moment.
type world struct {
	t       *testing.T
	seed    uint64
	clock   *clock.Manual
	keys    *state.Keys
	fs      *vfs.MemFS
	history *history
	store   *store.Store
}

// options keep Pebble's files so small that flushes and compactions happen all
// the time.
func (w *world) options(fs vfs.FS) pebble.Options {
	return pebble.Options{
		Clock: w.clock, FS: fs, Exit: func(int) {}, CacheBytes: 1 << 20, MemtableBytes: 64 << 10, FilterBytes: 1 << 20,
	}
}

func (w *world) storeOptions() store.Options {
	return store.Options{Keys: w.keys, Clock: w.clock, Entropy: entropy.Seeded(w.seed)}
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	key := make([]byte, state.IntegrityKeyBytes)
	keys, err := state.NewKeys(state.IntegrityKeyID(key), [][]byte{key})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, seed: seed, clock: clock.NewManual(start), keys: keys, fs: vfs.NewCrashableMem()}
}

// begin creates the store and its scopes on fs, which counts what it does.
func (w *world) begin(fs vfs.FS) {
	w.t.Helper()
	if err := pebble.Create(dir, w.options(fs)); err != nil {
		w.fail("create: %v", err)
	}
	e, err := pebble.Open(dir, w.options(fs))
	if err != nil {
		w.fail("open: %v", err)
	}
	w.history = newHistory(e)
	if err := store.Create(context.Background(), w.history, w.storeOptions()); err != nil {
		w.fail("create the store: %v", err)
	}
	o := w.storeOptions()
	o.Entropy = entropy.Seeded(w.seed + 1)
	if w.store, err = store.Open(context.Background(), w.history, o); err != nil {
		w.fail("open the store: %v", err)
	}
	if err := w.store.CreateScope(context.Background(), "other"); err != nil {
		w.fail("create a scope: %v", err)
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nreplay: COUNTERFOIL_SEED=%d go test ./tests/crash -run '^%s$'", fmt.Sprintf(format, args...), w.seed, w.t.Name())
}

// work runs n batches, up to four at a time, and moves the clock on.
func (w *world) work(n int) {
	rng := rand.New(rand.NewPCG(w.seed, 1))
	load := &workload{rng: rng, now: func() int64 { return w.clock.Now().UnixMilli() }}
	for done := 0; done < n; {
		var wg sync.WaitGroup
		for range 1 + load.pick(4) {
			scope := scopes[load.pick(len(scopes))]
			b := load.batch(scope, w.budgets(scope))
			if err := b.Validate(); err != nil {
				w.fail("the workload drew an invalid batch: %v", err)
			}
			done++
			wg.Go(func() { _, _ = w.store.Do(context.Background(), b) })
		}
		wg.Wait()
		w.clock.Advance(time.Duration(load.pick(30)) * time.Second)
		if load.pick(10) == 0 {
			_, _ = w.store.Sweep(context.Background())
		}
	}
}

// budgets reads the budgets that are there to be spent from.
func (w *world) budgets(scope string) map[string]*state.Budget {
	all := map[string]*state.Budget{}
	page, _, err := w.store.Scan(context.Background(), scope, state.KindBudget, "", "", 10)
	if err != nil {
		return all
	}
	for _, e := range page {
		all[e.Key.ID] = e.Record.Budget()
	}
	return all
}

// check reopens what a crash left and compares it with the history: each scope
// must stand exactly where it stood after one of its commits, no earlier than
// the last that had been acknowledged; and the store must go on from there.
func (w *world) check(fs *vfs.MemFS, acked map[string]int, deep bool) {
	w.t.Helper()
	e, err := pebble.Open(dir, w.options(fs))
	if err != nil {
		w.fail("reopen: %v", err)
	}
	s, err := store.Open(context.Background(), e, w.storeOptions())
	if err != nil {
		w.fail("reopen the store: %v", err)
	}
	defer func() { _ = s.Close() }() // a copy that is thrown away
	for _, scope := range append([]string{state.StoreScope}, scopes...) {
		found := w.dump(s, scope)
		w.history.mu.Lock()
		states := w.history.after[scope]
		w.history.mu.Unlock()
		at := len(states) - 1
		for at >= 0 && !maps.Equal(states[at], found) {
			at--
		}
		switch {
		case at < 0 && len(states) > 0:
			w.fail("scope %s stands at no moment of its history", scope)
		case at < acked[scope]:
			w.fail("scope %s lost acknowledged commits: it stands at %d of %d, %d were acknowledged", scope, at, len(states)-1, acked[scope])
		}
		w.count(s, scope)
	}
	if deep {
		w.goOn(s)
	}
}

func (w *world) dump(s *store.Store, scope string) contents {
	w.t.Helper()
	all := contents{}
	for _, kind := range state.Kinds() {
		page, next, err := s.Scan(context.Background(), scope, kind, "", "", 1000)
		if err != nil || next != "" {
			w.fail("scan: %v", err)
		}
		for _, e := range page {
			if e.Err != nil {
				w.fail("a %s record is unreadable: %v", kind, e.Err)
			}
			all[e.Key] = e.Version
		}
	}
	return all
}

// count compares every quota with the records that it counts, and the time
// indexes with the records that they list.
func (w *world) count(s *store.Store, scope string) {
	w.t.Helper()
	var records []store.Entry
	for _, kind := range state.Kinds() {
		page, _, _ := s.Scan(context.Background(), scope, kind, "", "", 1000)
		records = append(records, page...)
		due, _, err := s.Engine().Due(context.Background(), scope, engine.ByExpiry, kind, 1<<53, "", 1000)
		if err != nil {
			w.fail("due: %v", err)
		}
		indexed := 0
		for _, e := range page {
			if e.Record.ExpiryIndex(kind) != 0 {
				indexed++
			}
		}
		if indexed != len(due) {
			w.fail("the expiry index of %s lists %d records, there are %d", kind, len(due), indexed)
		}
	}
	if err := countQuotas(scope, records); err != nil {
		w.fail("scope %s: %v", scope, err)
	}
}

// goOn shows that the store works after the crash, and that nothing that was
// granted is granted again.
func (w *world) goOn(s *store.Store) {
	w.t.Helper()
	for _, scope := range scopes {
		page, _, err := s.Scan(context.Background(), scope, state.KindOperation, "", "", 1000)
		if err != nil {
			w.fail("scan: %v", err)
		}
		for _, e := range page {
			if e.Record.State == state.Void || e.Record.Expires != 0 {
				continue
			}
			out, err := s.Do(context.Background(), &state.Batch{Scope: scope, Ops: []state.Op{
				state.Claim{Key: e.Key, Token: state.Token{9}, State: state.Pending},
			}})
			if _, exists := out.Because(state.Exists); err != nil || !exists {
				w.fail("a claimed operation was claimed again: %+v %v", out, err)
			}
		}
		out, err := s.Do(context.Background(), &state.Batch{Scope: scope, Ops: []state.Op{
			state.Add{Key: state.Key{Scope: scope, Kind: state.KindCounter, ID: "after"}, Amount: 1},
		}})
		if err != nil || !out.Applied {
			w.fail("the store does not go on: %+v %v", out, err)
		}
	}
}
