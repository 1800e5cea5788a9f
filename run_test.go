package counterfoil_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
)

func (d *desk) run(p counterfoil.BeginParams, effect func(context.Context, counterfoil.Begun) (counterfoil.Result, error)) (counterfoil.Ran, error) {
	d.t.Helper()
	return counterfoil.Run(d.t.Context(), d.ann, p, effect)
}

func done(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
	return counterfoil.Result{Receipt: receipt("done")}, nil
}

func (d *desk) never(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
	d.t.Error("the effect ran")
	return counterfoil.Result{}, nil
}

func TestRunPerformsOnceAndReplays(t *testing.T) {
	each(t, func(d *desk) {
		ran, err := d.run(request("order-1"), done)
		if err != nil || !ran.Recorded || ran.Begun.State != counterfoil.Execute || string(ran.Receipt.Body) != "done" || ran.LeaseError != nil {
			d.t.Fatalf("run: %+v, %v", ran, err)
		}
		again, err := d.run(request("order-1"), d.never)
		if err != nil || !again.Recorded || again.Begun.State != counterfoil.Replay || string(again.Receipt.Body) != "done" {
			d.t.Fatalf("run again: %+v, %v", again, err)
		}
		p := request("order-1")
		p.Fingerprint = fingerprint(2)
		_, err = d.run(p, d.never)
		d.wantError("run of another request", err, operation.ErrMismatch)
	})
}

func TestAFailedEffectMayHaveHappened(t *testing.T) {
	each(t, func(d *desk) {
		p := request("order-1")
		p.Spend = entries("acme", 5)
		_, err := d.run(p, func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
			return counterfoil.Result{}, errTest
		})
		d.wantError("run", err, errTest)
		_, err = d.run(p, d.never)
		d.wantError("run while the lease is alive", err, operation.ErrInFlight)
		d.Clock.Advance(lease)
		_, err = d.run(p, d.never)
		d.wantError("run after the lease", err, operation.ErrOutcomeUnknown)
		d.wantUsed("after all", "acme", 5, 0)
	})
}

func TestAnEffectThatProvesThatItDidNotHappenIsTakenBack(t *testing.T) {
	each(t, func(d *desk) {
		p := request("order-1")
		p.Spend = entries("acme", 5)
		_, err := d.run(p, func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
			return counterfoil.Result{}, counterfoil.NotPerformed(errTest)
		})
		d.wantError("run", err, errTest)
		d.wantUsed("after the proof", "acme", 0, 0)
		if ran, err := d.run(p, done); err != nil || ran.Begun.State != counterfoil.Execute {
			d.t.Fatalf("run again: %+v, %v", ran, err)
		}
	})
}

func TestAPanicIsNoProof(t *testing.T) {
	each(t, func(d *desk) {
		func() {
			defer func() {
				if recover() == nil {
					d.t.Error("the panic was swallowed")
				}
			}()
			_, _ = d.run(request("order-1"), func(context.Context, counterfoil.Begun) (counterfoil.Result, error) { panic(errTest) })
		}()
		d.Clock.Advance(lease)
		_, err := d.run(request("order-1"), d.never)
		d.wantError("run after the panic", err, operation.ErrOutcomeUnknown)
	})
}

func TestACallerWhoLeavesDoesNotKeepTheReceiptFromBeingRecorded(t *testing.T) {
	each(t, func(d *desk) {
		ctx, leave := context.WithCancel(d.t.Context())
		ran, err := counterfoil.Run(ctx, d.ann, request("order-1"), func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
			leave()
			return counterfoil.Result{Receipt: receipt("done")}, nil
		})
		if err != nil || !ran.Recorded {
			d.t.Fatalf("run: %+v, %v", ran, err)
		}
	})
}

func TestAResultThatCannotBeRecordedIsStillGivenAndSaysSo(t *testing.T) {
	each(t, func(d *desk) {
		ran, err := d.run(request("order-1"), func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
			if err := d.Fixture.Store.Close(); err != nil {
				d.t.Error(err)
			}
			return counterfoil.Result{Receipt: receipt("done")}, nil
		})
		if err != nil || ran.Recorded || !errors.Is(ran.RecordError, state.ErrUnavailable) || string(ran.Receipt.Body) != "done" {
			d.t.Fatalf("run: %+v, %v, want the result, not recorded", ran, err)
		}
		d.restart()
		d.Clock.Advance(lease)
		_, err = d.run(request("order-1"), d.never)
		d.wantError("run again", err, operation.ErrOutcomeUnknown)
	})
}

func TestALongEffectKeepsItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, storetest.Memory(t))
		p := request("order-1")
		p.Lease = 3 * time.Second
		ran, err := d.run(p, func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
			for range 20 {
				d.pass(time.Second)
				d.refused("begin meanwhile", p, operation.ErrInFlight)
			}
			return counterfoil.Result{Receipt: receipt("done")}, nil
		})
		if err != nil || !ran.Recorded || ran.LeaseError != nil {
			t.Fatalf("run: %+v, %v", ran, err)
		}
	})
}

// pass lets time pass for the store and for the timers of the process.
func (d *desk) pass(t time.Duration) {
	d.Clock.Advance(t)
	<-time.After(t)
	synctest.Wait()
}

func TestALostLeaseIsReportedAndTheEffectIsLeftRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, storetest.Memory(t))
		p := request("order-1")
		p.Lease = 3 * time.Second
		ran, err := d.run(p, func(ctx context.Context, _ counterfoil.Begun) (counterfoil.Result, error) {
			d.Clock.Advance(time.Minute) // the process stood still
			d.pass(time.Second)
			return counterfoil.Result{Receipt: receipt("done")}, ctx.Err()
		})
		if err != nil || !ran.Recorded || !errors.Is(ran.LeaseError, operation.ErrOutcomeUnknown) {
			t.Fatalf("run: %+v, %v, want recorded, the lease lost", ran, err)
		}
	})
}

// standing is a caller whose process stands still after each claim.
type standing struct{ counterfoil.Caller }

func (s standing) Begin(ctx context.Context, p counterfoil.BeginParams) (counterfoil.Begun, error) {
	begun, err := s.Caller.Begin(ctx, p)
	<-time.After(p.Lease)
	return begun, err
}

// TestAnEffectDoesNotBeginAfterItsLease: until then somebody may have found out that it never did, and let another one begin.
func TestAnEffectDoesNotBeginAfterItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, storetest.Memory(t))
		p := request("order-1")
		p.Lease = lease
		_, err := counterfoil.Run(t.Context(), standing{d.ann}, p, d.never)
		d.wantError("run", err, counterfoil.ErrStale)
		if ran, err := d.run(request("order-1"), done); err != nil || !ran.Recorded {
			t.Errorf("the claim is not taken back: %+v, %v", ran, err)
		}
	})
}
