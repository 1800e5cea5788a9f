package counterfoil

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/operation"
)

// Result is what an effect leaves behind.
type Result struct {
	Receipt operation.Receipt
	Capture *[]Entry // see [CompleteParams]
}

// Ran is what [Run] did.
type Ran struct {
	Begun   Begun
	Receipt operation.Receipt // of the effect, or the replayed one
	// Recorded says that the receipt is durable. If it is not, although the effect has happened, RecordError says why; the
	// operation is outcome unknown once its lease is over.
	Recorded    bool
	RecordError error
	Completed   Completed // if Recorded, and not replayed
	// LeaseError says why the lease could not be renewed until the end; nil if it was.
	LeaseError error
}

// recordFor bounds the time that recording a receipt, or an abort, takes after the caller has left.
const recordFor = 30 * time.Second

// Run begins an operation, performs its effect if and only if that is allowed, and records the result. While the effect
// runs the lease is renewed. A refusal of the begin is returned as it is, and the effect does not run. Nor does it if the
// answer to the begin takes longer than the lease: the claim is taken back then, and the error is [ErrStale].
//
// If the effect fails, whether it has happened is not known: its error is returned, and the operation becomes outcome
// unknown when its lease is over. So it is with a panic. Only an error that [NotPerformed] made takes the claim back, with
// its hold and spends.
func Run(ctx context.Context, c Caller, p BeginParams, effect func(context.Context, Begun) (Result, error)) (Ran, error) {
	asked := clock.System{}.Now()
	begun, err := c.Begin(ctx, p)
	if err != nil {
		return Ran{}, err
	}
	ran := Ran{Begun: begun}
	switch begun.State {
	case Execute:
	case Replay:
		ran.Receipt, ran.Recorded = *begun.Receipt, true
		return ran, nil
	default:
		return Ran{}, fmt.Errorf("counterfoil: an answer of an unknown state: %w", errors.ErrUnsupported)
	}
	// Its lease is over, for all that is known here: others may have been told that the outcome is unknown, and somebody have
	// found out that nothing happened.
	if since(asked) >= cmp.Or(p.Lease, DefaultLease) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
		defer cancel()
		return ran, giveUp(ctx, c, begun, NotPerformed(fmt.Errorf("%w: the effect was not performed", ErrStale)))
	}
	renewal := keepLease(ctx, c, begun, p.Lease)
	defer renewal.stop() // after a panic too: the lease must run out
	result, err := effect(ctx, begun)
	ran.LeaseError = renewal.end()
	// The effect may have happened: recording it no longer depends on the caller's patience.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	if err != nil {
		return ran, giveUp(ctx, c, begun, err)
	}
	ran.Receipt = result.Receipt
	ran.Completed, ran.RecordError = c.Complete(ctx, CompleteParams{
		ID: begun.ID, Token: begun.Token, Receipt: result.Receipt, Capture: result.Capture,
	})
	ran.Recorded = ran.RecordError == nil
	return ran, nil
}

// since tells how long ago a moment was, at least: where the machine slept, only one of its clocks went on.
func since(moment time.Time) time.Duration {
	now := clock.System{}.Now()
	return max(now.Sub(moment), now.Round(0).Sub(moment.Round(0)))
}

// NotPerformed wraps an error of an effect that proves that the effect has not happened and never will: the request was
// not sent. A timeout, a broken connection or an error of unknown origin is no proof.
func NotPerformed(err error) error { return &notPerformedError{err} }

type notPerformedError struct{ err error }

func (e *notPerformedError) Error() string { return "not performed: " + e.err.Error() }
func (e *notPerformedError) Unwrap() error { return e.err }

// giveUp takes the claim back if the effect's error is a proof, and returns what its caller should know.
func giveUp(ctx context.Context, c Caller, begun Begun, effect error) error {
	var proof *notPerformedError
	if !errors.As(effect, &proof) {
		return effect
	}
	if _, err := c.Abort(ctx, AbortParams{ID: begun.ID, Token: begun.Token, Reason: "the effect was not performed"}); err != nil {
		return errors.Join(effect, fmt.Errorf("counterfoil: the claim could not be taken back: %w", err))
	}
	return effect
}

// renewal keeps a lease alive in the background.
type renewal struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // read after done
}

// keepLease renews a lease at each third of it until it is ended, or until the operation is certainly no longer held.
func keepLease(ctx context.Context, c Caller, begun Begun, lease time.Duration) *renewal {
	if lease == 0 {
		lease = DefaultLease
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &renewal{stop: stop, done: make(chan struct{})}
	go r.run(ctx, c, RenewParams{ID: begun.ID, Token: begun.Token, Lease: lease})
	return r
}

func (r *renewal) run(ctx context.Context, c Caller, p RenewParams) {
	defer close(r.done)
	tick := time.NewTicker(p.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		attempt, cancel := context.WithTimeout(ctx, p.Lease/3)
		_, err := c.Renew(attempt, p)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if r.err = err; lost(err) {
			return
		}
	}
}

// lost reports whether a failed renewal says that no other one can succeed.
func lost(err error) bool {
	for _, final := range []error{operation.ErrOutcomeUnknown, operation.ErrNotHolder, operation.ErrNotPending, operation.ErrAborted, operation.ErrNotFound} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// end stops the renewal and tells why the last one failed, nil if it did not. It may be called again.
func (r *renewal) end() error {
	r.stop()
	<-r.done
	return r.err
}
