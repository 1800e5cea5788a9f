package counterfoil

import (
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// refusals finds, in the outcome of a batch that was refused, the one that is answered. A part that the batch does not
// have is nil.
type refusals struct {
	out      *state.Outcome
	permit   *permit.Part
	permitAt int
	hold     *budget.Part
	holdAt   int
	ofPermit bool // the hold is one that the permit carries
	before   error
	spend    *budget.Part
	spendAt  int
}

// first gives the refusal that comes first in the order of the package comment, an existing operation left out.
func (r *refusals) first() error {
	if err := r.whole(state.Recovering, state.Stale); err != nil {
		return err
	}
	if r.permit != nil {
		if err := r.permit.Refusal(r.out, r.permitAt); err != nil && !full(err) {
			return err
		}
	}
	if err := read(r.hold, r.out, r.holdAt); err != nil {
		if r.ofPermit {
			err = permitHold(err)
		}
		return err
	}
	if r.before != nil {
		return r.before
	}
	amount := read(r.spend, r.out, r.spendAt)
	if errors.Is(amount, budget.ErrBudgetUnknown) {
		return amount
	}
	if err := r.whole(state.Full, state.OwnerFull); err != nil {
		return err
	}
	if amount != nil {
		return amount
	}
	return fmt.Errorf("counterfoil: the batch was refused as %v: %w", reasons(r.out), errors.ErrUnsupported)
}

// whole gives the error of the first of the reasons that any op of the batch was refused for.
func (r *refusals) whole(reasons ...state.Reason) error {
	for _, reason := range reasons {
		if _, ok := r.out.Because(reason); ok {
			return fmt.Errorf("counterfoil: %w", state.RefusalError(reason))
		}
	}
	return nil
}

func full(err error) bool { return errors.Is(err, state.ErrFull) || errors.Is(err, state.ErrOwnerFull) }

// read gives a part's own refusal, nil if it has none.
func read(p *budget.Part, out *state.Outcome, at int) error {
	if p == nil {
		return nil
	}
	_, err := p.Read(out, at)
	return err
}

func reasons(out *state.Outcome) []state.Reason {
	list := make([]state.Reason, len(out.Refusals))
	for i, r := range out.Refusals {
		list[i] = r.Reason
	}
	return list
}
