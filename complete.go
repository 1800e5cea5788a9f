package counterfoil

import (
	"context"
	"errors"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
)

// Renew moves the end of the lease.
func (a *actor) Renew(ctx context.Context, p RenewParams) (Renewed, error) {
	renewed, err := a.Operations.Renew(ctx, operation.RenewParams{
		Scope: a.id.Scope, Owner: a.id.Owner, ID: p.ID, Token: p.Token, Lease: p.Lease,
	})
	return Renewed{LeaseUntil: renewed.LeaseUntil}, err
}

// Operation tells what is known about an operation.
func (a *actor) Operation(ctx context.Context, id string) (operation.Operation, error) {
	return a.Operations.Get(ctx, operation.GetParams{Scope: a.id.Scope, Owner: a.seenOwner(), ID: id})
}

// Complete records the receipt and captures the hold, in one batch.
func (a *actor) Complete(ctx context.Context, p CompleteParams) (Completed, error) {
	i, err := a.Operations.Intent(ctx, a.id.Scope, a.id.Owner, p.ID)
	if err != nil {
		return Completed{}, err
	}
	e := settlement{actor: a, intent: i, receipt: p.Receipt, capture: p.Capture, token: p.Token}
	if err := a.end(ctx, i, &e); err != nil {
		return Completed{}, err
	}
	return e.completed(), nil
}

// Abort takes back the claim, and returns its hold and spends, in one batch.
func (a *actor) Abort(ctx context.Context, p AbortParams) (AbortResult, error) {
	i, err := a.Operations.Intent(ctx, a.id.Scope, a.id.Owner, p.ID)
	if err != nil {
		return AbortResult{}, err
	}
	e := withdrawal{actor: a, intent: i, params: operation.DropParams{Token: p.Token, Reason: p.Reason}}
	if err := a.end(ctx, i, &e); err != nil {
		return AbortResult{}, err
	}
	return AbortResult{Unsettled: e.done.Unsettled, Repeated: e.done.Repeated}, nil
}

// ending is a step that ends an operation and settles its money in the same batch.
type ending interface {
	// money makes the parts that settle what the intent holds and spent.
	money(ctx context.Context) ([]*budget.Part, error)
	// anchor makes the batch's first op, which ends the operation; alone, if the money is left as it is.
	anchor(ctx context.Context, parts []*budget.Part, alone bool) ([]state.Op, error)
	// keep says whether the batch keeps its outcome.
	keep() bool
	// read takes the answer from the outcome. It reports false without an error if the anchor would have held.
	read(out *state.Outcome) (held bool, err error)
}

// moneyError is a reason for which money cannot be settled.
type moneyError struct{ error }

func (e moneyError) Unwrap() error { return e.error }

// end runs a step that ends an operation. Recording never depends on money: if that cannot be settled, the step is taken
// without it. What stays behind in the budgets then counts as used.
func (a *actor) end(ctx context.Context, i *operation.Intent, e ending) error {
	for n := 1; ; n++ {
		err := a.endWith(ctx, i, e, false)
		var money moneyError
		if !errors.As(err, &money) {
			return err
		}
		if n < tries && budget.Again(err) {
			continue
		}
		a.log.Warn("an operation ends without its money, which stays as it is", "error", money.error)
		return a.endWith(ctx, i, e, true)
	}
}

// endWith makes one attempt.
func (a *actor) endWith(ctx context.Context, i *operation.Intent, e ending, alone bool) error {
	var parts []*budget.Part
	if i.Pending() && !alone {
		var err error
		if parts, err = e.money(ctx); err != nil {
			return ofMoney(err)
		}
	}
	ops, err := e.anchor(ctx, parts, alone)
	if err != nil {
		return err
	}
	at := make([]int, len(parts))
	for n, part := range parts {
		at[n] = len(ops)
		ops = append(ops, part.Ops...)
	}
	out, err := a.store.Do(ctx, &state.Batch{Scope: a.id.Scope, Ops: ops, Keep: e.keep()})
	if err != nil {
		return ofMoney(err)
	}
	if held, err := e.read(&out); held || err != nil {
		return err
	}
	r := refusals{out: &out}
	if err := r.whole(state.Recovering, state.Stale); err != nil {
		return err
	}
	for n, part := range parts {
		if err := read(part, &out, at[n]); err != nil {
			return moneyError{err}
		}
	}
	return r.first()
}

// ofMoney marks an error that damage of something else than the operation is the reason of.
func ofMoney(err error) error {
	var unreadable *state.RecordError
	if errors.As(err, &unreadable) && (unreadable.Key.Kind == state.KindHold || unreadable.Key.Kind == state.KindBudget) {
		return moneyError{err}
	}
	return err
}

// settlement turns an intent into a receipt and captures its hold.
type settlement struct {
	*actor
	intent     *operation.Intent
	receipt    operation.Receipt
	capture    *[]Entry
	token      Token
	resolution *operation.Resolution

	over []Entry
	part *operation.SettlePart
	done operation.Completed
}

func (s *settlement) money(ctx context.Context) ([]*budget.Part, error) {
	hold := s.intent.Hold()
	if hold.ID == "" {
		if s.capture != nil && len(*s.capture) > 0 {
			return nil, invalidf("the operation has no hold to capture of")
		}
		return nil, nil
	}
	part, err := s.Budgets.SettleHold(ctx, s.id.Scope, budget.SettleParams{HoldID: hold.ID, Token: hold.Token, Capture: s.capture})
	if err != nil {
		return nil, err
	}
	return []*budget.Part{part}, nil
}

func (s *settlement) anchor(ctx context.Context, parts []*budget.Part, alone bool) (ops []state.Op, err error) {
	now, err := s.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	s.over = nil
	for _, part := range parts {
		s.over = append(s.over, part.Over...)
	}
	s.part, err = s.Operations.Settle(s.intent, operation.SettleParams{
		Now: now, Token: s.token, Receipt: s.receipt, Capture: asked(s.capture), Over: amounts(s.over), Unsettled: alone, Resolution: s.resolution,
	})
	if err != nil {
		return nil, err
	}
	return s.part.Ops, nil
}

func (s *settlement) keep() bool { return len(s.over) > 0 }

func (s *settlement) read(out *state.Outcome) (held bool, err error) {
	s.done, held, err = s.part.Read(out)
	return held, err
}

func (s *settlement) completed() Completed {
	return Completed{
		ReceiptExpiresAt: s.done.ReceiptExpiresAt, Uncaptured: entries(s.done.Uncaptured), Unsettled: s.done.Unsettled,
		NotRetained: s.done.NotRetained, Repeated: s.done.Repeated,
	}
}

// withdrawal takes an intent back, and returns its hold and spends.
type withdrawal struct {
	*actor
	intent *operation.Intent
	params operation.DropParams

	part *operation.DropPart
	done operation.Dropped
}

func (w *withdrawal) money(ctx context.Context) ([]*budget.Part, error) {
	var parts []*budget.Part
	if hold := w.intent.Hold(); hold.ID != "" {
		part, err := w.Budgets.VoidHold(ctx, w.id.Scope, budget.SettleParams{HoldID: hold.ID, Token: hold.Token})
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	kept, spent, err := w.intent.Spends()
	if err != nil || !spent {
		return parts, err
	}
	return append(parts, w.Budgets.Return(w.id.Scope, kept)), nil
}

func (w *withdrawal) anchor(_ context.Context, _ []*budget.Part, alone bool) (ops []state.Op, err error) {
	w.params.Unsettled = alone
	if w.part, err = w.Operations.Drop(w.intent, w.params); err != nil {
		return nil, err
	}
	return w.part.Ops, nil
}

func (w *withdrawal) keep() bool { return false }

func (w *withdrawal) read(out *state.Outcome) (held bool, err error) {
	w.done, held, err = w.part.Read(out)
	return held, err
}

// asked and amounts name entries as package operation does, which knows no budgets.
func asked(capture *[]Entry) *[]operation.Amount {
	if capture == nil {
		return nil
	}
	list := amounts(*capture)
	return &list
}

func amounts(list []Entry) []operation.Amount {
	named := make([]operation.Amount, len(list))
	for i, e := range list {
		named[i] = operation.Amount(e)
	}
	return named
}

func entries(list []operation.Amount) []Entry {
	var named []Entry
	for _, a := range list {
		named = append(named, Entry(a))
	}
	return named
}
