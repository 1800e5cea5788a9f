package budget

import (
	"fmt"

	"github.com/counterfoil/counterfoil/state"
)

// Part is what a call puts into a batch, and how it reads its answer there. The batch needs an anchor before it, and keeps
// what the moves took only if it says so (state.Batch.Keep).
type Part struct {
	Ops []state.Op
	// HoldID and Token are of the hold that the part is about, if it is: the token is the one that settles it afterwards.
	HoldID string
	Token  state.Token
	// Over is what a capture asks above the hold: it is charged as a whole, or else answered as uncaptured.
	Over []Entry

	// refused is what was found out before: then the only op is a refusal, so that what the batch's anchor finds can
	// answer first.
	refused error
	read    func(out *state.Outcome, at int) (Result, error)
}

// Result is what a part answers when its batch was applied.
type Result struct {
	// Budgets is where every budget stands that the part moved an amount of, ancestors too, the deepest first.
	Budgets []Figures
	// Captured and Uncaptured are what was charged of a hold, and what was asked for besides and did not fit.
	Captured, Uncaptured []Entry
}

// Read gives the part's answer from the outcome of a batch in which the part's ops begin at index at. An error is the
// part's own refusal; it is nil as well if the batch was refused for other reasons. A repeated batch has no such answer:
// it is read from what the anchor's record kept, with
// [Latest] and [Cut].
func (p *Part) Read(out *state.Outcome, at int) (Result, error) {
	switch {
	case out.Repeated:
		return Result{}, nil
	case p.refused != nil:
		return Result{}, p.refused
	}
	return p.read(out, at)
}

// refuse makes the part that carries a refusal into a batch.
func refuse(reason state.Reason, err error) *Part {
	return &Part{Ops: []state.Op{state.Refuse{Reason: reason}}, refused: err}
}

// moved lists the figures that the moves of a part left, from index at on.
func moved(out *state.Outcome, at, n int) []Figures {
	last := make([]Figures, 0, n)
	for i := at; i < at+n && i < len(out.Figures); i++ {
		if f := out.Figures[i]; f != nil {
			last = appendLatest(last, f)
		}
	}
	return last
}

// exceeded collects what did not fit among the moves of a part, nil if everything did.
func exceeded(out *state.Outcome, at, n int) error {
	var refused []Figures
	for _, r := range out.Refusals {
		if r.Op >= at && r.Op < at+n && r.Reason == state.OverLimit && r.Figures != nil {
			refused = append(refused, *r.Figures)
		}
	}
	if refused == nil {
		return nil
	}
	return &ExceededError{Refused: refused}
}

// gone lists the budgets of a part's moves that were not there.
func gone(out *state.Outcome, at int, ops []state.Op) []string {
	var names []string
	for _, r := range out.Refusals {
		if i := r.Op - at; r.Reason == state.BudgetGone && i >= 0 && i < len(ops) {
			if m, ok := ops[i].(state.Move); ok {
				names = append(names, m.Key.ID)
			}
		}
	}
	return names
}

// refusedWhole gives the error of a refusal that concerns a batch as a whole or its quotas, nil if there is none. The
// order is that of the answers: recovering, stale; what the caller's own parts say comes between; then full.
func refusedWhole(out *state.Outcome, reasons ...state.Reason) error {
	for _, reason := range reasons {
		if _, ok := out.Because(reason); ok {
			return fmt.Errorf("budget: %w", state.RefusalError(reason))
		}
	}
	return nil
}

// unexpected is a refusal that no caller of this package can bring about.
func unexpected(out *state.Outcome) error {
	if len(out.Refusals) == 0 {
		return fmt.Errorf("budget: %w: the batch has no answer", state.ErrUnavailable)
	}
	return fmt.Errorf("budget: %w: the batch was refused as %s", state.ErrUnavailable, out.Refusals[0].Reason)
}
