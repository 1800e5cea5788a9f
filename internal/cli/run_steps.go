package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
)

// recordFor is how long recording what a command did is tried at most.
const recordFor = 2 * time.Minute

// steps is a caller for one run: a store is opened for each step alone, so that runs of other keys go on meanwhile. Only
// the methods that a run needs work.
type steps struct {
	counterfoil.Caller // nil
	*call
	lease time.Duration

	mu       sync.Mutex
	reported bool // that the lease could not be renewed
	id       string
}

// step does one thing on a server or store that is open for it alone.
func step[T any](ctx context.Context, c *call, do func(*reached) (T, error)) (T, error) {
	at, err := c.reach(ctx)
	if err != nil {
		var none T
		return none, err
	}
	result, err := do(at)
	if closing := at.close(); err == nil && closing != nil {
		// What was answered is durable; that the store could not be closed well shows when it is opened.
		c.note("the store could not be closed: " + closing.Error())
	}
	return result, err
}

// Begin claims the run.
func (s *steps) Begin(ctx context.Context, p counterfoil.BeginParams) (counterfoil.Begun, error) {
	return step(ctx, s.call, func(at *reached) (counterfoil.Begun, error) {
		begun, err := at.Begin(ctx, p)
		if errors.Is(err, operation.ErrOutcomeUnknown) && at.owner != "" {
			s.id = operation.ID(at.owner, p.Key)
		}
		return begun, err
	})
}

// Renew keeps the claim while the command runs, and says so if it cannot.
func (s *steps) Renew(ctx context.Context, p counterfoil.RenewParams) (counterfoil.Renewed, error) {
	renewed, err := step(ctx, s.call, func(at *reached) (counterfoil.Renewed, error) { return at.Renew(ctx, p) })
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && !errors.Is(ctx.Err(), context.Canceled) && !s.reported: // cancelled: the command has ended
		s.reported = true
		s.note("the lease of this run could not be renewed; the command goes on, and others will hear that its outcome is unknown once " +
			s.lease.String() + " have passed since it last was: " + err.Error())
	case err == nil:
		s.reported = false
	}
	return renewed, err
}

// Complete records what the command did. It is tried again for as long as that may help: the command cannot be run again.
func (s *steps) Complete(ctx context.Context, p counterfoil.CompleteParams) (counterfoil.Completed, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		done, err := step(ctx, s.call, func(at *reached) (counterfoil.Completed, error) { return at.Complete(ctx, p) })
		if err == nil || !passing(err) {
			return done, err
		}
		if pause(ctx, wait) != nil {
			return done, err
		}
	}
}

// passing reports whether an error may pass by itself.
func passing(err error) bool {
	return codeOf(err) == Unavailable && !errors.Is(err, state.ErrClock) || errors.Is(err, state.ErrUnknown)
}

// Abort takes the claim back: the command was not started.
func (s *steps) Abort(ctx context.Context, p counterfoil.AbortParams) (counterfoil.AbortResult, error) {
	return step(ctx, s.call, func(at *reached) (counterfoil.AbortResult, error) { return at.Abort(ctx, p) })
}
