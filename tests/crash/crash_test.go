package crash

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

func countQuotas(scope string, entries []store.Entry) error {
	records := map[state.Key]*state.Record{}
	for _, e := range entries {
		records[e.Key] = e.Record
	}
	return state.Recount(scope, records)
}

// point is what a crash at one moment would leave.
type point struct {
	fs    *vfs.MemFS
	acked map[string]int
}

// cutter takes a copy of the file system as a crash would leave it, at every
// write and sync, with none, half or all of what is not synced kept.
type cutter struct {
	world *world
	mu    sync.Mutex
	rng   *rand.Rand
	begun bool // the store has been created
	out   chan<- point
}

// MaybeError is called before each operation on a file.
func (c *cutter) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpCreate, errorfs.OpRename, errorfs.OpRemove, errorfs.OpLink:
	default:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun {
		return nil
	}
	// What had been acknowledged before the copy must be in the copy.
	acked := c.world.history.known()
	percent := []int{0, 50, 100}[c.rng.IntN(3)]
	clone := c.world.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: c.rng})
	c.out <- point{clone, acked}
	return nil
}

func (c *cutter) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = true
}

func (c *cutter) String() string { return "crash points" }

// TestACrashAtAnyMomentLeavesAMomentOfTheHistory is the crash proof: whatever
// instant the machine stops at, every scope is afterwards exactly as one of its
// commits left it, none that was acknowledged is missing, every quota counts
// what is there, and nothing that was granted is granted again.
func TestACrashAtAnyMomentLeavesAMomentOfTheHistory(t *testing.T) {
	t.Parallel()
	points := pointsToTry
	if testing.Short() {
		points /= 20
	}
	if v := os.Getenv("COUNTERFOIL_SEED"); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		cutUp(t, seed)
		return
	}
	total := 0
	for seed := rand.Uint64(); total < points; seed++ {
		total += cutUp(t, seed)
	}
	t.Logf("%d crash points", total)
}

// cutUp runs one history and checks the copies made on the way.
func cutUp(t *testing.T, seed uint64) int {
	t.Helper()
	w := newWorld(t, seed)
	out := make(chan point, 1<<14)
	c := &cutter{world: w, rng: rand.New(rand.NewPCG(seed, 2)), out: out}
	w.begin(errorfs.Wrap(w.fs, c))
	c.begin()
	w.work(120)
	if err := w.store.Close(); err != nil {
		w.fail("close: %v", err)
	}
	close(out)
	n := 0
	for p := range out {
		w.check(p.fs, p.acked, n%8 == 0)
		n++
	}
	return n
}

// TestAFailedWriteLatchesAndIsNeverAYes makes one write or sync fail, at every
// point in turn.
func TestAFailedWriteLatchesAndIsNeverAYes(t *testing.T) {
	t.Parallel()
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileSyncData} {
		for at := range 12 {
			t.Run(fmt.Sprintf("%d/%d", kind, at), func(t *testing.T) {
				t.Parallel()
				failAt(t, kind, at)
			})
		}
	}
}

func failAt(t *testing.T, kind errorfs.OpKind, at int) {
	t.Helper()
	w := newWorld(t, uint64(at))
	f := &failing{kind: kind, at: at * 7}
	w.begin(errorfs.Wrap(w.fs, f))
	f.arm()
	w.work(200)
	if !f.fired() || w.store.Health().Latched == nil {
		w.fail("a write failed: %v; the store is latched: %v", f.fired(), w.store.Health().Latched)
	}
	acked := w.history.known()
	w.work(20)
	if !maps.Equal(acked, w.history.known()) {
		w.fail("a latched store acknowledged a commit")
	}
	clone := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
	w.check(clone, w.history.known(), true)
}

// failing fails the n-th operation of a kind after it is armed, and all after
// it.
type failing struct {
	kind  errorfs.OpKind
	at    int
	mu    sync.Mutex
	armed bool
	seen  int
}

func (f *failing) arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = true
}

func (f *failing) fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen > f.at
}

// MaybeError is called before each operation on a file.
func (f *failing) MaybeError(op errorfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed || op.Kind != f.kind {
		return nil
	}
	if f.seen++; f.seen > f.at {
		return errorfs.ErrInjected
	}
	return nil
}

func (f *failing) String() string { return "failing writes" }
