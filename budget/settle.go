package budget

import (
	"slices"

	"github.com/counterfoil/counterfoil/state"
)

// Cut divides what is asked of a hold of entries: captured is charged and uncaptured is not. A nil capture asks for all
// that is held. What is asked above the hold is charged only if extra, that is, if it fitted as a whole. An entry of the
// hold that capture does not name is given back. It fails with [ErrInvalid] if capture names a budget that the hold does
// not.
func Cut(entries []Entry, capture *[]Entry, extra bool) (captured, uncaptured []Entry, err error) {
	if capture == nil {
		return slices.Clone(entries), nil, nil
	}
	if err := checkCapture(*capture); err != nil {
		return nil, nil, err
	}
	for _, c := range *capture {
		i := slices.IndexFunc(entries, func(e Entry) bool { return e.Budget == c.Budget })
		if i < 0 {
			return nil, nil, invalidf("the hold holds nothing in %s", c.Budget)
		}
		if over := c.Amount - min(c.Amount, entries[i].Amount); over > 0 && !extra {
			uncaptured = append(uncaptured, Entry{c.Budget, over})
			c.Amount = entries[i].Amount
		}
		captured = append(captured, c)
	}
	return captured, uncaptured, nil
}

func checkCapture(capture []Entry) error {
	if len(capture) > MaxEntries {
		return invalidf("%d entries, the limit is %d", len(capture), MaxEntries)
	}
	return checkEach(capture)
}

// charge is what a settlement does in one budget of the hold: what it spends of the held amount, and what it would spend
// on top.
type charge struct{ spend, extra uint64 }

// charges adds up, for each of the budgets that the hold counts in, what a capture spends there.
func (h *held) charges(capture *[]Entry) ([]charge, error) {
	if capture != nil {
		if _, _, err := Cut(h.entries, capture, true); err != nil {
			return nil, err
		}
	}
	list := make([]charge, len(h.kept.Figures))
	for i, e := range h.entries {
		asked := e.Amount
		if capture != nil {
			asked = amountOf(*capture, e.Budget)
		}
		for _, place := range h.of[i] {
			c := &list[place]
			c.spend += min(asked, e.Amount)
			c.extra += asked - min(asked, e.Amount)
			if c.extra > MaxAmount {
				return nil, invalidf("the amounts that count in %s add up to more than 2^53−1", h.kept.Figures[place].Name)
			}
		}
	}
	return list, nil
}

func amountOf(entries []Entry, budget string) uint64 {
	for _, e := range entries {
		if e.Budget == budget {
			return e.Amount
		}
	}
	return 0
}

// from is the bucket that the hold's amounts lie in.
func (h *held) from() state.Bucket {
	if h.stage == stageOpen {
		return state.Bucket{Kind: state.BucketHeld, Until: h.until}
	}
	return state.Bucket{Kind: state.BucketFenced}
}

// moves takes what the hold holds in each budget out of its bucket. An open hold is over if one of its budgets was closed,
// so that the whole batch is refused; a fenced one passes over what is gone.
func (h *held) moves(give func(i int, m *state.Move)) []state.Op {
	ops := make([]state.Op, len(h.kept.Figures))
	for i, f := range h.kept.Figures {
		m := state.Move{
			Key: budgetKey(h.key.Scope, f.Name), Generation: f.Generation, Window: f.WindowAt,
			Take: h.from(), TakeAmount: f.Amount, IfClosed: state.GoneSkip,
		}
		if h.stage != stageOpen {
			m.IfGone = state.GoneSkip
		}
		give(i, &m)
		ops[i] = m
	}
	return ops
}

// at is the body of the hold at a later stage: what only open holds need is left out.
func (h *held) at(s stage) []byte {
	b := h.body
	b.stage, b.permit = s, nil
	b.used, b.bare = h.used || s == stageFenced || s == stageBare, h.bare || s == stageBare
	return b.append(nil)
}

// settling is the part that settles a hold and spends what capture asks; void spends nothing. If the hold is settled, the
// part has no moves: only a repetition can be answered.
func (h *held) settling(token state.Token, capture *[]Entry, void bool, now int64) (*Part, error) {
	settle := state.Settle{
		Key: h.key, Token: token, IfVersion: h.rec.Version, Given: h.given(capture, void), Body: h.at(stageCaptured), Expires: now + holdKeep,
	}
	if void {
		settle.Body = h.at(stageVoided)
	}
	part := &Part{HoldID: h.key.ID, Token: token, Ops: []state.Op{settle}}
	switch {
	case h.rec.State != state.Pending:
	case void:
		part.Ops = append(part.Ops, h.moves(func(int, *state.Move) {})...)
	default:
		charges, err := h.charges(capture)
		if err != nil {
			return nil, err
		}
		if _, part.Over, err = Cut(h.entries, capture, false); err != nil {
			return nil, err
		}
		part.Ops = append(part.Ops, h.moves(func(i int, m *state.Move) {
			m.Give, m.GiveAmount, m.Extra = state.Bucket{Kind: state.BucketSpent}, charges[i].spend, charges[i].extra
		})...)
	}
	part.read = func(out *state.Outcome, at int) (Result, error) {
		if err := h.refused(out, at, len(part.Ops), token); err != nil {
			return Result{}, err
		}
		res := Result{Budgets: moved(out, at+1, len(part.Ops)-1)}
		if void {
			return res, nil
		}
		var err error
		res.Captured, res.Uncaptured, err = Cut(h.entries, capture, out.Extra)
		return res, err
	}
	return part, nil
}

// given tells one settlement from another, so that only the same one is taken for its repetition.
func (h *held) given(capture *[]Entry, void bool) state.Digest {
	switch {
	case void:
		return digest("void", nil, state.Digest{})
	case capture == nil:
		return digest("capture", h.entries, state.Digest{})
	}
	return digest("capture", *capture, state.Digest{})
}

// refused gives the refusal of a part whose first op, at index at, is about the hold and carries token; nil if neither it
// nor its moves were refused.
func (h *held) refused(out *state.Outcome, at, n int, token state.Token) error {
	if r, ok := out.Refused(at); ok {
		switch r.Reason {
		case state.Absent:
			return ErrHoldUnknown
		case state.Expired:
			if r.Record != nil && r.Record.State != state.Pending {
				return ErrHoldSettled
			}
			return ErrHoldExpired
		case state.Changed:
			return changedError{}
		case state.NotPending:
			return ErrHoldSettled
		case state.NotHolder:
			return h.notHeld(token, r.Record)
		}
	}
	for _, r := range out.Refusals {
		if r.Op <= at || r.Op >= at+n {
			continue
		}
		switch r.Reason {
		case state.BudgetGone:
			return ErrHoldSettled
		case state.WindowOver:
			return ErrWindowClosed
		}
	}
	return nil
}

// notHeld says why a token is not the hold's: it never was, or the hold has changed since it was read.
func (h *held) notHeld(token state.Token, rec *state.Record) error {
	if token != h.rec.Token || rec == nil {
		return ErrNotHolder
	}
	now, err := holdOf(h.key, rec)
	switch {
	case err != nil:
		return err
	case now.stage == stageOpen:
		return changedError{}
	}
	return now.notOpen()
}
