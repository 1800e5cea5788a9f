package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// Begin claims an operation that has neither permit nor money. See [ClaimPart.Read] for its refusals.
func (o *Operations) Begin(ctx context.Context, p ClaimParams) (Claimed, error) {
	p.Hold, p.Spends = Hold{}, false
	part, err := o.Claim(ctx, p)
	if err != nil {
		return Claimed{}, err
	}
	out, err := o.do(ctx, p.Scope, part.Ops)
	if err != nil {
		return Claimed{}, err
	}
	return part.Read(&out)
}

// RenewParams names a held operation.
type RenewParams struct {
	Scope string
	Owner string
	ID    string
	Token state.Token
	Lease time.Duration // 1 s to 1 h; 0: 30 s
}

// Renewed is a lease that goes on.
type Renewed struct {
	LeaseUntil time.Time
}

// Renew moves the end of the lease to now + Lease if and only if the lease is alive and the token is its holder's. It
// fails with [ErrOutcomeUnknown] if the lease is over, and else like [SettlePart.Read].
func (o *Operations) Renew(ctx context.Context, p RenewParams) (Renewed, error) {
	lease, err := leaseOf(p.Lease)
	if err != nil {
		return Renewed{}, err
	}
	i, err := o.Intent(ctx, p.Scope, p.Owner, p.ID)
	switch {
	case err != nil:
		return Renewed{}, err
	case i.finished():
		return Renewed{}, errTomb
	}
	now, err := o.store.Now(ctx)
	if err != nil {
		return Renewed{}, err
	}
	op := state.Update{Key: i.key, Token: p.Token, IfLeaseAlive: true, Lease: now + lease, Body: i.rec.Body}
	out, err := o.do(ctx, p.Scope, []state.Op{op})
	switch {
	case err != nil:
		return Renewed{}, err
	case out.Applied || out.Repeated:
		return Renewed{LeaseUntil: at(out.Anchor.Lease)}, nil
	}
	return Renewed{}, refusalError(out.Refusals[0], out.Now)
}

// CompleteParams is the result of a held operation.
type CompleteParams struct {
	Scope   string
	Owner   string
	ID      string
	Token   state.Token
	Receipt Receipt
}

// Complete records the receipt of an operation that has no hold. See [SettlePart.Read] for its refusals.
func (o *Operations) Complete(ctx context.Context, p CompleteParams) (Completed, error) {
	i, now, err := o.intentNow(ctx, p.Scope, p.Owner, p.ID)
	if err == nil {
		err = i.money(false)
	}
	if err != nil {
		return Completed{}, err
	}
	return o.settleAlone(ctx, i, p.Scope, SettleParams{Now: now, Token: p.Token, Receipt: p.Receipt})
}

func (o *Operations) settleAlone(ctx context.Context, i *Intent, scope string, p SettleParams) (Completed, error) {
	part, err := o.Settle(i, p)
	if err != nil {
		return Completed{}, err
	}
	out, err := o.do(ctx, scope, part.Ops)
	if err != nil {
		return Completed{}, err
	}
	done, _, err := part.Read(&out)
	return done, err
}

// AbortParams takes back a held operation.
type AbortParams struct {
	Scope  string
	Owner  string
	ID     string
	Token  state.Token
	Reason string // at most 1024 bytes
}

// Abort takes back a claim whose effect is proven not to have happened, of an operation that has no money: its key is
// free. A crash, a timeout or a panic is no proof. See [SettlePart.Read] for its refusals.
func (o *Operations) Abort(ctx context.Context, p AbortParams) (Dropped, error) {
	i, err := o.Intent(ctx, p.Scope, p.Owner, p.ID)
	if err == nil {
		err = i.money(true)
	}
	if err != nil {
		return Dropped{}, err
	}
	return o.dropAlone(ctx, i, p.Scope, DropParams{Token: p.Token, Reason: p.Reason})
}

func (o *Operations) dropAlone(ctx context.Context, i *Intent, scope string, p DropParams) (Dropped, error) {
	part, err := o.Drop(i, p)
	if err != nil {
		return Dropped{}, err
	}
	out, err := o.do(ctx, scope, part.Ops)
	if err != nil {
		return Dropped{}, err
	}
	done, _, err := part.Read(&out)
	return done, err
}

// ResolveParams is what an operator found out about an operation.
type ResolveParams = MendParams

// Resolve settles an operation whose outcome was unknown, or whose record is damaged, and that has no money. Make sure
// first that its holder is dead. It fails with [ErrInFlight] while the lease is alive, and with [ErrNotPending] if the
// operation is finished otherwise.
func (o *Operations) Resolve(ctx context.Context, p ResolveParams) (State, error) {
	if err := p.validate(); err != nil {
		return "", err
	}
	i, now, err := o.intentNow(ctx, p.Scope, p.Owner, p.ID)
	if errors.Is(err, state.ErrCorrupt) {
		return stateAfter(p.Resolution.Outcome), o.Mend(ctx, p)
	}
	if err == nil {
		err = i.money(p.Resolution.Outcome == DidNotHappen)
	}
	if err != nil {
		return "", err
	}
	if p.Resolution.Outcome == Happened {
		_, err = o.settleAlone(ctx, i, p.Scope, SettleParams{Now: now, Receipt: p.Receipt, Resolution: &p.Resolution})
	} else {
		_, err = o.dropAlone(ctx, i, p.Scope, DropParams{Resolution: &p.Resolution})
	}
	if err != nil {
		return "", err
	}
	return stateAfter(p.Resolution.Outcome), nil
}

func stateAfter(outcome Outcome) State {
	if outcome == Happened {
		return Settled
	}
	return Aborted
}

func (o *Operations) intentNow(ctx context.Context, scope, owner, id string) (*Intent, int64, error) {
	now, err := o.store.Now(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("operation: %w", err)
	}
	i, err := o.Intent(ctx, scope, owner, id)
	return i, now, err
}
