package counterfoil

import (
	"context"
	"errors"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// Authorize mints a permit and, in the same step, the hold that it carries.
func (a *actor) Authorize(ctx context.Context, p AuthorizeParams) (Authorization, error) {
	mint := permit.MintParams{Scope: a.id.Scope, Call: p.Call, TTL: p.TTL}
	if len(p.Hold) == 0 {
		minted, err := a.Permits.Mint(ctx, mint)
		if err != nil {
			return Authorization{}, err
		}
		return Authorization{Permit: minted.Permit, ExpiresAt: minted.ExpiresAt}, nil
	}
	mint.HoldID = ids.Hold(a.id.Owner, p.Call.RequestID)
	part, err := a.Permits.MintPart(ctx, mint)
	if err != nil {
		return Authorization{}, err
	}
	held, err := a.Budgets.Hold(ctx, budget.HoldParams{
		Scope: a.id.Scope, Owner: a.id.Owner, RequestID: p.Call.RequestID, Entries: p.Hold,
		Permit: &budget.HoldPermit{
			Wire: part.Permit, Expires: part.ExpiresAt, Token: part.HoldToken, Request: mint.Digest(),
			Checks: part.Ops, Refusal: part.Refusal,
		},
	})
	if err != nil {
		return Authorization{}, err
	}
	return authorization(held, part)
}

// authorization gives the permit that the hold was made for: that of an earlier mint, if there was one.
func authorization(held budget.Held, part *permit.MintPart) (Authorization, error) {
	a := Authorization{Permit: part.Permit, ExpiresAt: part.ExpiresAt, HoldID: held.ID, Budgets: held.Budgets, Repeated: held.Repeated}
	if held.Repeated {
		minted, err := permit.Remint(held.Permit)
		if err != nil {
			return Authorization{}, err
		}
		a.Permit, a.ExpiresAt = minted.Permit, minted.ExpiresAt
	}
	return a, nil
}

// Check verifies a permit, and that the hold that it carries is open, and uses nothing up.
func (a *actor) Check(ctx context.Context, p CheckParams) (Checked, error) {
	found, err := a.Permits.Check(ctx, permit.CheckParams{Scope: a.id.Scope, Permit: p.Permit, Expected: p.Expected})
	if err != nil {
		return Checked{}, err
	}
	checked := Checked{NonceID: found.NonceID, ExpiresAt: found.ExpiresAt}
	if found.Hold == nil {
		return checked, nil
	}
	checked.HoldID = found.Hold.ID
	hold, err := a.Budgets.GetHold(ctx, budget.GetHoldParams{Scope: a.id.Scope, AnyOwner: true, HoldID: checked.HoldID})
	switch {
	case err != nil:
		return Checked{}, permitHold(err)
	case hold.State == budget.HoldExpired:
		return Checked{}, permitHold(budget.ErrHoldExpired)
	case hold.State == budget.HoldFenced:
		return Checked{}, budget.ErrHoldFenced
	case hold.State != budget.HoldOpen:
		return Checked{}, permitHold(budget.ErrHoldSettled)
	}
	return checked, nil
}

// permitHold gives what stands against the hold of a permit its reason among those of permits.
func permitHold(err error) error {
	switch {
	case errors.Is(err, budget.ErrHoldSettled):
		return &permit.Error{Reason: permit.ReasonHoldSettled, Err: err}
	case errors.Is(err, budget.ErrHoldExpired):
		return &permit.Error{Reason: permit.ReasonHoldExpired, Err: err}
	}
	return err
}

// Consume uses a permit up and fences the hold that it carries, for 24 h, in the same step.
func (a *actor) Consume(ctx context.Context, p ConsumeParams) (Consumed, error) {
	token, err := a.token(p.Token)
	if err != nil {
		return Consumed{}, err
	}
	return again(func() (Consumed, error) { return a.consume(ctx, p, token) })
}

func (a *actor) consume(ctx context.Context, p ConsumeParams, token Token) (Consumed, error) {
	use, err := a.Permits.Use(ctx, permit.UseParams{
		Scope: a.id.Scope, Owner: a.id.Owner, Permit: p.Permit, Expected: p.Expected, Token: token,
	})
	if err != nil {
		return Consumed{}, err
	}
	ops := use.Ops
	var hold *budget.Part
	consumed := Consumed{NonceID: use.NonceID, Token: token}
	if use.Hold != nil {
		hold, err = a.Budgets.Fence(ctx, a.id.Scope, budget.FenceParams{
			HoldID: use.Hold.ID, Token: use.Hold.Token, NewToken: token, Bare: true,
		})
		if err != nil {
			return Consumed{}, err
		}
		ops = append(ops, hold.Ops...)
		consumed.HoldID = use.Hold.ID
	}
	out, err := a.store.Do(ctx, &state.Batch{Scope: a.id.Scope, Ops: ops})
	switch {
	case err != nil:
		return Consumed{}, err
	case out.Applied || out.Repeated:
		consumed.Repeated = out.Repeated
		return consumed, nil
	}
	r := refusals{out: &out, permit: use, hold: hold, holdAt: len(use.Ops), ofPermit: true}
	return Consumed{}, r.first()
}

// token is the caller's, or a fresh one.
func (a *actor) token(given Token) (Token, error) {
	if !given.IsZero() {
		return given, nil
	}
	return a.store.Token()
}

// Hold reserves amounts in budgets.
func (a *actor) Hold(ctx context.Context, p HoldParams) (Held, error) {
	held, err := a.Budgets.Hold(ctx, budget.HoldParams{
		Scope: a.id.Scope, Owner: a.id.Owner, RequestID: p.RequestID, Entries: p.Entries, TTL: p.TTL,
	})
	if err != nil {
		return Held{}, err
	}
	return Held{ID: held.ID, ExpiresAt: held.ExpiresAt, Budgets: held.Budgets, Repeated: held.Repeated}, nil
}

// Void gives back what an open hold reserves.
func (a *actor) Void(ctx context.Context, p VoidParams) (Voided, error) {
	voided, err := a.Budgets.Void(ctx, budget.VoidParams{Scope: a.id.Scope, Owner: a.id.Owner, HoldID: p.ID})
	if err != nil {
		return Voided{}, err
	}
	return Voided{Budgets: voided.Budgets, Repeated: voided.Repeated}, nil
}
