package counterfoil_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// rig is all capabilities on an engine whose commits fail as planned.
type rig struct {
	*counterfoil.Counterfoil
	faults *enginetest.FaultyEngine
	engine engine.Engine // what the store works on
	clock  *clock.Manual
	keys   *keyring.Keyring
	store  *store.Store
	opts   store.Options
	t      *testing.T

	// What the calls of a script are about.
	permit []byte
	begun  counterfoil.Begun
}

// embedded is an engine that belongs to one process: an ambiguous commit latches its store.
type embedded struct{ engine.Engine }

func (e embedded) Guarantee() engine.Guarantee {
	g := e.Engine.Guarantee()
	g.Shared = false
	return g
}

func newRig(t *testing.T, alone bool) *rig {
	t.Helper()
	c := clock.NewManual(storetest.Start)
	r := &rig{faults: enginetest.Faulty(memory.New(c)), clock: c, t: t}
	if r.engine = r.faults; alone {
		r.engine = embedded{r.faults}
	}
	r.opts = store.Options{Keys: storetest.Keys(t), Clock: c, Entropy: entropy.Seeded(1)}
	if err := store.Create(t.Context(), r.engine, r.opts); err != nil {
		t.Fatal(err)
	}
	keys, err := keyring.NewMemory(keyring.Options{Clock: c, Entropy: entropy.Seeded(2)}, scope)
	if err != nil {
		t.Fatal(err)
	}
	r.keys = keys
	r.restart()
	_, err = r.Budgets.Define(t.Context(), budget.DefineParams{Scope: scope, Definition: budget.Definition{
		Name: "acme", Unit: "cent", Limit: 100, Window: budget.Window{Kind: budget.Lifetime},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// restart opens the store again, as the process that follows a crash does.
func (r *rig) restart() {
	r.t.Helper()
	r.faults.Heal()
	s, err := store.Open(r.t.Context(), r.engine, r.opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.store = s
	if r.Counterfoil, err = counterfoil.New(s, r.keys, counterfoil.Options{}); err != nil {
		r.t.Fatal(err)
	}
}

// settled makes whatever was under way arrive, and the store usable.
func (r *rig) settled() {
	r.t.Helper()
	r.faults.Plan(nil)
	if _, err := r.faults.Deliver(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if r.store.Health().Latched != nil {
		r.restart()
	}
}

func (r *rig) ann() counterfoil.Caller { return r.As(scope, "ann") }

func (r *rig) standing() used {
	r.t.Helper()
	b, err := r.Budgets.Get(context.Background(), budget.GetParams{Scope: scope, Name: "acme"})
	if err != nil {
		r.t.Fatal(err)
	}
	return used{b.Figures.Spent, b.Figures.Held}
}

// step is one call of a script. It is sent again as it is until it is answered.
type step struct {
	name string
	send func(*rig) error
}

var authorizing = step{"authorize", func(r *rig) error {
	a, err := r.ann().Authorize(r.t.Context(), counterfoil.AuthorizeParams{Call: call("order-1"), Hold: entries("acme", 20), TTL: time.Hour})
	r.permit = a.Permit
	return err
}}

var beginning = step{"begin", func(r *rig) error {
	b, err := r.ann().Begin(r.t.Context(), counterfoil.BeginParams{
		Key: "order-1", Fingerprint: fingerprint(1), Permit: r.permit, Expected: call("order-1"), Spend: entries("acme", 5),
		Token: counterfoil.Token{1}, Lease: time.Minute,
	})
	if err == nil && b.State != counterfoil.Execute {
		return fmt.Errorf("%w: begin answered %q", errTest, b.State)
	}
	r.begun = b
	return err
}}

var renewing = step{"renew", func(r *rig) error {
	_, err := r.ann().Renew(r.t.Context(), counterfoil.RenewParams{ID: r.begun.ID, Token: r.begun.Token, Lease: time.Minute})
	return err
}}

var completing = step{"complete", func(r *rig) error {
	done, err := r.ann().Complete(r.t.Context(), counterfoil.CompleteParams{
		ID: r.begun.ID, Token: r.begun.Token, Receipt: receipt("done"), Capture: &[]counterfoil.Entry{{Budget: "acme", Amount: 25}},
	})
	if err == nil && (done.Unsettled || done.Uncaptured != nil) {
		return fmt.Errorf("%w: complete answered %+v", errTest, done)
	}
	return err
}}

var aborting = step{"abort", func(r *rig) error {
	done, err := r.ann().Abort(r.t.Context(), counterfoil.AbortParams{ID: r.begun.ID, Token: r.begun.Token})
	if err == nil && done.Unsettled {
		return fmt.Errorf("%w: abort answered %+v", errTest, done)
	}
	return err
}}

func resolving(outcome operation.Outcome) step {
	return step{"resolve", func(r *rig) error {
		r.clock.Advance(time.Minute)
		got, err := r.ann().Resolve(r.t.Context(), counterfoil.ResolveParams{
			ID: r.begun.ID, Outcome: outcome, Note: "asked the ledger", Receipt: receipt("done"),
		})
		if err == nil && got.Unsettled {
			return fmt.Errorf("%w: resolve answered %+v", errTest, got)
		}
		return err
	}}
}

var consuming = step{"consume", func(r *rig) error {
	_, err := r.ann().Consume(r.t.Context(), counterfoil.ConsumeParams{Permit: r.permit, Expected: call("order-1"), Token: counterfoil.Token{1}})
	return err
}}

var capturing = step{"capture", func(r *rig) error {
	_, err := r.Budgets.Capture(r.t.Context(), budget.CaptureParams{Scope: scope, Owner: "ann", HoldID: holdID("order-1"), Token: counterfoil.Token{1}})
	return err
}}

// scripts are whole guarded calls, and where the budget stands after each.
var scripts = map[string]struct {
	steps []step
	ends  used
	state operation.State
}{
	"complete":      {[]step{authorizing, beginning, renewing, completing}, used{30, 0}, operation.Settled},
	"abort":         {[]step{authorizing, beginning, aborting}, used{0, 0}, operation.Aborted},
	"happened":      {[]step{authorizing, beginning, resolving(operation.Happened)}, used{25, 0}, operation.Settled},
	"did not":       {[]step{authorizing, beginning, resolving(operation.DidNotHappen)}, used{0, 0}, operation.Aborted},
	"bare consumed": {[]step{authorizing, consuming, capturing}, used{20, 0}, ""},
}

// The faults come in pairs: nothing was kept, or everything was.
var failures = map[string]enginetest.Failure{
	"out of reach": enginetest.Refuse, "contended": enginetest.Contend,
	"the request was lost": enginetest.LoseRequest, "the reply was lost": enginetest.LoseReply,
	"broke before the commit": enginetest.BreakBefore, "broke behind the commit": enginetest.BreakAfter,
	"the request comes in late": enginetest.Delay,
}

// eachFault runs test for every script, step, fault and kind of engine, as parallel subtests.
func eachFault(t *testing.T, test func(r *rig, name string, at int, fault func())) {
	t.Helper()
	t.Parallel()
	for name, script := range scripts {
		for at := range script.steps {
			for what, failure := range failures {
				for times := 1; times <= 2; times++ {
					for _, alone := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s/%d %s/%s/%d times/alone %t", name, at, script.steps[at].name, what, times, alone), func(t *testing.T) {
							t.Parallel()
							r := newRig(t, alone)
							test(r, name, at, func() {
								n := 0
								r.faults.Plan(func(string, int) enginetest.Failure {
									if n++; n > times {
										return enginetest.None
									}
									return failure
								})
							})
						})
					}
				}
			}
		}
	}
}

// open wants an error that leaves it open, or says that nothing happened: never a refusal.
func (r *rig) open(step string, err error) {
	r.t.Helper()
	for _, allowed := range []error{state.ErrUnknown, state.ErrUnavailable, state.ErrLatched} {
		if errors.Is(err, allowed) {
			return
		}
	}
	r.t.Fatalf("a fault in %s reads as %v", step, err)
}

// run runs the steps of a script from one to another, each sent again until it is answered.
func (r *rig) run(steps []step) {
	r.t.Helper()
	for _, s := range steps {
		err := s.send(r)
		for n := 0; err != nil && n < 4; n++ {
			r.open(s.name, err)
			r.settled()
			err = s.send(r)
		}
		if err != nil {
			r.t.Fatalf("%s, sent again and again: %v", s.name, err)
		}
	}
	r.settled()
}

func TestAfterAnyFaultEachStepSentAgainEndsTheCallAsWithoutIt(t *testing.T) {
	eachFault(t, func(r *rig, name string, at int, fault func()) {
		script := scripts[name]
		r.run(script.steps[:at])
		fault()
		r.run(script.steps[at:])
		if got := r.standing(); got != script.ends {
			r.t.Fatalf("the budget stands at %+v, want %+v", got, script.ends)
		}
		if script.state == "" {
			return
		}
		op, err := r.ann().Operation(r.t.Context(), operation.ID("ann", "order-1"))
		if err != nil || op.State != script.state {
			r.t.Fatalf("the operation is %+v, %v, want %s", op, err, script.state)
		}
		b, err := r.ann().Begin(r.t.Context(), request("order-1"))
		if want := map[operation.State]counterfoil.State{operation.Settled: counterfoil.Replay, operation.Aborted: counterfoil.Execute}[script.state]; err != nil || b.State != want {
			r.t.Fatalf("the next begin answers %+v, %v, want %s", b, err, want)
		}
	})
}

// A caller that meets a fault and never comes back: another caller of the same key never runs what may have run.
func TestAfterAnyFaultNobodyElseRunsWhatMayHaveRun(t *testing.T) {
	eachFault(t, func(r *rig, name string, at int, fault func()) {
		script := scripts[name]
		r.run(script.steps[:at])
		fault()
		err := script.steps[at].send(r)
		if err != nil {
			r.open(script.steps[at].name, err)
		}
		r.settled()
		granted := at > 1 || at == 1 && err == nil
		r.clock.Advance(10 * time.Minute)
		b, berr := r.ann().Begin(r.t.Context(), counterfoil.BeginParams{
			Key: "order-1", Fingerprint: fingerprint(1), Permit: r.permit, Expected: call("order-1"),
		})
		switch executed := berr == nil && b.State == counterfoil.Execute; {
		case name == "bare consumed" && at >= 1 && executed && granted:
			r.t.Fatal("a permit that was consumed was used by a begin")
		case name != "bare consumed" && executed && granted:
			r.t.Fatal("an operation that was granted ran again")
		}
		// Whatever happened: the budget never stands above what was asked for.
		if got := r.standing(); got.spent+got.held > 50 {
			r.t.Fatalf("the budget stands at %+v", got)
		}
	})
}
