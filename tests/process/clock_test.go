package process_test

import (
	"errors"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

func TestAClockThatIsSteppedIsRefusedUntilItIsBackOrAccepted(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"back": -10 * time.Minute, "forward": 10 * time.Minute, "back by days": -72 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			p := m.start(nil)
			c := m.caller(-1)
			begin := func(key string) error {
				_, err := c.Begin(t.Context(), counterfoil.BeginParams{Key: key, Fingerprint: counterfoil.Fingerprint{1}})
				return err
			}
			if err := begin("before"); err != nil {
				t.Fatal(err)
			}
			m.step(step)
			if err := begin("stepped"); !errors.Is(err, state.ErrClock) {
				t.Fatalf("a begin: %v", err)
			}
			if _, err := c.Ready(t.Context()); !errors.Is(err, state.ErrClock) {
				t.Fatalf("ready: %v", err)
			}
			m.step(0)
			if err := begin("again"); err != nil {
				t.Fatalf("once the clock is right again: %v", err)
			}
			m.step(step)
			p.terminate()
			code, out, errs := m.run("clock", "rebaseline", "--why", "the clock was wrong")
			if code != 0 {
				t.Fatalf("rebaseline: %d %s %s", code, out, errs)
			}
			m.start(nil)
			if err := begin("new"); !errors.Is(err, state.ErrRecovering) {
				t.Fatalf("in quarantine: %v", err)
			}
			if err := begin("before"); !errors.Is(err, operation.ErrInFlight) && !errors.Is(err, operation.ErrOutcomeUnknown) {
				t.Fatalf("what was begun before: %v", err)
			}
		})
	}
}

func TestASmallStepBackGrantsNothingAnew(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.start(nil)
	c := m.caller(-1)
	call := permit.Expected{Subject: "s", Capability: "c", Server: "s", Tool: "t", RequestID: "r", ParameterHash: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}
	a, err := c.Authorize(t.Context(), counterfoil.AuthorizeParams{Call: call, TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	consume := func() error {
		_, err := c.Consume(t.Context(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call})
		return err
	}
	if err := consume(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []time.Duration{-time.Second, -90 * time.Second, 90 * time.Second, -time.Second} {
		m.step(step)
		if err := consume(); !errors.Is(err, permit.ErrReplayed) && !errors.Is(err, permit.ErrExpired) && !errors.Is(err, permit.ErrNotYetValid) {
			t.Fatalf("stepped by %s: %v", step, err)
		}
	}
}
