package permit

import (
	"context"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

// UseParams shows a permit for a call that is about to happen.
type UseParams struct {
	Scope    string
	Owner    string   // who uses it; its share of the scope counts the use
	Permit   []byte   // the wire form, as received
	Expected Expected // the call as its maker knows it, not as the permit says
	// Token, drawn at random before the first send, makes the use recognisable.
	Token state.Token
	// For names what is granted by the use, "" if it is the permit alone. A use for something else is none again, whatever
	// its token: what was granted then was not this.
	For string
}

// Hold is the hold that a permit carries.
type Hold struct {
	ID    string
	Token state.Token // that it was claimed with, if it was minted together with the permit
}

// Part is the use of one permit, to be put into a batch. It uses the permit if and only if the batch takes effect: then
// it had not been used, no floor stood against it and it had not expired in that step.
type Part struct {
	Ops       []state.Op
	NonceID   string
	ExpiresAt time.Time
	Hold      *Hold // to be fenced in the same batch; nil if the permit carries none
}

// Used is the one use of a permit.
type Used struct {
	NonceID   string
	ExpiresAt time.Time
	Hold      *Hold // nil if the permit carries none
	Repeated  bool  // this same token had used it before
}

// Use verifies a permit offline and returns the part that uses it up. The errors are the reasons that a permit alone
// gives, [ErrUnavailable], and the store's.
func (p *Permits) Use(ctx context.Context, u UseParams) (*Part, error) {
	if err := checkScope(u.Scope); err != nil {
		return nil, err
	}
	if err := state.CheckName(u.Owner); err != nil {
		return nil, fmt.Errorf("%w: owner: %w", ErrInvalid, err)
	}
	if u.Token.IsZero() {
		return nil, fmt.Errorf("%w: a use needs a token", ErrInvalid)
	}
	now, err := p.store.Now(ctx)
	if err != nil {
		return nil, failed(err)
	}
	v, err := p.verify(u.Scope, u.Permit, u.Expected, now)
	if err != nil {
		return nil, err
	}
	expires, err := v.end()
	if err != nil {
		return nil, err
	}
	claim := state.Claim{
		Key: v.markerKey(u.Scope), Owner: u.Owner, Token: u.Token, Digest: v.useDigest(u.Owner, u.For), State: state.Settled,
		Expires: expires, // remembered for as long as it could be used; the claim is refused from then on
	}
	ops, err := floorChecks(append(make([]state.Op, 0, 5), claim), u.Scope, &v.Permit.Nonce)
	if err != nil {
		return nil, err
	}
	return &Part{Ops: ops, NonceID: v.Permit.Nonce.ID, ExpiresAt: at(expires), Hold: v.hold()}, nil
}

func (v *Verified) markerKey(scope string) state.Key {
	id := v.MarkerID()
	return state.Key{Scope: scope, Kind: state.KindMarker, ID: string(id[:])}
}

// end is when the permit expires, in ms. A use that cannot be remembered until then is none.
func (v *Verified) end() (int64, error) {
	if v.Permit.Nonce.ExpiresAt > state.MaxAmount/1000 {
		return 0, malformed("expires_at is too far ahead to be remembered", nil)
	}
	return v.Permit.Nonce.ExpiresAt * 1000, nil
}

// useDigest tells what a token was used for: this signed permit, by this owner, for this.
func (v *Verified) useDigest(owner, purpose string) state.Digest {
	return ids.Hash("counterfoil.permit-use.v1", owner, string(v.Permit.Signature[:]), purpose)
}

func (v *Verified) hold() *Hold {
	n := &v.Permit.Nonce
	if n.ReservedHoldID == "" {
		return nil
	}
	return &Hold{ID: n.ReservedHoldID, Token: v.HoldToken()}
}

// Refusal says what stands against the permit, nil if nothing does. The first op of the part is out's op number first.
// Want of room comes last, so that it hides no other reason.
func (p *Part) Refusal(out *state.Outcome, first int) error {
	var full error
	for _, r := range out.Refusals {
		if r.Op < first || r.Op >= first+len(p.Ops) {
			continue
		}
		switch r.Reason {
		case state.Exists:
			return &Error{Reason: ReasonReplayed}
		case state.Expired:
			return &Error{Reason: ReasonExpired}
		case state.CheckFailed:
			return &Error{Reason: ReasonRevoked}
		case state.Full:
			full = &Error{Reason: ReasonFull, Err: state.ErrFull}
		case state.OwnerFull:
			full = &Error{Reason: ReasonOwnerFull, Err: state.ErrOwnerFull}
		default:
			return refused(out)
		}
	}
	return full
}

// Read gives the use if the batch took effect, or had before. The first op of the part is out's op number first.
func (p *Part) Read(out *state.Outcome, first int) (Used, error) {
	if out.Applied || out.Repeated {
		return Used{NonceID: p.NonceID, ExpiresAt: p.ExpiresAt, Hold: p.Hold, Repeated: out.Repeated}, nil
	}
	if err := p.Refusal(out, first); err != nil {
		return Used{}, err
	}
	return Used{}, refused(out)
}
