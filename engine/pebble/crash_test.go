package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

const crashScope = "crash"

// history is what a load has committed, in the order in which the lane of its
// scope applied it. What a crash leaves must be a beginning of it.
type history struct {
	mu     sync.Mutex
	before map[state.Key]*state.Sealed // at the start
	steps  [][]engine.Change
	acked  int  // all steps before it were acknowledged
	ended  bool // by the crash: later answers do not count
	serial uint64
}

// begin notes the changes of a transaction that is being decided.
func (h *history) begin(changes []engine.Change) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, changes)
	return len(h.steps)
}

// ack notes that the n-th step, and so each before it, was acknowledged.
func (h *history) ack(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.acked = max(h.acked, n)
	}
}

func (h *history) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}

// version draws one that no other step carries.
func (h *history) version() (v state.Version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serial++
	copy(v[:], fmt.Sprintf("%016d", h.serial))
	return v
}

func crashKeys() []state.Key {
	all := []state.Key{state.ScopeKey(crashScope)}
	for i := range 12 {
		all = append(all, state.Key{Scope: crashScope, Kind: state.KindHold, ID: fmt.Sprint(i)})
	}
	return all
}

// commitOne writes and deletes some keys at random in one transaction.
func (h *history) commitOne(t *testing.T, e *Engine, r *rand.Rand) error {
	t.Helper()
	all := crashKeys()
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	read := all[:1+r.IntN(5)]
	changes := make([]engine.Change, r.IntN(len(read)+1))
	v := h.version()
	for i := range changes {
		changes[i].Key = read[i]
		if r.IntN(4) > 0 {
			changes[i].Item = &state.Sealed{Version: v, Expiry: r.Int64N(4), Lease: r.Int64N(3), Data: make([]byte, r.IntN(3000))}
		}
	}
	n := 0
	err := e.Transact(t.Context(), read, func(s engine.Snapshot) (engine.Plan, error) {
		n = h.begin(changes)
		return engine.Plan{Changes: changes, NotAfter: s.Now + 60_000}, nil
	})
	if err == nil {
		h.ack(n)
	}
	return err
}

// run commits from several goroutines until the engine breaks or that many
// transactions are done.
func (h *history) run(t *testing.T, e *Engine, seed uint64, transactions int) {
	t.Helper()
	const workers = 3
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, w))
			for range transactions / workers {
				if err := h.commitOne(t, e, r); err != nil {
					if !errors.Is(err, engine.ErrBroken) && !errors.Is(err, engine.ErrClosed) {
						t.Errorf("Transact: %v", err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
}

// check compares what an engine shows with the history: it must be a beginning
// that holds everything acknowledged, and every listing must agree with it.
func (h *history) check(t *testing.T, e *Engine) {
	t.Helper()
	shown := readEverything(t, e)
	now := maps.Clone(h.before)
	length := -1
	for n := 0; n <= len(h.steps); n++ {
		if n > 0 {
			applyTo(now, h.steps[n-1])
		}
		if n >= h.acked && sameRecords(now, shown) {
			length = n
			break
		}
	}
	if length < 0 {
		t.Fatalf("of %d steps %d were acknowledged, and what is there is no beginning that holds them:\n%s", len(h.steps), h.acked, describe(shown))
	}
	checkListings(t, e, shown)
	h.before, h.steps, h.acked, h.ended = shown, nil, 0, false
}

func applyTo(records map[state.Key]*state.Sealed, changes []engine.Change) {
	for _, c := range changes {
		if c.Item == nil {
			delete(records, c.Key)
		} else {
			records[c.Key] = c.Item
		}
	}
}

func sameRecords(a, b map[state.Key]*state.Sealed) bool {
	return maps.EqualFunc(a, b, func(x, y *state.Sealed) bool {
		return x.Version == y.Version && x.Expiry == y.Expiry && x.Lease == y.Lease && len(x.Data) == len(y.Data)
	})
}

func describe(records map[state.Key]*state.Sealed) string {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(records), state.Key.Compare) {
		fmt.Fprintf(&b, "%s %s: version %s, expiry %d, lease %d, %d bytes\n", k.Kind, k.ID, records[k].Version[:], records[k].Expiry, records[k].Lease, len(records[k].Data))
	}
	return b.String()
}

// readEverything reads each key by a transaction, which asks the filter first,
// and by a bare read, which does not.
func readEverything(t *testing.T, e *Engine) map[state.Key]*state.Sealed {
	t.Helper()
	shown := map[state.Key]*state.Sealed{}
	bare, err := e.Read(t.Context(), crashKeys())
	must(t, err)
	must(t, e.Transact(t.Context(), crashKeys(), func(s engine.Snapshot) (engine.Plan, error) {
		for i, k := range s.Keys {
			if (s.Items[i] == nil) != (bare.Items[i] == nil) {
				t.Errorf("%s %s: a transaction and a bare read do not agree that it is there", k.Kind, k.ID)
			}
			if s.Items[i] != nil {
				shown[k] = s.Items[i]
			}
		}
		return engine.Plan{}, nil
	}))
	return shown
}

// checkListings compares both indexes, the scan and the scopes with the records.
func checkListings(t *testing.T, e *Engine, shown map[state.Key]*state.Sealed) {
	t.Helper()
	for _, kind := range []state.Kind{state.KindHold, state.KindScope} {
		for _, x := range []engine.Index{engine.ByExpiry, engine.ByLease} {
			due, _, err := e.Due(t.Context(), crashScope, x, kind, 1<<40, "", 1000)
			must(t, err)
			var wanted []engine.DueKey
			for k, item := range shown {
				if at := x.Time(item); k.Kind == kind && at > 0 {
					wanted = append(wanted, engine.DueKey{Key: k, At: at})
				}
			}
			slices.SortFunc(wanted, func(a, b engine.DueKey) int { return bytes.Compare(a.Append(nil), b.Append(nil)) })
			if !slices.Equal(due, wanted) {
				t.Fatalf("index %d of %s lists %v, the records say %v", x, kind, due, wanted)
			}
		}
		found, _, err := e.Scan(t.Context(), crashScope, kind, "", "", 1000)
		must(t, err)
		for _, f := range found {
			if shown[f.Key] == nil || shown[f.Key].Version != f.Item.Version {
				t.Fatalf("the scan lists %s %q otherwise than it is read", f.Key.Kind, f.Key.ID)
			}
		}
		if n := len(slices.Collect(keysOf(shown, kind))); n != len(found) {
			t.Fatalf("the scan lists %d records of %s, %d are there", len(found), kind, n)
		}
	}
	scopes, _, err := e.Scopes(t.Context(), "", 10)
	must(t, err)
	if there := shown[state.ScopeKey(crashScope)] != nil; there != slices.Contains(scopes, crashScope) {
		t.Fatalf("scopes lists %q, the scope record is there: %v", scopes, there)
	}
}

func keysOf(records map[state.Key]*state.Sealed, kind state.Kind) func(func(state.Key) bool) {
	return func(yield func(state.Key) bool) {
		for k := range records {
			if k.Kind == kind && !yield(k) {
				return
			}
		}
	}
}

// crashAfter cuts the power at the n-th operation that writes, whatever it is,
// and keeps what is left of the disk.
func (m *machine) crashAfter(n int, h *history) (left func() *vfs.MemFS) {
	var mu sync.Mutex
	var clone *vfs.MemFS
	rng := rand.New(rand.NewPCG(m.rng.Uint64(), 0)) // its own: the database's goroutines come here
	m.inject(errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if n--; n == 0 {
			h.end()
			clone = m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.kept, RNG: rng})
		}
		return nil
	}))
	return func() *vfs.MemFS {
		mu.Lock()
		defer mu.Unlock()
		if clone == nil { // the load had fewer operations
			h.end()
			clone = m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.kept, RNG: rng})
		}
		n = 0
		return clone
	}
}

func TestPowerLossKeepsEveryAcknowledgedCommitAndNoHalfOne(t *testing.T) {
	t.Parallel()
	crashes := 60 // for each part kept
	if testing.Short() {
		crashes = 10
	}
	for _, kept := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("%d percent of unsynced data kept", kept), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.kept = kept
			m.memtable = 64 << 10 // flushes, compactions and new logs come often
			h := &history{before: map[state.Key]*state.Sealed{}}
			for range crashes {
				left := m.crashAfter(1+m.rng.IntN(120), h)
				h.run(t, m.engine, m.rng.Uint64(), 60)
				disk := left()
				m.close()
				m.disk = disk
				h.check(t, m.open())
			}
		})
	}
}

// TestFailedWriteLatchesAndNobodyGetsAYesThatIsNotDurable lets operations of
// one sort fail, from some time on, under load.
func TestFailedWriteLatchesAndNobodyGetsAYesThatIsNotDurable(t *testing.T) {
	t.Parallel()
	syncs := []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}
	for _, c := range []struct {
		name  string
		file  string // pattern of the file's name
		kinds []errorfs.OpKind
	}{
		{"write to the log", "*.log", []errorfs.OpKind{errorfs.OpFileWrite}},
		{"sync of the log", "*.log", syncs},
		{"new log", "*.log", []errorfs.OpKind{errorfs.OpCreate, errorfs.OpReuseForWrite}},
		{"write to a table", "*.sst", []errorfs.OpKind{errorfs.OpFileWrite}},
		{"sync of a table", "*.sst", syncs},
		{"new table", "*.sst", []errorfs.OpKind{errorfs.OpCreate}},
		{"write to the manifest", "MANIFEST-*", []errorfs.OpKind{errorfs.OpFileWrite}},
		{"sync of the manifest", "MANIFEST-*", syncs},
		{"sync of the directory", "data", syncs},
		{"everything that writes", "*", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for range 4 {
				latchUnder(t, c.file, c.kinds)
			}
		})
	}
}

func latchUnder(t *testing.T, file string, kinds []errorfs.OpKind) {
	t.Helper()
	m := newMachine(t)
	m.memtable = 64 << 10
	m.crash() // opens it with the small tables
	exits := m.exits
	h := &history{before: map[state.Key]*state.Sealed{}}
	countdown := 1 + m.rng.IntN(8)
	var mu sync.Mutex
	m.inject(errorfs.InjectorFunc(func(op errorfs.Op) error {
		matched, err := path.Match(file, path.Base(op.Path))
		if err != nil || !matched || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || kinds != nil && !slices.Contains(kinds, op.Kind) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if countdown--; countdown > 0 {
			return nil
		}
		return errorfs.ErrInjected
	}))
	h.run(t, m.engine, m.rng.Uint64(), 30_000)
	if code := <-exits; code != 70 {
		t.Fatalf("the process ended with %d", code)
	}
	for name, call := range callsOf(t, m.engine) {
		if err := call(); !errors.Is(err, engine.ErrBroken) {
			t.Errorf("%s after the failure: %v, want ErrBroken", name, err)
		}
	}
	h.end()
	m.kept = []int{0, 50, 100}[m.rng.IntN(3)]
	h.check(t, m.crash())
}

func callsOf(t *testing.T, e *Engine) map[string]func() error {
	t.Helper()
	ctx := t.Context()
	return map[string]func() error{
		"Transact": func() error {
			return e.Transact(ctx, crashKeys(), func(engine.Snapshot) (engine.Plan, error) { return engine.Plan{}, nil })
		},
		"Read": func() error { _, err := e.Read(ctx, crashKeys()); return err },
		"Due": func() error {
			_, _, err := e.Due(ctx, crashScope, engine.ByLease, state.KindHold, 9, "", 9)
			return err
		},
		"Scan":       func() error { _, _, err := e.Scan(ctx, crashScope, state.KindHold, "", "", 9); return err },
		"Scopes":     func() error { _, _, err := e.Scopes(ctx, "", 9); return err },
		"Now":        func() error { _, err := e.Now(ctx); return err },
		"Stats":      func() error { _, err := e.Stats(ctx); return err },
		"Checkpoint": func() error { return e.Checkpoint(ctx, "backup") },
		"Close":      func() error { return e.Close() },
	}
}

// TestFailureBesideCommitsAnswersThoseUnderWay latches while commits wait for a
// disk that hangs.
func TestFailureBesideCommitsAnswersThoseUnderWay(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(e *Engine){
		"fatal error":         func(e *Engine) { databaseLog{log: e.latch.log, latch: e.latch}.Fatalf("cannot go on: %d", 1) },
		"error in background": func(e *Engine) { listener(e.latch.log, e.latch).BackgroundError(errorfs.ErrInjected) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			hangs, entered := make(chan struct{}), make(chan struct{}, 100)
			m.inject(errorfs.InjectorFunc(func(op errorfs.Op) error {
				if failSyncs.MaybeError(op) != nil {
					entered <- struct{}{}
					<-hangs
				}
				return nil
			}))
			t.Cleanup(func() { close(hangs) })
			h := &history{before: map[state.Key]*state.Sealed{}}
			answers := make(chan error, 3)
			for i := range 3 {
				key := crashKeys()[i]
				go func() {
					answers <- m.engine.Transact(t.Context(), []state.Key{key}, func(s engine.Snapshot) (engine.Plan, error) {
						item := &state.Sealed{Version: h.version()}
						if i == 0 {
							return engine.Plan{}, nil // waits for the others
						}
						return engine.Plan{Changes: []engine.Change{{Key: key, Item: item}}, NotAfter: s.Now}, nil
					})
				}()
				if i > 0 {
					continue
				}
				must(t, <-answers)
			}
			<-entered
			go fail(m.engine)
			for range 2 {
				if err := <-answers; !errors.Is(err, engine.ErrBroken) {
					t.Errorf("a commit under way: %v, want ErrBroken", err)
				}
			}
			if code := <-m.exits; code != 70 {
				t.Errorf("the process ended with %d", code)
			}
		})
	}
}
