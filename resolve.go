package counterfoil

import (
	"context"
	"errors"

	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
)

// Resolve settles an operation by what an operator found out.
func (a *actor) Resolve(ctx context.Context, p ResolveParams) (ResolveResult, error) {
	resolution := operation.Resolution{By: a.id.Name, Outcome: p.Outcome, Note: p.Note}
	if err := operation.CheckResolution(&resolution); err != nil {
		return ResolveResult{}, err
	}
	if p.Outcome == operation.DidNotHappen && p.Capture != nil {
		return ResolveResult{}, invalidf("nothing is captured for what did not happen")
	}
	i, err := a.Operations.Intent(ctx, a.id.Scope, a.seenOwner(), p.ID)
	switch {
	case errors.Is(err, state.ErrCorrupt):
		return a.mend(ctx, p, resolution, err)
	case err != nil:
		return ResolveResult{}, err
	case p.Outcome == operation.Happened:
		e := settlement{actor: a, intent: i, receipt: p.Receipt, capture: p.Capture, resolution: &resolution}
		if err := a.end(ctx, i, &e); err != nil {
			return ResolveResult{}, err
		}
		return ResolveResult{
			State: operation.Settled, Uncaptured: entries(e.done.Uncaptured), Unsettled: e.done.Unsettled, Repeated: e.done.Repeated,
		}, nil
	}
	e := withdrawal{actor: a, intent: i, params: operation.DropParams{Resolution: &resolution}}
	if err := a.end(ctx, i, &e); err != nil {
		return ResolveResult{}, err
	}
	return ResolveResult{State: operation.Aborted, Unsettled: e.done.Unsettled, Repeated: e.done.Repeated}, nil
}

// mend resolves an operation whose record is damaged. Whose it was the record cannot tell: it must be an identity that may
// resolve everybody's, or an operation whose id shows that it is the identity's own.
func (a *actor) mend(ctx context.Context, p ResolveParams, r operation.Resolution, damage error) (ResolveResult, error) {
	if !a.id.AnyOwner && (p.Key == "" || operation.ID(a.id.Owner, p.Key) != p.ID) {
		return ResolveResult{}, damage
	}
	err := a.Operations.Mend(ctx, operation.MendParams{
		Scope: a.id.Scope, Owner: a.id.Owner, ID: p.ID, Resolution: r, Receipt: p.Receipt, Fingerprint: p.Fingerprint,
	})
	if err != nil {
		return ResolveResult{}, err
	}
	if p.Outcome == operation.Happened {
		return ResolveResult{State: operation.Settled, Unsettled: true}, nil
	}
	return ResolveResult{State: operation.Aborted, Unsettled: true}, nil
}
