package budget

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

// spendKeep is how long a spend can be refunded, and its request id repeated, in ms.
const spendKeep = int64(Memory / time.Millisecond)

// SpendParams takes amounts at once. The same Owner, RequestID and Entries again are the same spend.
type SpendParams struct {
	Scope     string
	Owner     string
	RequestID string // 1 to 256 bytes of UTF-8 without control characters
	Entries   []Entry
	// Token recognises this very call if it is sent again; zero: one is drawn.
	Token state.Token
}

// Spent says that amounts are taken.
type Spent struct {
	ID      string    // 64 hex digits, from Owner and RequestID
	Budgets []Figures // of every budget spent from, ancestors too, the deepest first
	// Remaining is the least that remains in any of them, those without a limit left out; Limited is false if all are.
	Remaining uint64
	Limited   bool
	Repeated  bool // the answer is the first one
}

// Spend takes every entry from its budget and all ancestors, or nothing at all. Its refusals are [ErrBudgetUnknown],
// [ErrExceeded] with all figures, [ErrRequestIDReused] and [ErrRefunded].
func (b *Budgets) Spend(ctx context.Context, p SpendParams) (Spent, error) {
	if err := checkNames(p.Owner, p.RequestID); err != nil {
		return Spent{}, err
	}
	if err := checkEntries(p.Entries); err != nil {
		return Spent{}, err
	}
	token, err := b.token(p.Token)
	if err != nil {
		return Spent{}, err
	}
	claim := state.Claim{
		Key: spendKey(p.Scope, ids.Spend(p.Owner, p.RequestID)), Owner: p.Owner, Token: token,
		Digest: digest("spend", p.Entries, state.Digest{}), State: state.Pending,
	}
	return again(func() (Spent, error) { return b.spend(ctx, p, claim) })
}

func (b *Budgets) spend(ctx context.Context, p SpendParams, claim state.Claim) (Spent, error) {
	now, err := b.store.Now(ctx)
	if err != nil {
		return Spent{}, err
	}
	part, err := b.spending(ctx, p.Scope, p.Entries)
	if err != nil {
		return Spent{}, err
	}
	claim.Expires = now + spendKeep
	ops := slices.Concat([]state.Op{claim}, part.Ops)
	out, err := b.store.Do(ctx, &state.Batch{Scope: p.Scope, Ops: ops, Keep: true})
	if err != nil {
		return Spent{}, err
	}
	if rec := earlier(&out); rec != nil {
		return spentBefore(claim, rec)
	}
	if err := claimRefused(&out, part); err != nil {
		return Spent{}, err
	}
	res, err := part.Read(&out, 1)
	if err != nil {
		return Spent{}, err
	}
	return spent(claim.Key.ID, res.Budgets), nil
}

func spent(id string, budgets []Figures) Spent {
	s := Spent{ID: id, Budgets: budgets}
	s.Remaining, s.Limited = Smallest(budgets)
	return s
}

// spentBefore answers a request that was granted before, from the record of it.
func spentBefore(claim state.Claim, rec *state.Record) (Spent, error) {
	switch {
	case rec.Digest != claim.Digest:
		return Spent{}, ErrRequestIDReused
	case rec.State != state.Pending:
		return Spent{}, ErrRefunded
	}
	kept, err := keptOf(claim.Key, rec)
	if err != nil {
		return Spent{}, err
	}
	s := spent(claim.Key.ID, Latest(kept.Figures))
	s.Repeated = true
	return s, nil
}

// SpendMoves is the part of a batch that takes entries from their budgets and all ancestors. Its refusals are
// [ErrBudgetUnknown] and [ErrExceeded].
func (b *Budgets) SpendMoves(ctx context.Context, scope string, entries []Entry) (*Part, error) {
	if err := checkEntries(entries); err != nil {
		return nil, err
	}
	return b.spending(ctx, scope, entries)
}

// spending is SpendMoves of entries that were checked.
func (b *Budgets) spending(ctx context.Context, scope string, entries []Entry) (*Part, error) {
	p, err := b.spread(ctx, scope, entries)
	switch {
	case errors.Is(err, ErrBudgetUnknown):
		return refuse(state.BudgetGone, err), nil
	case err != nil:
		return nil, err
	}
	return b.taking(scope, p, state.Bucket{Kind: state.BucketSpent}), nil
}

// taking is the part that puts new amounts into one sort of bucket.
func (b *Budgets) taking(scope string, p plan, into state.Bucket) *Part {
	part := &Part{Ops: make([]state.Op, len(p))}
	for i, s := range p {
		part.Ops[i] = state.Move{
			Key: budgetKey(scope, s.name), Generation: s.generation, Window: state.CurrentWindow, Give: into, GiveAmount: s.amount,
		}
	}
	part.read = func(out *state.Outcome, at int) (Result, error) {
		if names := gone(out, at, part.Ops); names != nil {
			b.forget(scope, p)
			return Result{}, &UnknownError{Budgets: names, stale: true}
		}
		if err := exceeded(out, at, len(part.Ops)); err != nil {
			return Result{}, err
		}
		return Result{Budgets: moved(out, at, len(part.Ops))}, nil
	}
	return part
}

// Return is the part of a batch that gives back what the spends of an earlier batch took, from the outcome that it kept. A
// budget that was closed, and one whose window is over, is passed over.
func (b *Budgets) Return(scope string, kept state.Kept) *Part {
	part := &Part{}
	for i, f := range kept.Figures {
		if f.Amount == 0 || kept.Skipped[i] {
			continue
		}
		part.Ops = append(part.Ops, state.Move{
			Key: budgetKey(scope, f.Name), Generation: f.Generation, Window: f.WindowAt,
			Take: state.Bucket{Kind: state.BucketSpent}, TakeAmount: f.Amount, IfGone: state.GoneSkip, IfClosed: state.GoneSkip,
		})
	}
	part.read = func(out *state.Outcome, at int) (Result, error) {
		return Result{Budgets: moved(out, at, len(part.Ops))}, nil
	}
	return part
}

// RefundParams names a spend of its owner.
type RefundParams struct {
	Scope   string
	Owner   string
	SpendID string
}

// Refunded says that a spend was given back.
type Refunded struct {
	Budgets  []Figures // of the budgets that it was given back to; none if Repeated
	Repeated bool      // it had been given back before
}

// Refund gives back exactly what a spend took, once. Its refusals are [ErrSpendUnknown] and [ErrSpendExpired].
func (b *Budgets) Refund(ctx context.Context, p RefundParams) (Refunded, error) {
	if err := checkName("owner", p.Owner); err != nil {
		return Refunded{}, err
	}
	key := spendKey(p.Scope, p.SpendID)
	rec, err := b.owned(ctx, key, p.Owner, ErrSpendUnknown)
	if err != nil {
		return Refunded{}, err
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return Refunded{}, err
	}
	kept, err := keptOf(key, rec)
	if err != nil {
		return Refunded{}, err
	}
	part := b.Return(p.Scope, kept)
	settle := state.Settle{Key: key, Token: rec.Token, Expires: now + spendKeep}
	out, err := b.store.Do(ctx, &state.Batch{Scope: p.Scope, Ops: append([]state.Op{settle}, part.Ops...)})
	if err != nil {
		return Refunded{}, err
	}
	if out.Repeated {
		return Refunded{Repeated: true}, nil
	}
	if r, ok := out.Refused(0); ok {
		return Refunded{}, spendRefused(&out, r)
	}
	if !out.Applied {
		return Refunded{}, unexpected(&out)
	}
	res, err := part.Read(&out, 1)
	return Refunded{Budgets: res.Budgets}, err
}

func spendRefused(out *state.Outcome, r state.Refusal) error {
	switch r.Reason {
	case state.Expired:
		return ErrSpendExpired
	case state.Absent, state.NotHolder:
		// Swept meanwhile, or spent anew after its end.
		return ErrSpendUnknown
	}
	if err := refusedWhole(out, state.Recovering, state.Stale); err != nil {
		return err
	}
	return unexpected(out)
}

func spendKey(scope, id string) state.Key {
	return state.Key{Scope: scope, Kind: state.KindSpend, ID: id}
}
