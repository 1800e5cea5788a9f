// Package guarded cuts the machine off at every moment of a whole guarded call, and lets the caller go on afterwards.
package guarded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/engine/pebble"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/store"
)

const (
	dir   = "/store"
	scope = "default"
	lease = time.Minute
)

var (
	start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	call  = permit.Expected{
		Subject: "ann", Capability: "pay", Server: "bank", Tool: "transfer", RequestID: "order-1",
		ParameterHash: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
	}
)

// client is the caller of one guarded call. It keeps what it was answered, as a process does that outlives the machine
// of the store, and sends a step again until it is answered.
type client struct {
	caller counterfoil.Caller
	permit []byte
	begun  counterfoil.Begun
}

// step is one call; each may be sent again as it is.
type step func(ctx context.Context, c *client) error

func authorize(ctx context.Context, c *client) error {
	a, err := c.caller.Authorize(ctx, counterfoil.AuthorizeParams{Call: call, Hold: []counterfoil.Entry{{Budget: "acme", Amount: 20}}, TTL: time.Hour})
	c.permit = a.Permit
	return err
}

func begin(ctx context.Context, c *client) (err error) {
	c.begun, err = c.caller.Begin(ctx, c.asked(counterfoil.Token{1}))
	if err == nil && c.begun.State != counterfoil.Execute {
		return fmt.Errorf("begin answered %q", c.begun.State)
	}
	return err
}

func (c *client) asked(token counterfoil.Token) counterfoil.BeginParams {
	return counterfoil.BeginParams{
		Key: "order-1", Fingerprint: counterfoil.Fingerprint{1}, Permit: c.permit, Expected: call,
		Spend: []counterfoil.Entry{{Budget: "acme", Amount: 5}}, Token: token, Lease: lease,
	}
}

func complete(ctx context.Context, c *client) error {
	done, err := c.caller.Complete(ctx, counterfoil.CompleteParams{
		ID: c.begun.ID, Token: c.begun.Token, Receipt: operation.Receipt{Body: []byte("done")},
		Capture: &[]counterfoil.Entry{{Budget: "acme", Amount: 25}},
	})
	if err == nil && (done.Unsettled || done.Uncaptured != nil) {
		return fmt.Errorf("complete answered %+v", done)
	}
	return err
}

func abort(ctx context.Context, c *client) error {
	_, err := c.caller.Abort(ctx, counterfoil.AbortParams{ID: c.begun.ID, Token: c.begun.Token})
	return err
}

var scripts = map[string]struct {
	steps []step
	spent uint64
	state operation.State
}{
	"authorize, begin, complete": {[]step{authorize, begin, complete}, 30, operation.Settled},
	"authorize, begin, abort":    {[]step{authorize, begin, abort}, 0, operation.Aborted},
}

// machine is one that the store runs on, with the file system that it leaves when it is cut off.
type machine struct {
	t     *testing.T
	clock *clock.Manual
	keys  *keyring.Keyring
	seed  uint64
}

func (m *machine) pebble(fs vfs.FS) pebble.Options {
	return pebble.Options{Clock: m.clock, FS: fs, Exit: func(int) {}, CacheBytes: 1 << 20, MemtableBytes: 64 << 10, FilterBytes: 1 << 20}
}

func (m *machine) options() store.Options {
	return store.Options{Keys: m.keys.Integrity(), Clock: m.clock, Entropy: entropy.Seeded(m.seed)}
}

// open starts the store on a file system.
func (m *machine) open(fs vfs.FS) *counterfoil.Counterfoil {
	m.t.Helper()
	e, err := pebble.Open(dir, m.pebble(fs))
	if err != nil {
		m.t.Fatalf("seed %d: open the engine: %v", m.seed, err)
	}
	c, err := counterfoil.Open(m.t.Context(), e, m.keys, m.options(), counterfoil.Options{})
	if err != nil {
		m.t.Fatalf("seed %d: open the store: %v", m.seed, err)
	}
	return c
}

// create makes a store with one budget.
func (m *machine) create(fs vfs.FS) *counterfoil.Counterfoil {
	m.t.Helper()
	if err := pebble.Create(dir, m.pebble(fs)); err != nil {
		m.t.Fatal(err)
	}
	e, err := pebble.Open(dir, m.pebble(fs))
	if err != nil {
		m.t.Fatal(err)
	}
	if err := store.Create(m.t.Context(), e, m.options()); err != nil {
		m.t.Fatal(err)
	}
	c, err := counterfoil.Open(m.t.Context(), e, m.keys, m.options(), counterfoil.Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	_, err = c.Budgets.Define(m.t.Context(), budget.DefineParams{Scope: scope, Definition: budget.Definition{
		Name: "acme", Unit: "cent", Limit: 100, Window: budget.Window{Kind: budget.Lifetime},
	}})
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

// cut is what the machine would leave if it were cut off at one moment, and what its client had been answered by then.
type cut struct {
	fs       *vfs.MemFS
	answered int // steps
	client   client
}

// cutter makes a cut at every write and sync.
type cutter struct {
	fs  *vfs.MemFS
	rng *rand.Rand

	mu       sync.Mutex
	armed    bool
	answered int
	client   client
	cuts     []cut
}

func (c *cutter) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpCreate, errorfs.OpRename, errorfs.OpRemove, errorfs.OpLink:
		c.cut()
	default:
	}
	return nil
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed {
		percent := []int{0, 50, 100}[c.rng.IntN(3)]
		c.cuts = append(c.cuts, cut{c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: c.rng}), c.answered, c.client})
	}
}

func (c *cutter) String() string { return "cuts" }

// note tells the cutter that the client was answered a step.
func (c *cutter) note(answered int, client client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.answered, c.client = true, answered, client
}

func TestCutOffAtAnyMomentTheCallEndsAsIfItHadNotBeen(t *testing.T) {
	t.Parallel()
	for name, script := range scripts {
		for round := range 12 {
			t.Run(fmt.Sprintf("%s/%d", name, round), func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, uint64(round))
				cuts := m.cuts(script.steps)
				if len(cuts) < 2*len(script.steps) {
					t.Fatalf("only %d cuts", len(cuts))
				}
				for at, c := range cuts {
					m.goOn(at, c, script.steps)
					m.judge(at, c.fs, script.spent, script.state)
				}
			})
		}
	}
}

// A client that is cut off with the machine and never comes back.
func TestCutOffAtAnyMomentWhatWasGrantedIsNotGrantedToAnother(t *testing.T) {
	t.Parallel()
	for round := range 12 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, uint64(round))
			for at, c := range m.cuts([]step{authorize, begin, complete}) {
				m.another(at, c)
			}
		})
	}
}

func newMachine(t *testing.T, seed uint64) *machine {
	t.Helper()
	m := &machine{t: t, clock: clock.NewManual(start), seed: seed}
	keys, err := keyring.NewMemory(keyring.Options{Clock: m.clock, Entropy: entropy.Seeded(seed + 100)}, scope)
	if err != nil {
		t.Fatal(err)
	}
	m.keys = keys
	return m
}

// cuts runs a script without any crash and gives what one at each moment would have left.
func (m *machine) cuts(steps []step) []cut {
	m.t.Helper()
	fs := vfs.NewCrashableMem()
	c := &cutter{fs: fs, rng: rand.New(rand.NewPCG(m.seed, 1))}
	cf := m.create(errorfs.Wrap(fs, c))
	one := client{caller: cf.As(scope, "ann")}
	c.note(0, one)
	for n, send := range steps {
		if err := send(m.t.Context(), &one); err != nil {
			m.t.Fatalf("step %d: %v", n, err)
		}
		c.note(n+1, one)
	}
	if err := cf.Close(); err != nil {
		m.t.Fatal(err)
	}
	return c.cuts
}

// goOn starts the machine again after a cut and lets the client send what it was not answered.
func (m *machine) goOn(at int, c cut, steps []step) {
	m.t.Helper()
	cf := m.open(c.fs)
	c.client.caller = cf.As(scope, "ann")
	for n := c.answered; n < len(steps); n++ {
		if err := steps[n](m.t.Context(), &c.client); err != nil {
			m.t.Fatalf("seed %d, cut %d: step %d sent again after %d were answered: %v", m.seed, at, n, c.answered, err)
		}
	}
	if err := cf.Close(); err != nil {
		m.t.Fatal(err)
	}
}

// judge looks at how the call ended.
func (m *machine) judge(at int, fs vfs.FS, spent uint64, want operation.State) {
	m.t.Helper()
	cf := m.open(fs)
	b, err := cf.Budgets.Get(m.t.Context(), budget.GetParams{Scope: scope, Name: "acme"})
	if err != nil || b.Figures.Spent != spent || b.Figures.Held != 0 {
		m.t.Fatalf("seed %d, cut %d: the budget stands at %+v, %v, want %d spent", m.seed, at, b.Figures, err, spent)
	}
	op, err := cf.As(scope, "ann").Operation(m.t.Context(), operation.ID("ann", "order-1"))
	if err != nil || op.State != want {
		m.t.Fatalf("seed %d, cut %d: the operation is %s, %v, want %s", m.seed, at, op.State, err, want)
	}
	if err := cf.Close(); err != nil {
		m.t.Fatal(err)
	}
}

// another sends a begin of somebody else for the same key after a cut.
func (m *machine) another(at int, c cut) {
	m.t.Helper()
	cf := m.open(c.fs)
	c.client.caller = cf.As(scope, "ann")
	begun, err := c.client.caller.Begin(m.t.Context(), c.client.asked(counterfoil.Token{2}))
	executes := err == nil && begun.State == counterfoil.Execute
	switch {
	case c.answered >= 2 && executes:
		m.t.Fatalf("seed %d, cut %d: an operation that was granted ran again", m.seed, at)
	case c.answered >= 3 && (err != nil || begun.State != counterfoil.Replay || string(begun.Receipt.Body) != "done"):
		m.t.Fatalf("seed %d, cut %d: a receipt that was recorded is answered as %+v, %v", m.seed, at, begun, err)
	case !executes && err != nil && !errors.Is(err, operation.ErrInFlight) && !errors.Is(err, permit.ErrMalformed):
		m.t.Fatalf("seed %d, cut %d: begin: %v", m.seed, at, err)
	}
	if err := cf.Close(); err != nil {
		m.t.Fatal(err)
	}
}
