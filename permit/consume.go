package permit

import (
	"context"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// Consumed is the grant of a permit.
type Consumed struct {
	Used
	Token state.Token // the given one, or the one that was drawn
}

// Consume uses a permit up if and only if it verifies for the expected call, has not been used, revoked or expired. Of
// any number of concurrent callers, in any number of processes, exactly one gets the result; with its token, and while the
// permit has not expired, it gets it again. A zero token is drawn here. A permit that carries a hold is consumed together
// with it, by what knows both: here it is [ErrInvalid].
//
// Every refusal is an [*Error] or a [*BindingMismatchError]; the permit is as it was. After [ErrUnknown] it must be taken
// to be used: only the same token can tell.
func (p *Permits) Consume(ctx context.Context, u UseParams) (Consumed, error) {
	if u.Token.IsZero() {
		token, err := p.store.Token()
		if err != nil {
			return Consumed{}, failed(err)
		}
		u.Token = token
	}
	part, err := p.Use(ctx, u)
	if err != nil {
		return Consumed{}, err
	}
	if part.Hold != nil {
		return Consumed{}, fmt.Errorf("%w: the permit carries a hold, which must be fenced in the same step", ErrInvalid)
	}
	out, err := p.store.Do(ctx, &state.Batch{Scope: u.Scope, Ops: part.Ops})
	if err != nil {
		return Consumed{}, failed(err)
	}
	used, err := part.Read(&out, 0)
	if err != nil {
		return Consumed{}, err
	}
	return Consumed{Used: used, Token: u.Token}, nil
}

// CheckParams shows a permit that is not to be used up.
type CheckParams struct {
	Scope    string
	Permit   []byte // the wire form, as received
	Expected Expected
}

// Checked is a permit that could be used now, so far as the permit and the store's floors and markers say.
type Checked struct {
	NonceID   string
	ExpiresAt time.Time
	Hold      *Hold // nil if the permit carries none; whether it is open is not looked at
}

// Check reports whether a permit could be used now, and uses nothing up. The errors are those of [Permits.Consume].
func (p *Permits) Check(ctx context.Context, c CheckParams) (Checked, error) {
	if err := checkScope(c.Scope); err != nil {
		return Checked{}, err
	}
	now, err := p.store.Now(ctx)
	if err != nil {
		return Checked{}, failed(err)
	}
	v, err := p.verify(c.Scope, c.Permit, c.Expected, now)
	if err != nil {
		return Checked{}, err
	}
	expires, err := v.end()
	if err != nil {
		return Checked{}, err
	}
	ops, err := floorChecks(nil, c.Scope, &v.Permit.Nonce)
	if err != nil {
		return Checked{}, err
	}
	out, err := p.store.Do(ctx, &state.Batch{Scope: c.Scope, Ops: ops, Read: []state.Key{v.markerKey(c.Scope)}})
	if err != nil {
		return Checked{}, failed(err)
	}
	part := Part{Ops: ops}
	switch err := part.Refusal(&out, 0); {
	case len(out.Records) == 1 && out.Records[0] != nil:
		return Checked{}, &Error{Reason: ReasonReplayed}
	case out.Now >= expires:
		return Checked{}, &Error{Reason: ReasonExpired}
	case err != nil:
		return Checked{}, err
	case !out.Applied:
		return Checked{}, refused(&out)
	}
	return Checked{NonceID: v.Permit.Nonce.ID, ExpiresAt: at(expires), Hold: v.hold()}, nil
}
