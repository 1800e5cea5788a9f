package challenge

import (
	"context"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// State is where a challenge is in its life.
type State string

// The states of a challenge.
const (
	StatePending  State = "pending"  // it can be consumed
	StateConsumed State = "consumed" // the job is refused
	StateExpired  State = "expired"  // its time is over, or its epoch; the job can be issued another
)

// LookupParams names a challenge.
type LookupParams struct {
	Scope string
	Owner string // who was issued it
	Job   Job
}

// Challenge is a challenge as it stands, without its nonce.
type Challenge struct {
	Job        Job
	State      State
	Epoch      uint64 // at its issue
	IssuedAt   time.Time
	ExpiresAt  time.Time // the end of its TTL, also of a consumed one
	ConsumedAt time.Time // zero if it is not
}

// Lookup tells how the challenge of a job stands, durably. A job that nothing was issued for, or another owner was, is
// [ErrUnknownJob]; so is one whose challenge or marker was over for some minutes.
func (c *Challenges) Lookup(ctx context.Context, p LookupParams) (Challenge, error) {
	if err := checkCaller(p.Scope, p.Owner); err != nil {
		return Challenge{}, err
	}
	out, err := c.store.Do(ctx, &state.Batch{Scope: p.Scope, Read: []state.Key{keyOf(p.Scope, p.Job), state.ScopeKey(p.Scope)}})
	if err != nil {
		return Challenge{}, failed(err)
	}
	if !out.Applied {
		return Challenge{}, refused(&out)
	}
	r := out.Records[0]
	if r == nil || r.State == state.Void || r.Owner != p.Owner {
		return Challenge{}, ErrUnknownJob
	}
	issued, expires, err := window(r)
	if err != nil {
		return Challenge{}, err
	}
	found := Challenge{Job: p.Job, State: StatePending, Epoch: r.Epoch, IssuedAt: at(issued), ExpiresAt: at(expires)}
	switch {
	case r.State == state.Settled:
		found.State, found.ConsumedAt = StateConsumed, at(r.Updated)
	case over(r, out.Records[1].Scope(), out.Now):
		found.State = StateExpired
	}
	return found, nil
}
