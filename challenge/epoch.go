package challenge

import (
	"context"

	"github.com/counterfoil/counterfoil/state"
)

// EpochParams names a scope.
type EpochParams struct {
	Scope string
}

// AdvanceParams advances the epoch of a scope.
type AdvanceParams struct {
	Scope string
	From  uint64 // the epoch to go on from
	// Token, drawn at random before the first send, makes the request recognisable: sent again with it, it gives the same
	// answer for as long as the epoch stands there. Zero: drawn here.
	Token state.Token
}

// Epoch is the epoch of a scope.
type Epoch struct {
	Epoch    uint64 // from 1
	Repeated bool   // this same token had advanced it before
}

// Epoch tells the present epoch, durably.
func (c *Challenges) Epoch(ctx context.Context, p EpochParams) (Epoch, error) {
	if err := checkScope(p.Scope); err != nil {
		return Epoch{}, err
	}
	out, err := c.store.Do(ctx, &state.Batch{Scope: p.Scope, Read: []state.Key{state.ScopeKey(p.Scope)}})
	if err != nil {
		return Epoch{}, failed(err)
	}
	if !out.Applied {
		return Epoch{}, refused(&out)
	}
	return Epoch{Epoch: out.Records[0].Scope().Epoch}, nil
}

// AdvanceEpoch makes the epoch From + 1 if and only if it is From; else the error is an [*EpochConflictError]. Of two
// callers who go on from the same epoch one wins. It ends every challenge of the scope that is pending.
func (c *Challenges) AdvanceEpoch(ctx context.Context, p AdvanceParams) (Epoch, error) {
	if err := checkScope(p.Scope); err != nil {
		return Epoch{}, err
	}
	if p.From == 0 || p.From >= state.MaxAmount {
		return Epoch{}, invalidf("an epoch to go on from is 1 to 2^53−2")
	}
	if p.Token.IsZero() {
		token, err := c.store.Token()
		if err != nil {
			return Epoch{}, failed(err)
		}
		p.Token = token
	}
	out, err := c.store.Do(ctx, &state.Batch{Scope: p.Scope, Ops: []state.Op{
		state.Bump{Key: state.ScopeKey(p.Scope), From: p.From, Token: p.Token},
	}})
	if err != nil {
		return Epoch{}, failed(err)
	}
	if out.Applied || out.Repeated {
		return Epoch{Epoch: p.From + 1, Repeated: out.Repeated}, nil
	}
	if r, ok := out.Because(state.CheckFailed); ok {
		return Epoch{}, &EpochConflictError{Epoch: r.Value}
	}
	return Epoch{}, refused(&out)
}
