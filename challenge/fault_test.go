package challenge_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/challenge"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// faulty is a gate on an engine whose commits fail as planned.
type faulty struct {
	*challenge.Challenges
	engine *enginetest.FaultyEngine
	store  *store.Store
	opts   store.Options
	t      *testing.T
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	c := clock.NewManual(storetest.Start)
	f := &faulty{engine: enginetest.Faulty(memory.New(c)), t: t}
	f.opts = store.Options{Keys: storetest.Keys(t), Clock: c, Entropy: entropy.Seeded(1)}
	if err := store.Create(t.Context(), f.engine, f.opts); err != nil {
		t.Fatal(err)
	}
	f.restart()
	return f
}

// restart opens the store again, as the process that follows a crash does.
func (f *faulty) restart() {
	f.t.Helper()
	f.engine.Heal()
	s, err := store.Open(f.t.Context(), f.engine, f.opts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.store, f.Challenges = s, challenge.New(s, challenge.Options{})
}

// The faults come in pairs: nothing was kept, or everything was.
var failures = map[string]enginetest.Failure{
	"out of reach":              enginetest.Refuse,
	"contended":                 enginetest.Contend,
	"the request was lost":      enginetest.LoseRequest,
	"the reply was lost":        enginetest.LoseReply,
	"broke before the commit":   enginetest.BreakBefore,
	"broke behind the commit":   enginetest.BreakAfter,
	"the request comes in late": enginetest.Delay,
}

// Whatever happens to whichever commit of a job's life: with the same tokens it goes on, and what was granted is granted
// to nobody else.
func TestAfterAnyFaultTheSameTokensGoOnAndNothingIsGrantedTwice(t *testing.T) {
	t.Parallel()
	const steps = 3
	for name, failure := range failures {
		for step := range steps {
			for times := 1; times <= 2; times++ {
				t.Run(fmt.Sprintf("%s/step %d/%d times", name, step, times), func(t *testing.T) {
					t.Parallel()
					newFaulty(t).life(failure, step, times)
				})
			}
		}
	}
}

// life issues, consumes and advances, with the fault in one step, which is sent again until it is answered.
func (f *faulty) life(failure enginetest.Failure, fault, times int) {
	f.t.Helper()
	met := 0
	var issued challenge.Issued
	issue, consume := issueParams(), challenge.ConsumeParams{}
	issue.Token = state.Token{1}
	advance := challenge.AdvanceParams{Scope: storetest.Scope, From: 1, Token: state.Token{3}}
	for step, call := range []func() error{
		func() (err error) {
			issued, err = f.Issue(f.t.Context(), issue)
			return err
		},
		func() error {
			consume = consumeParams(issued)
			consume.Token = state.Token{2}
			_, err := f.Consume(f.t.Context(), consume)
			return err
		},
		func() error { _, err := f.AdvanceEpoch(f.t.Context(), advance); return err },
	} {
		if step == fault {
			f.engine.Plan(func(string, int) enginetest.Failure {
				if met == times {
					return enginetest.None
				}
				met++
				return failure
			})
		}
		f.until(call)
		f.engine.Plan(nil)
		if _, err := f.engine.Deliver(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
	if met == 0 {
		f.t.Fatal("no commit met the fault")
	}
	f.restart()
	f.check(issue, consume, advance)
}

// until sends a call again until it is answered, after a restart where the store needs one. An error must say what it
// leaves open.
func (f *faulty) until(call func() error) {
	f.t.Helper()
	for range 4 {
		err := call()
		switch {
		case err == nil:
			return
		case errors.Is(err, state.ErrUnavailable), errors.Is(err, state.ErrUnknown):
		default:
			f.t.Fatalf("a fault reads as %v", err)
		}
		if f.store.Health().Latched != nil {
			f.restart()
		}
	}
	f.t.Fatal("four tries gave no answer")
}

func (f *faulty) check(issue challenge.IssueParams, consume challenge.ConsumeParams, advance challenge.AdvanceParams) {
	f.t.Helper()
	if c, err := f.Consume(f.t.Context(), consume); err != nil || !c.Repeated {
		f.t.Errorf("the consume again: %+v, %v", c, err)
	}
	consume.Token = state.Token{99}
	if _, err := f.Consume(f.t.Context(), consume); !errors.Is(err, challenge.ErrAlreadyConsumed) {
		f.t.Errorf("another's consume: %v", err)
	}
	if _, err := f.Issue(f.t.Context(), issue); !errors.Is(err, challenge.ErrAlreadyConsumed) {
		f.t.Errorf("the issue again: %v", err)
	}
	if e, err := f.AdvanceEpoch(f.t.Context(), advance); err != nil || e != (challenge.Epoch{Epoch: 2, Repeated: true}) {
		f.t.Errorf("the advance again: %+v, %v", e, err)
	}
	advance.Token = state.Token{98}
	if _, err := f.AdvanceEpoch(f.t.Context(), advance); !errors.Is(err, challenge.ErrEpochConflict) {
		f.t.Errorf("another's advance: %v", err)
	}
}

// Whoever comes first after a fault, the caller again with its token or another: one of them has consumed the challenge,
// and the caller alone if it was answered during the fault.
func TestAfterAnyFaultAChallengeIsConsumedByOneCaller(t *testing.T) {
	t.Parallel()
	for name, failure := range failures {
		for _, first := range []state.Token{{1}, {2}} {
			t.Run(fmt.Sprintf("%s/caller %d first", name, first[0]), func(t *testing.T) {
				t.Parallel()
				f := newFaulty(t)
				i, err := f.Issue(t.Context(), issueParams())
				if err != nil {
					t.Fatal(err)
				}
				p := consumeParams(i)
				p.Token = state.Token{1}
				f.engine.Next(failure)
				_, fault := f.Consume(t.Context(), p)
				f.engine.Plan(nil)
				if _, err := f.engine.Deliver(t.Context()); err != nil {
					t.Fatal(err)
				}
				if f.store.Health().Latched != nil {
					f.restart()
				}
				granted := map[state.Token]bool{}
				for _, token := range []state.Token{first, {3 - first[0]}, first, {3 - first[0]}} {
					p.Token = token
					switch _, err := f.Consume(t.Context(), p); {
					case err == nil:
						granted[token] = true
					case !errors.Is(err, challenge.ErrAlreadyConsumed):
						t.Fatal(err)
					case granted[token]:
						t.Fatal("a grant was taken back")
					}
				}
				if len(granted) != 1 || fault == nil && !granted[state.Token{1}] {
					t.Fatalf("granted to %v; during the fault the answer was %v", granted, fault)
				}
			})
		}
	}
}

// An engine that cannot be read says nothing about a challenge.
func TestAStoreOutOfReachIsNoAnswer(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	i, err := f.Issue(t.Context(), issueParams())
	if err != nil {
		t.Fatal(err)
	}
	f.engine.FailReads(errors.New("the cable is out"))
	f.engine.Plan(func(string, int) enginetest.Failure { return enginetest.Refuse })
	calls := map[string]func() error{
		"issue":   func() error { _, err := f.Issue(t.Context(), issueParams()); return err },
		"lookup":  func() error { _, err := f.Lookup(t.Context(), lookupParams()); return err },
		"consume": func() error { _, err := f.Consume(t.Context(), consumeParams(i)); return err },
		"epoch": func() error {
			_, err := f.Epoch(t.Context(), challenge.EpochParams{Scope: storetest.Scope})
			return err
		},
		"advance": func() error {
			_, err := f.AdvanceEpoch(t.Context(), challenge.AdvanceParams{Scope: storetest.Scope, From: 1})
			return err
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, challenge.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.engine.Heal()
	if _, err := f.Consume(t.Context(), consumeParams(i)); err != nil {
		t.Fatal(err)
	}
}

func TestALostTokenIsNoChallengeTwice(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	i, err := f.Issue(t.Context(), issueParams())
	if err != nil {
		t.Fatal(err)
	}
	f.engine.Next(enginetest.BreakAfter)
	_, err = f.Consume(t.Context(), consumeParams(i)) // the callee drew the token: nobody knows it
	wants(t, err, state.ErrUnknown)
	f.restart()
	_, err = f.Consume(t.Context(), consumeParams(i))
	wants(t, err, challenge.ErrAlreadyConsumed)
}

func TestWithoutRandomnessNothingIsIssued(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.opts.Entropy = &broken{Source: entropy.Seeded(2)}
	f.restart()
	f.opts.Entropy.(*broken).now = true
	_, err := f.Issue(t.Context(), issueParams())
	wants(t, err, entropy.ErrExhausted)
	wants(t, err, challenge.ErrUnavailable)
}

// broken is a source that can be switched off.
type broken struct {
	entropy.Source
	now bool
}

func (b *broken) Fill(p []byte) error {
	if b.now {
		return entropy.Failing.Fill(p)
	}
	return b.Source.Fill(p)
}

// A clock that stepped is not a challenge that expired.
func TestASteppedClockIsRefused(t *testing.T) {
	t.Parallel()
	g := newGate(t, storetest.Memory(t))
	i := g.issue()
	g.Clock.Step(24 * time.Hour)
	_, err := g.Consume(t.Context(), consumeParams(i))
	wants(t, err, state.ErrClock)
	g.Clock.Step(-24 * time.Hour)
	g.consume(i)
}
