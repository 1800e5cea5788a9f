package permit

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/internal/pubkey"
)

// Skew is how far an issuer's clock may be ahead of the verifier's.
const Skew = 5 * time.Second

// MaxKeys is how many public keys may be accepted at once: a permit does not say who signed it, so that a forged one
// costs a verification with each.
const MaxKeys = 32

// PublicKey is an issuer's Ed25519 public key.
type PublicKey [ed25519.PublicKeySize]byte

// String returns the key as 64 lower-case hex digits.
func (k PublicKey) String() string { return hex.EncodeToString(k[:]) }

// ParsePublicKey reads 64 lower-case hex digits and vets the key.
func ParsePublicKey(text string) (PublicKey, error) {
	if !lowerHex(text, 2*ed25519.PublicKeySize) {
		return PublicKey{}, fmt.Errorf("%w: a public key is 64 lower-case hex digits", ErrInvalid)
	}
	var k PublicKey
	if _, err := hex.Decode(k[:], []byte(text)); err != nil {
		return PublicKey{}, fmt.Errorf("%w: a public key is 64 lower-case hex digits", ErrInvalid)
	}
	return k, VetPublicKey(k[:])
}

// VetPublicKey refuses with [ErrInvalid] a key under which a signature proves nothing: one that is no point of the
// curve, one with a second encoding (RFC 8032 5.1.3 lets decoders differ), and one of small order, under which
// signatures can be made without a private key.
func VetPublicKey(pub ed25519.PublicKey) error {
	if err := pubkey.Vet(pub); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// Keys is a set of accepted public keys. The zero value accepts none.
type Keys struct{ vetted []PublicKey }

// NewKeys vets the keys and returns their set. The first is tried first: it should be the one that signs now. It fails
// with [ErrInvalid] if a key is unfit, if one is named twice, or if there are more than [MaxKeys].
func NewKeys(keys ...PublicKey) (Keys, error) {
	if len(keys) > MaxKeys {
		return Keys{}, fmt.Errorf("%w: %d public keys, more than %d; retire some", ErrInvalid, len(keys), MaxKeys)
	}
	vetted := make([]PublicKey, 0, len(keys))
	for _, k := range keys {
		if err := VetPublicKey(k[:]); err != nil {
			return Keys{}, err
		}
		for _, other := range vetted {
			if other == k {
				return Keys{}, fmt.Errorf("%w: a public key is named twice", ErrInvalid)
			}
		}
		vetted = append(vetted, k)
	}
	return Keys{vetted: vetted}, nil
}

// Expected is the call that is about to happen. Every field must be given: an empty one matches no permit.
type Expected struct {
	Subject       string
	Capability    string
	Server        string
	Tool          string
	RequestID     string
	ParameterHash string // see ParameterHash
}

// Verified is a permit whose form, time, binding and signature are right. It has not been used: whether it was used
// before, or revoked, only the store knows.
type Verified struct {
	Permit Permit
	Issuer PublicKey // the accepted key that signed it
}

// Verify reports whether p allows the expected call at now, signed by one of keys. It looks, in this order, at the form,
// the time window, each field of the binding by name, and the signature, and returns the first fault. It needs no store
// and uses nothing up.
func Verify(p Permit, expected Expected, keys Keys, now time.Time) (Verified, error) {
	if fault := p.Nonce.fault(); fault != "" {
		return Verified{}, malformed(fault, nil)
	}
	if err := p.Nonce.inWindow(now); err != nil {
		return Verified{}, err
	}
	if err := p.Nonce.BoundTo.matches(expected); err != nil {
		return Verified{}, err
	}
	issuer, ok := keys.issuer(&p)
	if !ok {
		return Verified{}, &Error{Reason: ReasonInvalidSignature}
	}
	return Verified{Permit: p, Issuer: issuer}, nil
}

// inWindow compares in milliseconds, the unit of the store's clock. Both products fit: times are below 2^53 s.
func (n *Nonce) inWindow(now time.Time) error {
	ms := now.UnixMilli()
	if ms >= n.ExpiresAt*1000 {
		return &Error{Reason: ReasonExpired}
	}
	if n.IssuedAt*1000 > ms+Skew.Milliseconds() {
		return &Error{Reason: ReasonNotYetValid}
	}
	return nil
}

func (b *Binding) matches(e Expected) error {
	for _, f := range [...]struct {
		name        Field
		bound, asks string
	}{
		{FieldSubject, b.SubjectID, e.Subject},
		{FieldCapability, b.CapabilityID, e.Capability},
		{FieldServer, b.ToolServer, e.Server},
		{FieldTool, b.ToolName, e.Tool},
		{FieldRequestID, b.RequestID, e.RequestID},
		{FieldParameterHash, b.ParameterHash, e.ParameterHash},
	} {
		if f.asks == "" || f.bound != f.asks {
			return &BindingMismatchError{Field: f.name}
		}
	}
	return nil
}

// issuer returns the key that signed p.
func (k Keys) issuer(p *Permit) (PublicKey, bool) {
	var room [1024]byte
	signed := p.Nonce.appendCanonical(room[:0])
	for i := range k.vetted {
		if key := &k.vetted[i]; signedBy(key, signed, p.Signature[:]) {
			return *key, true
		}
	}
	return PublicKey{}, false
}

// MarkerID returns the id under which the use of the permit is remembered.
func (v *Verified) MarkerID() [32]byte { return MarkerID(v.Issuer, v.Permit.Nonce.ID) }

// HoldToken returns the token of the hold that the permit carries.
func (v *Verified) HoldToken() [16]byte { return HoldToken(v.Issuer, v.Permit.Nonce.ID) }

// MarkerID returns the id under which the use of a nonce is remembered: the length-prefixed SHA-256 of the issuer's
// public key and the nonce id, so that two issuers never collide.
func MarkerID(issuer PublicKey, nonceID string) [32]byte { return ids.PermitMarker(issuer, nonceID) }

// HoldToken returns the token of the hold that is minted together with a nonce, so that only that permit can use it.
func HoldToken(issuer PublicKey, nonceID string) [16]byte { return ids.PermitHold(issuer, nonceID) }

// ParameterHash returns the lower-case hex SHA-256 of the canonical JSON of a call's arguments. It refuses arguments
// whose canonical form is not certain: see package canonical. Its time and memory grow with arguments, whose size is the
// caller's to bound.
func ParameterHash(arguments []byte) (string, error) {
	sum, err := canonical.Hash(arguments)
	if err != nil {
		return "", fmt.Errorf("permit: arguments: %w", err)
	}
	return hex.EncodeToString(sum[:]), nil
}
