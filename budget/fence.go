package budget

import (
	"context"
	"errors"

	"github.com/counterfoil/counterfoil/state"
)

// FenceParams binds an open hold to the outcome of what uses it.
type FenceParams struct {
	HoldID string
	// Token is what a permit names its hold by. Zero: Owner uses a hold that no permit was made for.
	Token state.Token
	Owner string
	// NewToken settles the hold from then on; zero: the token stays as it is.
	NewToken state.Token
	// Bare: a permit is used without an operation. The hold waits 24 h to be captured with NewToken; then it is charged
	// in full.
	Bare bool
}

// Fence is the part of a batch that binds an open hold to what uses it: it no longer ends by itself. Its refusals are
// [ErrHoldUnknown], [ErrHoldExpired], [ErrHoldFenced], [ErrHoldSettled] and [ErrNotHolder].
func (b *Budgets) Fence(ctx context.Context, scope string, p FenceParams) (*Part, error) {
	if p.Token.IsZero() {
		if err := checkName("owner", p.Owner); err != nil {
			return nil, err
		}
	}
	if p.Bare && p.NewToken.IsZero() {
		return nil, invalidf("a hold that is fenced without an operation needs a token to be settled by")
	}
	h, err := b.read(ctx, holdKey(scope, p.HoldID))
	if err != nil {
		return found(err)
	}
	token := p.Token
	if token.IsZero() {
		if h.rec.Owner != p.Owner {
			return refuse(state.Absent, ErrHoldUnknown), nil
		}
		if h.minted {
			return refuse(state.NotHolder, invalidf("the hold was made for a permit; use it with that permit")), nil
		}
		token = h.rec.Token
	}
	if h.stage != stageOpen {
		return refuse(state.NotPending, h.notOpen()), nil
	}
	return b.fencing(ctx, &h, token, p)
}

func (h *held) notOpen() error {
	if h.stage == stageFenced || h.stage == stageBare {
		return ErrHoldFenced
	}
	return ErrHoldSettled
}

func (b *Budgets) fencing(ctx context.Context, h *held, token state.Token, p FenceParams) (*Part, error) {
	update := state.Update{Key: h.key, Token: token, NewToken: p.NewToken, IfVersion: h.rec.Version, Body: h.at(stageFenced)}
	if p.Bare {
		now, err := b.store.Now(ctx)
		if err != nil {
			return nil, err
		}
		update.Lease, update.Body = now+bareLease.Milliseconds(), h.at(stageBare)
	}
	part := &Part{HoldID: h.key.ID, Token: token}
	if !p.NewToken.IsZero() {
		part.Token = p.NewToken
	}
	part.Ops = append([]state.Op{update}, h.moves(func(_ int, m *state.Move) {
		m.Give, m.GiveAmount = state.Bucket{Kind: state.BucketFenced}, m.TakeAmount
	})...)
	part.read = func(out *state.Outcome, at int) (Result, error) {
		if err := h.refused(out, at, len(part.Ops), token); err != nil {
			return Result{}, err
		}
		return Result{Budgets: moved(out, at+1, len(part.Ops)-1)}, nil
	}
	return part, nil
}

// SettleParams names a hold that an operation has fenced.
type SettleParams struct {
	HoldID string
	Token  state.Token // of the hold since it was fenced
	// Capture is what to charge; nil charges the hold in full, an empty list nothing.
	Capture *[]Entry
}

// SettleHold is the part of a batch that charges a fenced hold, as [Budgets.Capture] does an open one. Its refusals are
// [ErrHoldUnknown], [ErrHoldSettled] and [ErrNotHolder].
func (b *Budgets) SettleHold(ctx context.Context, scope string, p SettleParams) (*Part, error) {
	return b.settlePart(ctx, scope, p, false)
}

// VoidHold is the part of a batch that gives back all that a fenced hold holds. Its refusals are those of
// [Budgets.SettleHold].
func (b *Budgets) VoidHold(ctx context.Context, scope string, p SettleParams) (*Part, error) {
	p.Capture = nil
	return b.settlePart(ctx, scope, p, true)
}

func (b *Budgets) settlePart(ctx context.Context, scope string, p SettleParams, void bool) (*Part, error) {
	if p.Token.IsZero() {
		return nil, invalidf("the token of the hold is missing")
	}
	h, err := b.read(ctx, holdKey(scope, p.HoldID))
	if err != nil {
		return found(err)
	}
	if h.rec.State != state.Pending {
		return refuse(state.NotPending, ErrHoldSettled), nil
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	return h.settling(p.Token, p.Capture, void, now)
}

// found turns a hold that is not there into a part that refuses, so that an operation that exists can answer first.
func found(err error) (*Part, error) {
	if errors.Is(err, ErrHoldUnknown) {
		return refuse(state.Absent, err), nil
	}
	return nil, err
}

// chargeAbandoned is what the sweeper does with a hold that was fenced by a bare use and that nobody settled in time: it
// was used, so that it is charged in full.
func (b *Budgets) chargeAbandoned(ctx context.Context, key state.Key, rec *state.Record) error {
	h, err := holdOf(key, rec)
	if err != nil {
		return err
	}
	if h.stage != stageBare {
		return nil
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return err
	}
	part, err := h.settling(rec.Token, nil, false, now)
	if err != nil {
		return err
	}
	settle := part.Ops[0].(state.Settle) //nolint:forcetypeassert // settling begins with it.
	settle.IfLeaseOver = true
	part.Ops[0] = settle
	out, err := b.store.Do(ctx, &state.Batch{Scope: key.Scope, Ops: part.Ops, Keep: true})
	if err != nil || out.Applied || out.Repeated {
		return err
	}
	// Somebody settled it meanwhile; a scope in quarantine settles as well.
	return refusedWhole(&out, state.Recovering, state.Stale)
}
