package permit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// faulty is permits on an engine whose commits fail as planned.
type faulty struct {
	*permit.Permits
	engine *enginetest.FaultyEngine
	clock  *clock.Manual
	keys   *keyring.Keyring
	store  *store.Store
	opts   store.Options
	t      *testing.T
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	c := clock.NewManual(storetest.Start)
	f := &faulty{engine: enginetest.Faulty(memory.New(c)), clock: c, t: t}
	f.opts = store.Options{Keys: storetest.Keys(t), Clock: c, Entropy: entropy.Seeded(1)}
	if err := store.Create(t.Context(), f.engine, f.opts); err != nil {
		t.Fatal(err)
	}
	keys, err := keyring.NewMemory(keyring.Options{Clock: c, Entropy: entropy.Seeded(5)}, storetest.Scope)
	if err != nil {
		t.Fatal(err)
	}
	f.keys = keys
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
	f.store, f.Permits = s, permit.New(s, f.keys, permit.Options{})
}

func (f *faulty) mint() []byte {
	f.t.Helper()
	m, err := f.Mint(f.t.Context(), mintParams())
	if err != nil {
		f.t.Fatal(err)
	}
	return m.Permit
}

// fail makes the next commits meet a fault, so many of them.
func (f *faulty) fail(failure enginetest.Failure, times int) (met func() int) {
	n := 0
	f.engine.Plan(func(string, int) enginetest.Failure {
		if n == times {
			return enginetest.None
		}
		n++
		return failure
	})
	return func() int { return n }
}

// settled makes whatever was under way arrive, and the store usable.
func (f *faulty) settled() {
	f.t.Helper()
	f.engine.Plan(nil)
	if _, err := f.engine.Deliver(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	if f.store.Health().Latched != nil {
		f.restart()
	}
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

func eachFault(t *testing.T, test func(t *testing.T, failure enginetest.Failure, times int)) {
	t.Helper()
	for name, failure := range failures {
		for times := 1; times <= 3; times++ {
			t.Run(fmt.Sprintf("%s/%d times", name, times), func(t *testing.T) {
				t.Parallel()
				test(t, failure, times)
			})
		}
	}
}

// whole wants an error that says what it leaves open.
func whole(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	reason, ok := permit.ReasonOf(err)
	switch {
	case ok && reason == permit.ReasonUnknown && errors.Is(err, state.ErrUnknown):
	case ok && reason == permit.ReasonUnavailable && errors.Is(err, state.ErrUnavailable):
	case errors.Is(err, state.ErrLatched):
	default:
		t.Fatalf("a fault reads as %v", err)
	}
}

// Whoever comes first after a fault, the caller again with its token or another caller: the permit is granted to one of
// them, and to the caller alone if it was granted during the fault.
func TestAfterAnyFaultAPermitIsGrantedToOneCaller(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"the caller again first", "another caller first"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			eachFault(t, func(t *testing.T, failure enginetest.Failure, times int) {
				f := newFaulty(t)
				caller := useOf(f.mint())
				caller.Token = state.Token{1}
				another := caller
				another.Token = state.Token{2}
				met := f.fail(failure, times)
				_, fault := f.Consume(t.Context(), caller)
				whole(t, fault)
				if met() == 0 {
					t.Fatal("no commit met the fault")
				}
				f.settled()
				try := []permit.UseParams{caller, another}
				if order == "another caller first" {
					try[0], try[1] = another, caller
				}
				granted := map[state.Token]bool{}
				for _, u := range append(try, try...) {
					c, err := f.Consume(t.Context(), u)
					switch {
					case err == nil && c.Token == u.Token:
						granted[u.Token] = true
					case !errors.Is(err, permit.ErrReplayed):
						t.Fatalf("after the fault: %+v, %v", c, err)
					case granted[u.Token]:
						t.Fatal("a grant was taken back")
					}
				}
				if len(granted) != 1 || fault == nil && !granted[caller.Token] {
					t.Fatalf("granted to %v; during the fault the answer was %v", granted, fault)
				}
				if errors.Is(fault, state.ErrUnavailable) && order == "another caller first" && !granted[another.Token] {
					t.Fatal("the store was unavailable, and yet the permit was used")
				}
			})
		})
	}
}

// A revocation that was answered holds after any crash; one that was not may be sent again.
func TestAfterAnyFaultARevocationSentAgainHolds(t *testing.T) {
	t.Parallel()
	eachFault(t, func(t *testing.T, failure enginetest.Failure, times int) {
		f := newFaulty(t)
		u := useOf(f.mint())
		f.fail(failure, times)
		r := permit.RevokeParams{Scope: storetest.Scope, Subject: theCall.Subject}
		_, err := f.Revoke(t.Context(), r)
		whole(t, err)
		f.settled()
		if err != nil {
			if _, err = f.Revoke(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		f.restart()
		_, err = f.Consume(t.Context(), u)
		wants(t, err, permit.ErrRevoked)
	})
}

// Minting and checking write nothing, so that a fault only ever makes them unavailable, or changes nothing.
func TestAFaultNeverTurnsACheckIntoAYes(t *testing.T) {
	t.Parallel()
	eachFault(t, func(t *testing.T, failure enginetest.Failure, times int) {
		f := newFaulty(t)
		used, revoked := f.mint(), f.mint()
		if _, err := f.Consume(t.Context(), useOf(used)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Revoke(t.Context(), permit.RevokeParams{Scope: storetest.Scope}); err != nil {
			t.Fatal(err)
		}
		for _, wire := range [][]byte{used, revoked} {
			f.fail(failure, times)
			_, err := f.Check(t.Context(), permit.CheckParams{Scope: storetest.Scope, Permit: wire, Expected: theCall})
			if err == nil {
				t.Fatal("a fault made a permit good")
			}
			if !errors.Is(err, permit.ErrReplayed) && !errors.Is(err, permit.ErrRevoked) {
				whole(t, err)
			}
			f.settled()
			f.fail(failure, times)
			_, err = f.Mint(t.Context(), mintParams())
			if err == nil {
				t.Fatal("a fault made a revocation be passed over")
			}
			f.settled()
		}
	})
}

// A process dies at any point of many callers' work: afterwards every permit that was granted is granted to the same
// token only, and every other one can still be used once.
func TestAfterACrashUnderLoadEveryPermitIsGrantedOnce(t *testing.T) {
	t.Parallel()
	for crash := range 12 {
		for _, failure := range []enginetest.Failure{enginetest.BreakBefore, enginetest.BreakAfter} {
			t.Run(fmt.Sprintf("commit %d/%d", crash, failure), func(t *testing.T) {
				t.Parallel()
				f := newFaulty(t)
				const permits = 24
				var wires [permits][]byte
				for n := range wires {
					wires[n] = f.mint()
				}
				f.engine.Plan(func(_ string, n int) enginetest.Failure {
					if n == crash {
						return failure
					}
					return enginetest.None
				})
				var mu sync.Mutex
				granted := map[int]state.Token{}
				var done sync.WaitGroup
				for caller := range 2 {
					for n := range permits {
						done.Go(func() {
							u := useOf(wires[n])
							u.Token = state.Token{byte(caller + 1), byte(n)}
							_, err := f.Consume(context.Background(), u)
							if errors.Is(err, permit.ErrReplayed) {
								return
							}
							whole(t, err)
							if err == nil {
								mu.Lock()
								defer mu.Unlock()
								if other, ok := granted[n]; ok {
									t.Errorf("permit %d was granted to %v and %v", n, other, u.Token)
								}
								granted[n] = u.Token
							}
						})
					}
				}
				done.Wait()
				f.restart()
				for n := range permits {
					winners := 0
					for caller := range 2 {
						u := useOf(wires[n])
						u.Token = state.Token{byte(caller + 1), byte(n)}
						_, err := f.Consume(t.Context(), u)
						switch {
						case err == nil:
							winners++
						case !errors.Is(err, permit.ErrReplayed):
							t.Fatal(err)
						case granted[n] == u.Token:
							t.Errorf("permit %d: an acknowledged grant is gone", n)
						}
					}
					if winners != 1 {
						t.Errorf("permit %d has %d winners", n, winners)
					}
				}
			})
		}
	}
}

func TestAStoreOutOfReachIsNoAnswer(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	wire := f.mint()
	f.engine.FailReads(errors.New("the cable is out"))
	f.engine.Plan(func(string, int) enginetest.Failure { return enginetest.Refuse })
	for name, call := range map[string]func() error{
		"mint":    func() error { _, err := f.Mint(t.Context(), mintParams()); return err },
		"consume": func() error { _, err := f.Consume(t.Context(), useOf(wire)); return err },
		"check": func() error {
			_, err := f.Check(t.Context(), permit.CheckParams{Scope: storetest.Scope, Permit: wire, Expected: theCall})
			return err
		},
		"revoke": func() error { _, err := f.Revoke(t.Context(), permit.RevokeParams{Scope: storetest.Scope}); return err },
	} {
		err := call()
		if !errors.Is(err, permit.ErrUnavailable) || !errors.Is(err, state.ErrUnavailable) || errors.Is(err, permit.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.engine.Heal()
	if _, err := f.Consume(t.Context(), useOf(wire)); err != nil {
		t.Fatal(err)
	}
}

// Whoever leaves while the commit is under way is told that nobody can say; the token tells later.
func TestACallerWhoLeavesDuringTheCommitLearnsTheOutcomeByItsToken(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	u := useOf(f.mint())
	u.Token = state.Token{1}
	entered := make(chan struct{})
	gone := make(chan struct{})
	f.engine.Plan(func(string, int) enginetest.Failure {
		close(entered)
		<-gone
		return enginetest.None
	})
	ctx, leave := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() { _, err := f.Consume(ctx, u); errs <- err }()
	<-entered
	leave()
	err := <-errs
	close(gone)
	wants(t, err, permit.ErrUnknown)
	wants(t, err, state.ErrUnknown)
	f.engine.Plan(nil)
	if c, err := f.Consume(t.Context(), u); err != nil || !c.Repeated {
		t.Fatalf("%+v, %v", c, err)
	}
}

// A permit that expires on the way to the deciding step is expired, for a check too.
func TestAPermitThatExpiresOnTheWayIsExpired(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	for name, call := range map[string]func(wire []byte) error{
		"consume": func(wire []byte) error { _, err := f.Consume(t.Context(), useOf(wire)); return err },
		"check": func(wire []byte) error {
			_, err := f.Check(t.Context(), permit.CheckParams{Scope: storetest.Scope, Permit: wire, Expected: theCall})
			return err
		},
	} {
		wire := f.mint()
		f.engine.Plan(func(_ string, n int) enginetest.Failure {
			if n == 0 {
				f.clock.Advance(permit.DefaultTTL)
			}
			return enginetest.None
		})
		if err := call(wire); !errors.Is(err, permit.ErrExpired) {
			t.Errorf("%s: %v", name, err)
		}
		f.engine.Plan(nil)
	}
}

func TestWithoutRandomnessNothingIsMintedOrDrawn(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	source := &switched{Source: entropy.Seeded(2)}
	f.opts.Entropy = source
	f.restart()
	wire := f.mint()
	source.off = true
	for name, call := range map[string]func() error{
		"mint":    func() error { _, err := f.Mint(t.Context(), mintParams()); return err },
		"consume": func() error { _, err := f.Consume(t.Context(), useOf(wire)); return err },
	} {
		if err := call(); !errors.Is(err, permit.ErrUnavailable) || !errors.Is(err, entropy.ErrExhausted) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// switched is a source that can be switched off.
type switched struct {
	entropy.Source
	off bool
}

func (s *switched) Fill(p []byte) error {
	if s.off {
		return entropy.Failing.Fill(p)
	}
	return s.Source.Fill(p)
}

// A clock that stepped is not a permit that expired, nor one that is good again.
func TestASteppedClockIsRefused(t *testing.T) {
	t.Parallel()
	f := newIssuing(t, storetest.Memory(t))
	wire := f.mint()
	for _, step := range []time.Duration{3 * time.Minute, -3 * time.Minute, 24 * time.Hour, -24 * time.Hour} {
		f.Clock.Step(step)
		f.refuses(state.ErrClock, useOf(wire))
		_, err := f.Mint(t.Context(), mintParams())
		wants(t, err, state.ErrClock)
		f.Clock.Step(-step)
	}
	f.consumes(wire)
	f.Clock.Advance(time.Minute)
	f.refuses(permit.ErrExpired, useOf(wire))
	f.consumes(f.mint())
	fresh := f.mint()
	f.Clock.Step(-time.Minute) // absorbed: the time of what was decided does not go back
	f.refuses(permit.ErrExpired, useOf(wire))
	f.consumes(fresh)
}
