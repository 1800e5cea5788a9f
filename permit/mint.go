package permit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

// MintParams asks for a permit.
type MintParams struct {
	Scope string
	Call  Expected      // the exact call; every field must be given
	TTL   time.Duration // whole seconds, 1 s to 1 h; 0 means [DefaultTTL]
	// HoldID names a hold that is claimed in the same batch and comes with the permit; "" for none. See [MintPart].
	HoldID string
}

// Digest tells one request from another, the hold left out: a TTL of 0 is the same as the default.
func (m MintParams) Digest() state.Digest {
	var ttl [8]byte
	binary.BigEndian.PutUint64(ttl[:], uint64(m.ttl().Milliseconds())) //nolint:gosec // only compared.
	c := &m.Call
	return ids.Hash("counterfoil.permit-mint.v1", c.Subject, c.Capability, c.Server, c.Tool, c.RequestID, c.ParameterHash, string(ttl[:]))
}

func (m MintParams) ttl() time.Duration {
	if m.TTL == 0 {
		return DefaultTTL
	}
	return m.TTL
}

// Minted is a permit to hand to whoever is to make the call.
type Minted struct {
	Permit    []byte // the wire form, to be handed on as it is
	NonceID   string
	ExpiresAt time.Time
	HoldID    string // "" without a hold
}

// Mint signs a permit for the call, with the key that signs for the scope now. Nothing is stored: two mints are two
// permits. While a revocation that would cover it lies ahead the error is [ErrRevoked], with a RetryAfter.
func (p *Permits) Mint(ctx context.Context, m MintParams) (Minted, error) {
	if m.HoldID != "" {
		return Minted{}, fmt.Errorf("%w: a permit that carries a hold is minted together with it", ErrInvalid)
	}
	part, err := p.MintPart(ctx, m)
	if err != nil {
		return Minted{}, err
	}
	out, err := p.store.Do(ctx, &state.Batch{Scope: m.Scope, Ops: part.Ops})
	if err != nil {
		return Minted{}, failed(err)
	}
	return part.Read(&out, 0)
}

// MintPart is a signed permit, and the ops which find out whether it may be given away. Whoever mints it with a hold puts
// the ops into the batch that claims the hold, with HoldToken as its token, the permit's expiry as its own and the permit
// in its body.
type MintPart struct {
	Ops       []state.Op
	Permit    []byte // the wire form, for the hold's body; not to be given away before Read has
	ExpiresAt time.Time
	HoldToken state.Token // with which only this permit can use the hold; zero without one

	nonce Nonce
}

// MintPart signs a permit, with m.HoldID as the hold that it carries if given.
func (p *Permits) MintPart(ctx context.Context, m MintParams) (*MintPart, error) {
	if err := checkScope(m.Scope); err != nil {
		return nil, err
	}
	now, err := p.store.Now(ctx)
	if err != nil {
		return nil, failed(err)
	}
	key, err := p.keyring.SigningKey(m.Scope)
	if err != nil {
		return nil, p.keyless(ctx, m.Scope, err)
	}
	c := &m.Call
	nonce, err := NewNonce(Binding{
		SubjectID: c.Subject, RequestID: c.RequestID, CapabilityID: c.Capability,
		ToolServer: c.Server, ToolName: c.Tool, ParameterHash: c.ParameterHash,
	}, at(now), m.ttl(), p.store)
	switch {
	case errors.Is(err, state.ErrUnavailable):
		return nil, failed(err)
	case err != nil:
		return nil, err
	}
	if m.HoldID != "" {
		nonce.ReservedHoldID, nonce.ReservingRequestID = m.HoldID, c.RequestID
	}
	signed, err := Sign(key, nonce)
	if err != nil {
		return nil, err
	}
	remember(key, nonce.appendCanonical(nil), signed.Signature[:])
	ops, err := floorChecks(nil, m.Scope, &nonce)
	if err != nil {
		return nil, err
	}
	part := &MintPart{Ops: ops, Permit: Encode(signed), ExpiresAt: at(nonce.ExpiresAt * 1000), nonce: nonce}
	if m.HoldID != "" {
		part.HoldToken = HoldToken(PublicKey(key[len(key)-len(PublicKey{}):]), nonce.ID)
	}
	return part, nil
}

// keyless says why nothing can be signed: for a scope that does not exist that is the reason, not the key that it lacks.
func (p *Permits) keyless(ctx context.Context, scope string, err error) error {
	if _, missing := p.store.Do(ctx, &state.Batch{Scope: scope, Read: []state.Key{state.ScopeKey(scope)}}); missing != nil {
		return failed(missing)
	}
	return fmt.Errorf("permit: %w", err)
}

// Refusal says what stands against the permit, nil if nothing does. The first op of the part is out's op number first.
func (m *MintPart) Refusal(out *state.Outcome, first int) error {
	var floor uint64
	for _, r := range out.Refusals {
		if r.Reason == state.CheckFailed && r.Op >= first && r.Op < first+len(m.Ops) {
			floor = max(floor, r.Value)
		}
	}
	if floor == 0 {
		return nil
	}
	// A permit is issued at a full second, which must lie after the floor.
	wait := int64(floor/1000+1)*1000 - out.Now
	return &Error{Reason: ReasonRevoked, Detail: "a revocation lies ahead", RetryAfter: time.Duration(max(wait, 1)) * time.Millisecond}
}

// Read gives the permit if the batch took effect. The first op of the part is out's op number first.
func (m *MintPart) Read(out *state.Outcome, first int) (Minted, error) {
	if err := m.Refusal(out, first); err != nil {
		return Minted{}, err
	}
	if !out.Applied {
		return Minted{}, refused(out)
	}
	return minted(m.Permit, &m.nonce), nil
}

// Remint gives a permit that was kept with its hold. What cannot be read is [state.ErrCorrupt].
func Remint(wire []byte) (Minted, error) {
	p, err := Decode(wire)
	if err != nil {
		return Minted{}, fmt.Errorf("%w: a kept permit: %w", state.ErrCorrupt, err)
	}
	return minted(wire, &p.Nonce), nil
}

func minted(wire []byte, n *Nonce) Minted {
	return Minted{Permit: wire, NonceID: n.ID, ExpiresAt: at(n.ExpiresAt * 1000), HoldID: n.ReservedHoldID}
}
