// Package counterfoil is the guarded call: it puts permit, operation and budgets of one side effect into one durable step
// each.
//
//	Authorize ──► Begin ──► the effect ──► Complete
//	(hold and    (claim the operation,    (record the receipt,
//	 permit)      consume the permit,      capture the hold)
//	              fence the hold, spend)
//
// The promise is: at most once, never over budget, and when the outcome cannot be known, it says so and refuses. Nothing
// outside Counterfoil is ever said to have happened exactly once.
//
// [Caller] is the interface of the guarded call; [Counterfoil.As] gives one that works on a store in this process, and the
// HTTP client one that works on a server. [Run] makes a whole call of one function.
//
// # Order of refusals
//
// If several things stand against a call, the answer is the first of: an existing operation, a scope that is recovering,
// the permit, the hold, an unknown budget, a full store, a full share of the owner, an amount that does not fit. A live
// operation answers alone: a caller that sends its request again gets the receipt even if its permit has expired since.
package counterfoil

import (
	"context"
	"errors"
	"log/slog"

	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/challenge"
	"github.com/counterfoil/counterfoil/counter"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/store"
)

// Options configure the capabilities of a [Counterfoil]. The zero value is ready to use.
type Options struct {
	Permits    permit.Options
	Operations operation.Options
	Challenges challenge.Options
	Budgets    budget.Options
	Counters   counter.Options
	// Log gets what an operator should know. Default: nowhere.
	Log *slog.Logger
}

// Counterfoil is all capabilities on one store. It is safe for concurrent use.
type Counterfoil struct {
	Permits    *permit.Permits
	Operations *operation.Operations
	Challenges *challenge.Challenges
	Budgets    *budget.Budgets
	Counters   *counter.Counters
	Approvals  *approval.Approvals

	store *store.Store
	log   *slog.Logger
}

// New makes the capabilities on a store, which must not have been used yet, with the keys of its scopes. It fails with
// [operation.ErrInvalid] if an option is out of range.
func New(s *store.Store, keys permit.Keyring, o Options) (*Counterfoil, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Operations.Log == nil {
		o.Operations.Log = o.Log
	}
	operations, err := operation.New(s, o.Operations)
	if err != nil {
		return nil, err
	}
	return &Counterfoil{
		Permits: permit.New(s, keys, o.Permits), Operations: operations,
		Challenges: challenge.New(s, o.Challenges), Budgets: budget.New(s, o.Budgets),
		Counters: counter.New(s, o.Counters), Approvals: approval.New(s),
		store: s, log: o.Log,
	}, nil
}

// Open opens the store on an engine with the keys of a keyring, and makes the capabilities on it. The store must be there:
// see [store.Create]. Close ends it.
func Open(ctx context.Context, e engine.Engine, keys *keyring.Keyring, s store.Options, o Options) (*Counterfoil, error) {
	s.Keys = keys.Integrity()
	opened, err := store.Open(ctx, e, s)
	if err != nil {
		return nil, err
	}
	c, err := New(opened, keys, o)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return c, nil
}

// Store is what the capabilities stand on, for operators' verbs and health.
func (c *Counterfoil) Store() *store.Store { return c.store }

// Close ends the store, and its engine with it. What is under way is finished first.
func (c *Counterfoil) Close() error { return c.store.Close() }

// Identity is who calls, as the credential says and never the request.
type Identity struct {
	Scope string
	Owner string // whose operations, holds and shares of the scope they are
	Name  string // recorded with what an operator resolves; "": the owner
	// AnyOwner lets the identity see and resolve the operations of every owner in the scope.
	AnyOwner bool
	// Always is spent by every Begin, besides what it asks for.
	Always []Entry
}

// As gives a [Caller] for an owner in a scope.
func (c *Counterfoil) As(scope, owner string) Caller {
	return c.Acting(Identity{Scope: scope, Owner: owner})
}

// Acting gives a [Caller] for an identity.
func (c *Counterfoil) Acting(id Identity) Caller {
	if id.Name == "" {
		id.Name = id.Owner
	}
	return &actor{Counterfoil: c, id: id}
}

// actor is a Caller on the library.
type actor struct {
	*Counterfoil
	id Identity
}

// seenOwner is whose operations the identity sees, "" for everybody's.
func (a *actor) seenOwner() string {
	if a.id.AnyOwner {
		return ""
	}
	return a.id.Owner
}

// tries bounds how often a step is built anew because what it rested on has changed.
const tries = 4

// again runs a step until it rests on nothing that is out of date.
func again[T any](step func() (T, error)) (T, error) {
	result, err := step()
	for n := 1; n < tries && budget.Again(err); n++ {
		result, err = step()
	}
	return result, err
}
