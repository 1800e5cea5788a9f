package permit

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// Keyring gives the keys of scopes. Its methods are called concurrently, and often.
type Keyring interface {
	// SigningKey returns the key that signs the scope's permits now.
	SigningKey(scope string) (ed25519.PrivateKey, error)
	// Accepted returns the public keys whose permits the scope accepts, the one that signs now first. As long as it
	// returns the very same slice, nothing has changed.
	Accepted(scope string) []ed25519.PublicKey
}

// Permits mints permits, and uses each up once, on a store. It is safe for concurrent use, in any number of processes.
type Permits struct {
	store   *store.Store
	keyring Keyring
	vetted  sync.Map // of scopes: *vetted
}

// Options configure [Permits]. There are none yet: a use is remembered until the permit expires, and some minutes on,
// whatever the TTLs that are given here.
type Options struct{}

// New returns the permits of a store, signed and accepted under the keys of a keyring.
func New(s *store.Store, k Keyring, _ Options) *Permits { return &Permits{store: s, keyring: k} }

// vetted is a set of keys and the slice that it was made from.
type vetted struct {
	from []ed25519.PublicKey
	keys Keys
}

// accepted returns the keys of a scope. They are vetted once, not for every permit.
func (p *Permits) accepted(scope string) (Keys, error) {
	from := p.keyring.Accepted(scope)
	if len(from) == 0 {
		return Keys{}, nil
	}
	if known, ok := p.vetted.Load(scope); ok {
		if v := known.(*vetted); len(v.from) == len(from) && &v.from[0] == &from[0] { //nolint:forcetypeassert // nothing else is stored.
			return v.keys, nil
		}
	}
	list := make([]PublicKey, len(from))
	for i, k := range from {
		if len(k) != ed25519.PublicKeySize {
			return Keys{}, fmt.Errorf("%w: an accepted key does not have %d bytes", ErrInvalid, ed25519.PublicKeySize)
		}
		list[i] = PublicKey(k)
	}
	keys, err := NewKeys(list...)
	if err != nil {
		return Keys{}, err
	}
	p.vetted.Store(scope, &vetted{from: from, keys: keys})
	return keys, nil
}

// verify judges a received permit as [Decode] and [Verify] do.
func (p *Permits) verify(scope string, wire []byte, expected Expected, now int64) (Verified, error) {
	permit, err := Decode(wire)
	if err != nil {
		return Verified{}, err
	}
	keys, err := p.accepted(scope)
	if err != nil {
		return Verified{}, err
	}
	return Verify(permit, expected, keys, at(now))
}

func checkScope(scope string) error {
	if err := state.CheckScopeName(scope); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// failed gives an error of the store its reason, if it has one; others pass through.
func failed(err error) error {
	switch {
	case errors.Is(err, state.ErrUnavailable):
		return &Error{Reason: ReasonUnavailable, Err: err}
	case errors.Is(err, state.ErrUnknown):
		return &Error{Reason: ReasonUnknown, Err: err}
	}
	return fmt.Errorf("permit: %w", err)
}

// refused is the error of a batch that was refused otherwise than by a permit.
func refused(out *state.Outcome) error {
	for _, r := range out.Refusals {
		if err := state.RefusalError(r.Reason); err != nil {
			return failed(err)
		}
	}
	return errOthers
}

// errOthers: what stands against the batch is not about the permit.
var errOthers = errors.New("permit: not used: what goes with it was refused")

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
