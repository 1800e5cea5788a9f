package keyring

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/pubkey"
	"github.com/counterfoil/counterfoil/state"
)

// IntegrityKey describes an integrity key, without the key.
type IntegrityKey struct {
	ID     state.KeyID
	Added  time.Time
	Writes bool // records are sealed under it
}

// PublicKey describes a public key that a scope accepts.
type PublicKey struct {
	Key        ed25519.PublicKey
	Thumbprint string // RFC 7638
	Own        bool   // this keyring generated it; else it is another issuer's
	Signs      bool   // it is the one that signs now
	Added      time.Time
	SignsFrom  time.Time // of an own key that does not sign yet; else zero
}

func newIntegrity(from entropy.Source, now int64) (integrityKey, error) {
	var key [state.IntegrityKeyBytes]byte
	if err := from.Fill(key[:]); err != nil {
		return integrityKey{}, err
	}
	return integrityKey{key: newSecret(key), added: now}, nil
}

// IntegrityKeys lists the integrity keys in the order in which they were added.
func (k *Keyring) IntegrityKeys() []IntegrityKey {
	d := k.current.Load().doc
	list := make([]IntegrityKey, len(d.integrity))
	for i, key := range d.integrity {
		list[i] = IntegrityKey{ID: key.id(), Added: timeOf(key.added), Writes: key.id() == d.write}
	}
	return list
}

// AddIntegrity generates an integrity key that is accepted but not yet written with: the first step of a rotation. It
// fails with [ErrFull] beyond [MaxIntegrity].
func (k *Keyring) AddIntegrity(ctx context.Context) (added IntegrityKey, err error) {
	err = k.change(ctx, func(d *document, now int64) error {
		if len(d.integrity) >= MaxIntegrity {
			return fmt.Errorf("%w: %d integrity keys; retire those that no record is sealed under", ErrFull, MaxIntegrity)
		}
		key, err := newIntegrity(k.entropy, now)
		if err != nil {
			return err
		}
		d.integrity = append(d.integrity, key)
		added = IntegrityKey{ID: key.id(), Added: timeOf(now)}
		return nil
	})
	return added, err
}

// WriteIntegrity makes the key with that id the one that records are sealed under: the second step of a rotation. It
// fails with [ErrNoKey], and with [ErrTooSoon] until [Propagation] after the key was added.
func (k *Keyring) WriteIntegrity(ctx context.Context, id state.KeyID) error {
	return k.change(ctx, func(d *document, now int64) error {
		i := d.findIntegrity(id)
		if i < 0 {
			return noIntegrity(id)
		}
		if wait := d.integrity[i].added + Propagation.Milliseconds() - now; wait > 0 {
			return fmt.Errorf("%w: other servers may not accept integrity key %x yet; try again in %v", ErrTooSoon, id[:], msDuration(wait))
		}
		d.write = id
		return nil
	})
}

// RetireIntegrity forgets the key with that id. Records sealed under it can never be read again: the caller makes sure
// that there are none. It fails with [ErrNoKey], and with [ErrInUse] for the key that is written with.
func (k *Keyring) RetireIntegrity(ctx context.Context, id state.KeyID) error {
	return k.change(ctx, func(d *document, _ int64) error {
		i := d.findIntegrity(id)
		switch {
		case i < 0:
			return noIntegrity(id)
		case id == d.write:
			return fmt.Errorf("%w: records are sealed under integrity key %x; write with another one first", ErrInUse, id[:])
		}
		d.integrity = slices.Delete(d.integrity, i, i+1)
		return nil
	})
}

func noIntegrity(id state.KeyID) error {
	return fmt.Errorf("%w: integrity key %x; `counterfoil key list` shows them", ErrNoKey, id[:])
}

// Scopes lists the scopes that have keys, in byte order.
func (k *Keyring) Scopes() []string { return k.current.Load().doc.names() }

// List lists the public keys that a scope accepts, in the order in which they were added.
func (k *Keyring) List(scope string) []PublicKey {
	s := k.current.Load().doc.scopes[scope]
	if s == nil {
		return nil
	}
	now := k.clock.Now().UnixMilli()
	at := s.signer(now)
	list := make([]PublicKey, len(s.accepted))
	for i, key := range s.accepted {
		list[i] = describe(key, i == at, now)
	}
	return list
}

func describe(k acceptedKey, signs bool, now int64) PublicKey {
	p := PublicKey{Key: slices.Clone(k.public[:]), Thumbprint: thumbprint(k.public), Own: k.own, Signs: signs, Added: timeOf(k.added)}
	if !signs && !k.seed.isZero() && k.signs > now {
		p.SignsFrom = timeOf(k.signs)
	}
	return p
}

// RotateSigning generates a signing key for the scope. The scope's first one signs at once; any other is accepted at
// once and signs after [Propagation], and the one before stays accepted until it is retired. It fails with [ErrFull]
// beyond [MaxAccepted] keys.
func (k *Keyring) RotateSigning(ctx context.Context, scope string) (added PublicKey, err error) {
	err = k.change(ctx, func(d *document, now int64) error {
		key, err := d.rotate(k.entropy, scope, now)
		if err != nil {
			return err
		}
		added = describe(key, key.signs <= now, now)
		return nil
	})
	return added, err
}

func (d *document) rotate(from entropy.Source, scope string, now int64) (acceptedKey, error) {
	s, err := d.room(scope)
	if err != nil {
		return acceptedKey{}, err
	}
	var bytes [32]byte
	if err := from.Fill(bytes[:]); err != nil {
		return acceptedKey{}, err
	}
	seed := newSecret(bytes)
	key := acceptedKey{public: public(publicOf(seed)), seed: seed, own: true, added: now, signs: now}
	for _, k := range s.accepted {
		if !k.seed.isZero() {
			key.signs = max(key.signs, k.signs+1, now+Propagation.Milliseconds())
		}
	}
	s.accepted = append(s.accepted, key)
	return key, nil
}

// room returns the keys of a scope, which one more can be added to.
func (d *document) room(scope string) (*scopeKeys, error) {
	if err := state.CheckScopeName(scope); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s := d.scopes[scope]
	if s == nil {
		if len(d.scopes) >= MaxScopes {
			return nil, fmt.Errorf("%w: %d scopes have keys", ErrFull, MaxScopes)
		}
		s = &scopeKeys{}
		d.scopes[scope] = s
	}
	if len(s.accepted) >= MaxAccepted {
		return nil, fmt.Errorf("%w: the scope accepts %d public keys; retire some", ErrFull, MaxAccepted)
	}
	if len(s.retired) >= maxRetired {
		return nil, fmt.Errorf("%w: the scope retired %d public keys within %v; try again later", ErrFull, len(s.retired), RetiredKept)
	}
	return s, nil
}

// Trust makes the scope accept permits that another issuer signs. It fails with [ErrInvalid] for a key under which a
// signature proves nothing, and with [ErrTaken] for one that this scope accepts already, or that another scope accepts
// or retired less than [RetiredKept] ago.
func (k *Keyring) Trust(ctx context.Context, scope string, key ed25519.PublicKey) (added PublicKey, err error) {
	if len(key) != ed25519.PublicKeySize {
		return PublicKey{}, fmt.Errorf("%w: a public key has %d bytes", ErrInvalid, ed25519.PublicKeySize)
	}
	if err := pubkey.Vet(key); err != nil {
		return PublicKey{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	pub := public(key)
	err = k.change(ctx, func(d *document, now int64) error {
		if err := d.free(scope, pub); err != nil {
			return err
		}
		s, err := d.room(scope)
		if err != nil {
			return err
		}
		s.retired = slices.DeleteFunc(s.retired, func(k retiredKey) bool { return k.public == pub })
		key := acceptedKey{public: pub, added: now}
		s.accepted = append(s.accepted, key)
		added = describe(key, false, now)
		return nil
	})
	return added, err
}

// free reports whether the scope may accept pub.
func (d *document) free(scope string, pub public) error {
	for name, s := range d.scopes {
		switch {
		case s.find(pub) >= 0 && name == scope:
			return fmt.Errorf("%w: the scope accepts it already", ErrTaken)
		case s.find(pub) >= 0:
			return fmt.Errorf("%w: another scope accepts it, and a permit is good for one use in one scope; use a key of its own for each", ErrTaken)
		case name != scope && slices.ContainsFunc(s.retired, func(k retiredKey) bool { return k.public == pub }):
			return fmt.Errorf("%w: another scope retired it less than %v ago", ErrTaken, RetiredKept)
		}
	}
	return nil
}

// Retire makes the scope refuse permits signed by the key, its own or another issuer's. If it is the one that signs, its
// successor signs at once; without one it fails with [ErrInUse]. A key that the scope does not accept is [ErrNoKey].
func (k *Keyring) Retire(ctx context.Context, scope string, key ed25519.PublicKey) error {
	if len(key) != ed25519.PublicKeySize {
		return fmt.Errorf("%w: a public key has %d bytes", ErrInvalid, ed25519.PublicKeySize)
	}
	pub := public(key)
	return k.change(ctx, func(d *document, now int64) error {
		s := d.scopes[scope]
		if s == nil || s.find(pub) < 0 {
			return fmt.Errorf("%w: the scope accepts no public key %s; `counterfoil key list` shows them", ErrNoKey, hex.EncodeToString(key[:8]))
		}
		i := s.find(pub)
		signed := i == s.signer(now)
		s.accepted = slices.Delete(s.accepted, i, i+1)
		if signed {
			next := s.signer(now)
			if next < 0 {
				return fmt.Errorf("%w: the scope signs with it; run first: counterfoil key rotate", ErrInUse)
			}
			s.accepted[next].signs = min(s.accepted[next].signs, now)
		}
		s.retired = append(s.retired, retiredKey{public: pub, at: now})
		return nil
	})
}

func timeOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func msDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
