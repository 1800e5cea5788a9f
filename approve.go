package counterfoil

import (
	"context"
	"time"

	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/permit"
)

// RequestApproval asks that an operator approves one exact call.
func (a *actor) RequestApproval(ctx context.Context, p ApprovalParams) (Approval, error) {
	asked, err := a.Approvals.Ask(ctx, approval.AskParams{
		Scope: a.id.Scope, Owner: a.id.Owner, Call: approval.Call(p.Call), Arguments: p.Arguments, TTL: p.TTL,
	})
	if err != nil {
		return Approval{}, err
	}
	return Approval{
		ID: asked.ID, State: asked.State, Permit: asked.Permit, ExpiresAt: asked.ExpiresAt, Note: asked.Note, Fresh: asked.Fresh,
	}, nil
}

// DefaultGrantTTL is how long the permit of a granted call can be used if nothing else is said: time enough for its caller
// to send it again.
const DefaultGrantTTL = 5 * time.Minute

// GrantParams grants a request for an approval.
type GrantParams struct {
	approval.DecideParams
	TTL time.Duration // of the permit: whole seconds, 1 s to 1 h; 0: [DefaultGrantTTL]
}

// Grant decides for a request for an approval, and mints the permit of its call in the same step; see
// [approval.Approvals.Grant]. Besides, a call that is revoked is [permit.ErrRevoked], and is not granted.
func (c *Counterfoil) Grant(ctx context.Context, p GrantParams) (approval.Decided, error) {
	if p.TTL == 0 {
		p.TTL = DefaultGrantTTL
	}
	return c.Approvals.Grant(ctx, p.DecideParams, func(call approval.Call) (*approval.Permit, error) {
		minted, err := c.Permits.MintPart(ctx, permit.MintParams{Scope: p.Scope, Call: permit.Expected(call), TTL: p.TTL})
		if err != nil {
			return nil, err
		}
		return &approval.Permit{Wire: minted.Permit, Expires: minted.ExpiresAt, Checks: minted.Ops, Refusal: minted.Refusal}, nil
	})
}
