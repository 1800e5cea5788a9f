package pebble

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/internal/clock"
)

var start = time.UnixMilli(1_700_000_000_000)

// exceptions are the clauses that cannot concern an embedded engine.
var exceptions = map[string]string{
	"TwoHandlesLoseNoIncrement":         "an embedded store has one handle: TestSecondOpenIsRefused",
	"SecondHandleSeesWhatTheFirstWrote": "an embedded store has one handle: TestSecondOpenIsRefused",
	"ClosingOneHandleLeavesTheOther":    "an embedded store has one handle: TestSecondOpenIsRefused",
	"CommitWhoseReplyWasLostIsUnknown":  "there is no reply between an embedded engine and its caller",
}

// TestEngineOnACrashableFileSystem loses at each restart everything that was
// not synced.
func TestEngineOnACrashableFileSystem(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.Factory{
		New:        func(t *testing.T) enginetest.Fixture { t.Helper(); return newMachine(t).fixture() },
		Exceptions: exceptions,
	})
}

func TestEngineOnRealFiles(t *testing.T) {
	t.Parallel()
	withoutFaults := map[string]string{
		"CommitThatFailedAndWasNotKeptIsNeverAYes": "real files do not fail on demand: TestEngineOnACrashableFileSystem",
		"CommitThatFailedButWasKeptIsNeverANo":     "real files do not fail on demand: TestEngineOnACrashableFileSystem",
	}
	for name, reason := range exceptions {
		withoutFaults[name] = reason
	}
	enginetest.Run(t, enginetest.Factory{
		New: func(t *testing.T) enginetest.Fixture {
			t.Helper()
			c := clock.NewManual(start)
			dir := newDir(t)
			options := Options{Clock: c, CacheBytes: 1 << 20, MemtableBytes: 1 << 20}
			must(t, Create(dir, options))
			e := open(t, dir, options)
			return enginetest.Fixture{
				Engine: e,
				Clock:  c,
				Restart: func(t *testing.T) engine.Engine {
					t.Helper()
					must(t, e.Close())
					e = open(t, dir, options)
					return e
				},
			}
		},
		Exceptions: withoutFaults,
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newDir(t *testing.T) string {
	t.Helper()
	return t.TempDir() + "/store"
}

func open(t *testing.T, dir string, o Options) *Engine {
	t.Helper()
	e, err := Open(dir, o)
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	return e
}

// machine is a computer whose power can fail: a file system that knows what was
// synced, faults to inject below the engine, and the engine that runs on it.
type machine struct {
	t     *testing.T
	clock *clock.Manual
	rng   *rand.Rand
	disk  *vfs.MemFS
	// memtable is small where flushes and compactions are to be met.
	memtable int

	mu     sync.Mutex
	fault  errorfs.Injector
	engine *Engine
	exits  chan int
	// kept is how much of the unsynced data the next crash keeps, in percent.
	kept int
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	seed := rand.Uint64()
	m := &machine{t: t, clock: clock.NewManual(start), rng: rand.New(rand.NewPCG(seed, 0)), disk: vfs.NewCrashableMem(), memtable: 256 << 10}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
		m.close()
	})
	must(t, Create("store", m.options()))
	m.open()
	return m
}

// MaybeError injects the present fault.
func (m *machine) MaybeError(op errorfs.Op) error {
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault.MaybeError(op)
}

// String names the injector.
func (m *machine) String() string { return "machine" }

func (m *machine) inject(fault errorfs.Injector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = fault
}

func (m *machine) options() Options {
	m.exits = make(chan int, 1)
	exits := m.exits
	return Options{
		Clock: m.clock, FS: errorfs.Wrap(m.disk, m), Exit: func(code int) { exits <- code },
		CacheBytes: 1 << 20, MemtableBytes: m.memtable,
	}
}

func (m *machine) open() *Engine {
	m.t.Helper()
	e, err := Open("store", m.options())
	must(m.t, err)
	m.engine = e
	return e
}

func (m *machine) close() {
	m.inject(nil)
	_ = m.engine.Close() // one that is latched says so again
}

// crash cuts the power: of what was not synced, kept percent stays, block by
// block. The engine is opened on what is left.
func (m *machine) crash() *Engine {
	m.t.Helper()
	left := m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.kept, RNG: m.rng})
	m.close()
	m.disk = left
	return m.open()
}

// logFault fails each write to the log, or each sync of it.
func logFault(kinds ...errorfs.OpKind) errorfs.Injector {
	return errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.HasSuffix(op.Path, ".log") {
			return nil
		}
		for _, kind := range kinds {
			if op.Kind == kind {
				return errorfs.ErrInjected
			}
		}
		return nil
	})
}

var (
	failWrites = logFault(errorfs.OpFileWrite)
	failSyncs  = logFault(errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo)
)

func (m *machine) fixture() enginetest.Fixture {
	return enginetest.Fixture{
		Engine:  m.engine,
		Clock:   m.clock,
		Restart: func(*testing.T) engine.Engine { return m.crash() },
		Fail: func(_ *testing.T, fault enginetest.Fault) {
			if fault == enginetest.FailedNotKept {
				m.kept = 0
				m.inject(failWrites)
			} else {
				m.kept = 100
				m.inject(failSyncs)
			}
		},
		Heal: func(*testing.T) engine.Engine { return m.crash() },
	}
}
