package counterfoil_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

func rawID(t *testing.T, id string) string {
	t.Helper()
	raw, err := hex.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestAuthorizedAgainItIsTheSamePermitWhileTheHoldIsOpen(t *testing.T) {
	each(t, func(d *desk) {
		first := d.authorize("order-1", entries("acme", 20))
		d.Clock.Advance(time.Second)
		again := d.authorize("order-1", entries("acme", 20))
		if !again.Repeated || !bytes.Equal(again.Permit, first.Permit) || !again.ExpiresAt.Equal(first.ExpiresAt) || again.HoldID != first.HoldID {
			d.t.Fatalf("authorize again: %+v, want %+v", again, first)
		}
		d.wantUsed("after both", "acme", 0, 20)
		for name, p := range map[string]counterfoil.AuthorizeParams{
			"another amount": {Call: call("order-1"), Hold: entries("acme", 21)},
			"another TTL":    {Call: call("order-1"), Hold: entries("acme", 20), TTL: time.Minute},
			"another tool":   {Call: withTool(call("order-1")), Hold: entries("acme", 20)},
		} {
			_, err := d.ann.Authorize(d.t.Context(), p)
			d.wantError(name, err, budget.ErrRequestIDReused)
		}
		d.mustExecute(permitted("order-1", first))
		_, err := d.ann.Authorize(d.t.Context(), counterfoil.AuthorizeParams{Call: call("order-1"), Hold: entries("acme", 20)})
		d.wantError("authorize again once it is used", err, budget.ErrHoldSettled)
	})
}

func withTool(c permit.Expected) permit.Expected {
	c.Tool = "other"
	return c
}

func TestThePermitThatExpiredUnusedIsReplacedAndItsHoldIsOver(t *testing.T) {
	each(t, func(d *desk) {
		first := d.authorize("order-1", entries("acme", 20))
		d.Clock.Advance(31 * time.Second)
		d.wantUsed("once it expired", "acme", 0, 0)
		d.refused("begin with the expired permit", permitted("order-1", first), permit.ErrExpired)
		second := d.authorize("order-1", entries("acme", 20))
		if second.Repeated || bytes.Equal(second.Permit, first.Permit) {
			d.t.Fatalf("authorize again: %+v, want a new permit", second)
		}
		d.mustExecute(permitted("order-1", second))
	})
}

func TestAHoldThatDoesNotFitMintsNothing(t *testing.T) {
	each(t, func(d *desk) {
		_, err := d.ann.Authorize(d.t.Context(), counterfoil.AuthorizeParams{Call: call("order-1"), Hold: entries("acme/search", 61)})
		d.wantError("authorize", err, budget.ErrExceeded)
		d.wantUsed("after the refusal", "acme", 0, 0)
		d.authorize("order-1", entries("acme/search", 60))
	})
}

func TestWhileARevocationLiesAheadNothingIsMinted(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme", 20))
		if _, err := d.Permits.Revoke(d.t.Context(), permit.RevokeParams{Scope: scope, Subject: "ann"}); err != nil {
			d.t.Fatal(err)
		}
		d.refused("begin with a revoked permit", permitted("order-1", a), permit.ErrRevoked)
		for _, hold := range [][]counterfoil.Entry{nil, entries("acme", 1)} {
			_, err := d.ann.Authorize(d.t.Context(), counterfoil.AuthorizeParams{Call: call("order-2"), Hold: hold})
			var refusal *permit.Error
			if !errors.Is(err, permit.ErrRevoked) || !errors.As(err, &refusal) || refusal.RetryAfter <= 0 {
				d.t.Fatalf("authorize: %v, want revoked for a while", err)
			}
		}
		d.wantUsed("after the refusals", "acme", 0, 20)
		d.Clock.Advance(10 * time.Second)
		d.mustExecute(permitted("order-2", d.authorize("order-2", entries("acme", 1))))
	})
}

func TestTwoPermitsWithoutHoldsAreTwoUses(t *testing.T) {
	each(t, func(d *desk) {
		a, b := d.authorize("order-1", nil), d.authorize("order-1", nil)
		if bytes.Equal(a.Permit, b.Permit) || a.HoldID != "" {
			d.t.Fatal("two mints gave one permit")
		}
		d.mustExecute(permitted("order-1", a))
		if _, err := d.ann.Consume(d.t.Context(), counterfoil.ConsumeParams{Permit: b.Permit, Expected: call("order-1")}); err != nil {
			d.t.Fatal(err)
		}
	})
}

func TestABareConsumeFencesTheHoldForItsToken(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme/search", 20))
		p := counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("order-1"), Token: counterfoil.Token{7}}
		checked, err := d.ann.Check(d.t.Context(), counterfoil.CheckParams{Permit: a.Permit, Expected: call("order-1")})
		if err != nil || checked.HoldID != a.HoldID {
			d.t.Fatalf("check: %+v, %v", checked, err)
		}
		first, err := d.ann.Consume(d.t.Context(), p)
		if err != nil || first.Repeated || first.HoldID != a.HoldID || first.Token != p.Token {
			d.t.Fatalf("consume: %+v, %v", first, err)
		}
		again, err := d.ann.Consume(d.t.Context(), p)
		if err != nil || !again.Repeated || again.HoldID != a.HoldID {
			d.t.Fatalf("consume again: %+v, %v, want repeated", again, err)
		}
		other := p
		other.Token = counterfoil.Token{8}
		_, err = d.ann.Consume(d.t.Context(), other)
		d.wantError("consume with another token", err, permit.ErrReplayed)
		_, err = d.ann.Check(d.t.Context(), counterfoil.CheckParams{Permit: a.Permit, Expected: call("order-1")})
		d.wantError("check of a used permit", err, permit.ErrReplayed)
		d.refused("begin with a used permit", permitted("order-1", a), permit.ErrReplayed)
		d.Clock.Advance(time.Hour)
		got, err := d.Budgets.Capture(d.t.Context(), budget.CaptureParams{
			Scope: scope, Owner: "bob", HoldID: a.HoldID, Token: p.Token, Capture: &[]budget.Entry{{Budget: "acme/search", Amount: 3}},
		})
		if err != nil {
			d.t.Fatalf("capture with the token: %+v, %v", got, err)
		}
		d.wantUsed("after the capture", "acme", 3, 0)
	})
}

func TestAHoldThatABareConsumeLeftIsChargedInFull(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme", 20))
		if _, err := d.ann.Consume(d.t.Context(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("order-1")}); err != nil {
			d.t.Fatal(err)
		}
		d.Clock.Advance(day - time.Second)
		for _, want := range []used{{0, 20}, {20, 0}} {
			if _, err := d.Sweep(d.t.Context()); err != nil {
				d.t.Fatal(err)
			}
			d.wantUsed("after the sweep", "acme", want.spent, want.held)
			d.Clock.Advance(time.Second)
		}
	})
}

func TestAFencedHoldOfAnOperationIsNeverChargedByTheSweeper(t *testing.T) {
	each(t, func(d *desk) {
		d.mustExecute(permitted("order-1", d.authorize("order-1", entries("acme", 20))))
		d.Clock.Advance(30 * day)
		if _, err := d.Sweep(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
		d.wantUsed("after the sweep", "acme", 0, 20)
	})
}

func TestOfManyConsumersExactlyOneWins(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme", 20))
		var mu sync.Mutex
		won := 0
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				_, err := d.ann.Consume(context.Background(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("order-1")})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if !errors.Is(err, permit.ErrReplayed) {
					d.t.Errorf("consume: %v", err)
				}
			})
		}
		if wg.Wait(); won != 1 {
			d.t.Fatalf("%d consumers won", won)
		}
	})
}

func TestThePermitOfAVoidedHoldIsRefused(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme", 20))
		if _, err := d.ann.Void(d.t.Context(), counterfoil.VoidParams{ID: a.HoldID}); err != nil {
			d.t.Fatal(err)
		}
		_, err := d.ann.Check(d.t.Context(), counterfoil.CheckParams{Permit: a.Permit, Expected: call("order-1")})
		d.wantError("check", err, permit.ErrHoldSettled)
		_, err = d.ann.Consume(d.t.Context(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("order-1")})
		d.wantError("consume", err, permit.ErrHoldSettled)
		d.refused("begin", permitted("order-1", a), permit.ErrHoldSettled)
	})
}

func TestAConsumeAtTheCapIsRefusedAndKeepsThePermit(t *testing.T) {
	each(t, func(d *desk) {
		a, b := d.authorize("order-1", nil), d.authorize("order-2", nil)
		d.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 1, 1 })
		consume := func(a counterfoil.Authorization, request string) error {
			_, err := d.ann.Consume(d.t.Context(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call(request)})
			return err
		}
		d.wantError("the first", consume(a, "order-1"), nil)
		d.wantError("the second", consume(b, "order-2"), state.ErrFull)
		d.wantError("the first again", consume(a, "order-1"), permit.ErrReplayed)
		d.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 2, 2 })
		d.wantError("the second with room", consume(b, "order-2"), nil)
	})
}

func TestATokenThatUsedThePermitForAnOperationConsumesItForNothingElse(t *testing.T) {
	each(t, func(d *desk) {
		a := d.authorize("order-1", entries("acme", 20))
		begin := permitted("order-1", a)
		begin.Token = counterfoil.Token{9}
		d.mustExecute(begin)
		consume := counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("order-1"), Token: begin.Token}
		for n := range 2 {
			got, err := d.ann.Consume(d.t.Context(), consume)
			if !errors.Is(err, permit.ErrReplayed) || got != (counterfoil.Consumed{}) {
				d.t.Fatalf("consume %d with the token of the begin: %+v, %v, want replayed", n+1, got, err)
			}
		}
		bare := d.authorize("order-2", nil)
		consume = counterfoil.ConsumeParams{Permit: bare.Permit, Expected: call("order-2"), Token: begin.Token}
		if _, err := d.ann.Consume(d.t.Context(), consume); err != nil {
			d.t.Fatalf("consume: %v", err)
		}
		again := permitted("order-2", bare)
		again.Token = begin.Token
		d.refused("begin with the token of the consume", again, permit.ErrReplayed)
	})
}
