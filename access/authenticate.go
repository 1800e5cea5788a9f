package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

const (
	// CacheFor is how long the rights of a token are remembered, counted from before the store was asked.
	CacheFor = 3 * time.Second
	// Of each sort of finding, valid and invalid tokens apart, so that a flood of wrong ones drives out no right one.
	cacheSize = 8192
)

// Access authenticates callers and keeps tokens and scopes. It is safe for concurrent use.
type Access struct {
	store   *store.Store
	keys    *keyring.Keyring
	clock   clock.Clock
	valid   *cache
	invalid *cache
}

// New returns the access of a store. New scopes get a signing key in keys. A nil clock is the machine's.
func New(s *store.Store, keys *keyring.Keyring, c clock.Clock) (*Access, error) {
	if s == nil || keys == nil {
		return nil, errors.New("access: a store and a keyring are needed")
	}
	if c == nil {
		c = clock.System{}
	}
	return &Access{store: s, keys: keys, clock: c, valid: newCache(CacheFor, cacheSize), invalid: newCache(CacheFor, cacheSize)}, nil
}

// Authenticate returns who holds a token, as [ParseBearer] gave it. It fails with [ErrUnauthenticated] if the token is
// unknown or revoked, and with an error of package state if that cannot be told now.
func (a *Access) Authenticate(ctx context.Context, t Token) (Principal, error) {
	if t.text == nil {
		return Principal{}, fmt.Errorf("%w: there is none", ErrUnauthenticated)
	}
	hash := t.hash()
	// The boot clock, which nobody sets: a step of the wall clock must not lengthen the life of a revoked token.
	now := a.clock.Boot()
	found, known, mark := a.valid.get(hash, now)
	if known {
		return *found.principal, nil
	}
	if _, known, _ := a.invalid.get(hash, now); known {
		return Principal{}, errUnknownToken
	}
	p, err := a.lookUp(ctx, hash)
	switch {
	case err != nil:
		return Principal{}, err
	case p == nil:
		a.invalid.put(hash, finding{at: now}, 0)
		return Principal{}, errUnknownToken
	}
	a.valid.put(hash, finding{principal: p, at: now}, mark)
	return *p, nil
}

var errUnknownToken = fmt.Errorf("%w: it is unknown or revoked", ErrUnauthenticated)

// lookUp asks the store about a hash. A nil principal means that the token is unknown or revoked.
func (a *Access) lookUp(ctx context.Context, hash state.Digest) (*Principal, error) {
	byHash := hashKey(hash)
	recs, err := a.store.Read(ctx, byHash)
	if err != nil || !live(recs[0], hash) {
		return nil, err
	}
	scope, name, err := decodePointer(byHash, recs[0])
	if err != nil {
		return nil, err
	}
	byName := nameKey(scope, name)
	// A yes rests on what is durable: it goes through the group loop. Both are read together, as they were written.
	out, err := a.store.Do(ctx, &state.Batch{Scope: state.StoreScope, Read: []state.Key{byName, byHash}})
	if err != nil {
		return nil, err
	}
	if !out.Applied || len(out.Records) != 2 {
		return nil, refused(&out)
	}
	if !live(out.Records[0], hash) || !live(out.Records[1], hash) {
		return nil, nil
	}
	c, err := decode(byName, out.Records[0])
	if err != nil {
		return nil, err
	}
	p := c.principal()
	return &p, nil
}

// live reports whether rec is one of a credential that has this hash and is not revoked.
func live(rec *state.Record, hash state.Digest) bool {
	return rec != nil && rec.State == state.Pending && subtle.ConstantTimeCompare(rec.Digest[:], hash[:]) == 1
}
