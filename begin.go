package counterfoil

import (
	"context"
	"errors"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// Begin claims the operation, uses the permit up, fences the hold and spends, in one batch.
func (a *actor) Begin(ctx context.Context, p BeginParams) (Begun, error) {
	token, err := a.token(p.Token)
	if err != nil {
		return Begun{}, err
	}
	p.Token = token
	if err := distinct(p.Spend); err != nil {
		return Begun{}, err
	}
	entries, err := budget.Sum(p.Spend, a.id.Always)
	if err != nil {
		return Begun{}, err
	}
	return again(func() (Begun, error) {
		b := begin{actor: a, p: p, entries: entries}
		if err := b.gather(ctx); err != nil {
			return Begun{}, err
		}
		return b.send(ctx)
	})
}

// begin is one attempt at a begin: the parts of its batch, and what was found to stand against it before.
type begin struct {
	*actor
	p       BeginParams
	entries []Entry

	operation *operation.ClaimPart
	permit    *permit.Part
	hold      *budget.Part
	spend     *budget.Part
	// before is a refusal, or the damage of a record, that was found while the parts were made. It is carried into the
	// batch, so that an existing operation answers first.
	before error
}

// gather makes the parts. It fails if the request can never be accepted.
func (b *begin) gather(ctx context.Context) error {
	if b.before = b.gatherMoney(ctx); errors.Is(b.before, ErrInvalid) {
		return b.before
	}
	claim := operation.ClaimParams{
		Scope: b.id.Scope, Owner: b.id.Owner, Key: b.p.Key, Fingerprint: b.p.Fingerprint, Lease: b.p.Lease,
		Metadata: b.p.Metadata, Token: b.p.Token, Spends: b.spend != nil,
	}
	if b.hold != nil {
		claim.Hold = operation.Hold{ID: b.hold.HoldID, Token: b.hold.Token}
	}
	var err error
	b.operation, err = b.Operations.Claim(ctx, claim)
	return err
}

// gatherMoney makes the parts of permit, hold and spends, up to the first that cannot be had.
func (b *begin) gatherMoney(ctx context.Context) error {
	if err := b.gatherPermit(ctx); err != nil {
		return err
	}
	if err := b.gatherHold(ctx); err != nil {
		return err
	}
	if len(b.entries) == 0 {
		return nil
	}
	var err error
	b.spend, err = b.Budgets.SpendMoves(ctx, b.id.Scope, b.entries)
	return err
}

func (b *begin) gatherPermit(ctx context.Context) error {
	if b.p.Permit == nil {
		return nil
	}
	var err error
	b.permit, err = b.Permits.Use(ctx, permit.UseParams{
		Scope: b.id.Scope, Owner: b.id.Owner, Permit: b.p.Permit, Expected: b.p.Expected, Token: b.p.Token,
		For: "operation " + ids.Operation(b.id.Owner, b.p.Key),
	})
	return err
}

// gatherHold fences the hold that the permit carries, or the owner's own. From then on the operation's token settles it.
func (b *begin) gatherHold(ctx context.Context) error {
	fence := budget.FenceParams{HoldID: b.p.HoldID, Owner: b.id.Owner, NewToken: b.p.Token}
	if b.carries() {
		if fence.HoldID != "" {
			return invalidf("the permit carries a hold, and another one is named")
		}
		fence.HoldID, fence.Token = b.permit.Hold.ID, b.permit.Hold.Token
	}
	if fence.HoldID == "" {
		return nil
	}
	var err error
	b.hold, err = b.Budgets.Fence(ctx, b.id.Scope, fence)
	return err
}

// carries reports whether the permit carries a hold.
func (b *begin) carries() bool { return b.permit != nil && b.permit.Hold != nil }

// batch puts the parts together, and tells refusals where each begins.
func (b *begin) batch() (*state.Batch, refusals) {
	r := refusals{permit: b.permit, hold: b.hold, ofPermit: b.carries(), before: b.before, spend: b.spend}
	ops := append(make([]state.Op, 0, 16), b.operation.Ops...)
	if b.permit != nil {
		r.permitAt = len(ops)
		ops = append(ops, b.permit.Ops...)
	}
	if b.hold != nil {
		r.holdAt = len(ops)
		ops = append(ops, b.hold.Ops...)
	}
	if b.spend != nil {
		r.spendAt = len(ops)
		ops = append(ops, b.spend.Ops...)
	}
	if b.before != nil {
		ops = append(ops, state.Refuse{Reason: refusedBefore})
	}
	return &state.Batch{Scope: b.id.Scope, Ops: ops, Keep: b.spend != nil}, r
}

// refusedBefore stands in a batch for a refusal that was found before it.
const refusedBefore state.Reason = "refused_before"

func (b *begin) send(ctx context.Context) (Begun, error) {
	batch, r := b.batch()
	out, err := b.store.Do(ctx, batch)
	if err != nil {
		return b.failed(ctx, err)
	}
	if !b.operation.Live(&out) {
		r.out = &out
		return Begun{}, r.first()
	}
	claimed, err := b.operation.Read(&out)
	if err != nil {
		return Begun{}, err
	}
	return begun(claimed), nil
}

// failed answers a batch that got no outcome. If a damaged record of another part was the reason, a live operation still
// answers alone.
func (b *begin) failed(ctx context.Context, err error) (Begun, error) {
	var unreadable *state.RecordError
	key := b.operation.RecordKey()
	if !errors.As(err, &unreadable) || unreadable.Key == key {
		return Begun{}, err
	}
	out, probed := b.store.Do(ctx, &state.Batch{Scope: b.id.Scope, Read: []state.Key{key}})
	if probed != nil || !b.operation.Found(&out) {
		return Begun{}, err
	}
	claimed, err := b.operation.Answer(out.Records[0], out.Now)
	if err != nil {
		return Begun{}, err
	}
	return begun(claimed), nil
}

func begun(c operation.Claimed) Begun {
	return Begun{
		State: State(c.Answer), ID: c.ID, Key: c.Key, Repeated: c.Repeated,
		Token: c.Token, Fence: c.Fence, LeaseUntil: c.LeaseUntil, CreatedAt: c.CreatedAt, HoldID: c.HoldID, Budgets: spentFrom(c.Kept),
		Receipt: c.Receipt, CompletedAt: c.CompletedAt,
	}
}

// spentFrom lists the budgets that a begin spent from. Fencing a hold moves amounts too, but adds none.
func spentFrom(kept state.Kept) []Figures {
	var list []Figures
	for _, f := range kept.Figures {
		if f.Amount > 0 {
			list = append(list, f)
		}
	}
	return list
}
