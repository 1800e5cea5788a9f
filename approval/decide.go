package approval

import (
	"context"
	"time"

	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

// DecideParams names a request and who decides it.
type DecideParams struct {
	Scope string
	Owner string // whose request it must be, "" for everybody's
	ID    string
	By    string // recorded with the decision
	Note  string // why; at most 1024 bytes; "" for none
}

// Decided is a request that is decided.
type Decided struct {
	Request
	Repeated bool // it was decided like this before
}

// Permit is a permit minted for a grant.
type Permit struct {
	Wire    []byte    // as its caller will get it
	Expires time.Time // when it can no longer be used
	// Checks are ops that must hold in the step that grants; Refusal says what stands against the permit, nil for nothing,
	// with the number of the first of them.
	Checks  []state.Op
	Refusal func(out *state.Outcome, first int) error
}

// Grant decides for a pending request, together with the permit that mint gives for its call. Of any number of decisions,
// in any number of processes, one is taken: the same again is Repeated, with the permit that was minted first; the other
// one is a [*DecidedError]. A request that nobody has decided in time is [ErrExpired], one that is not there [ErrNotFound].
// In a scope in quarantine nothing is decided ([state.ErrRecovering]): a decision may have been lost.
func (a *Approvals) Grant(ctx context.Context, p DecideParams, mint func(Call) (*Permit, error)) (Decided, error) {
	return a.decide(ctx, &p, Granted, mint)
}

// Deny decides against a pending request: the call is denied for a day. As [Approvals.Grant].
func (a *Approvals) Deny(ctx context.Context, p DecideParams) (Decided, error) {
	return a.decide(ctx, &p, Denied, nil)
}

func (a *Approvals) decide(ctx context.Context, p *DecideParams, to State, mint func(Call) (*Permit, error)) (Decided, error) {
	key, err := p.check()
	if err != nil {
		return Decided{}, err
	}
	for range tries {
		found, r, err := a.find(ctx, p.Scope, p.Owner, key)
		switch {
		case err != nil:
			return Decided{}, err
		case found.State == to:
			return Decided{Request: *found, Repeated: true}, nil
		case found.State == Expired:
			return Decided{}, ErrExpired
		case found.State != Pending:
			return Decided{}, &DecidedError{State: found.State}
		}
		d, err := a.step(ctx, p, to, found, r, mint)
		if err != nil {
			return Decided{}, err
		}
		out, err := a.store.Do(ctx, &state.Batch{Scope: p.Scope, Ops: d.ops})
		if err != nil {
			return Decided{}, failed(err)
		}
		if out.Applied || out.Repeated {
			return Decided{Request: d.request}, nil
		}
		if err := d.refused(&out); err != nil {
			return Decided{}, err
		}
	}
	return Decided{}, contended()
}

func (p *DecideParams) check() (state.Key, error) {
	if err := checkScope(p.Scope); err != nil {
		return state.Key{}, err
	}
	if err := state.CheckName(p.By); err != nil {
		return state.Key{}, invalidf("who decides: %v", err)
	}
	if err := checkNote(p.Note); err != nil {
		return state.Key{}, err
	}
	return keyOf(p.Scope, p.ID)
}

// find reads a request, durably. Another owner's is not there.
func (a *Approvals) find(ctx context.Context, scope, owner string, key state.Key) (*Request, *state.Record, error) {
	out, err := a.store.Do(ctx, &state.Batch{Scope: scope, Read: []state.Key{key}})
	if err != nil {
		return nil, nil, failed(err)
	}
	if !out.Applied {
		return nil, nil, refused(&out)
	}
	r := out.Records[0]
	if r != nil && r.Tomb {
		if r, err = a.over(ctx, key, r.Version); err != nil {
			return nil, nil, err
		}
	}
	if r == nil || r.State == state.Void || owner != "" && r.Owner != owner {
		return nil, nil, ErrNotFound
	}
	q, _, err := request(key, r, out.Now)
	return q, r, err
}

// over reads what a step no longer shows of a decided request whose time is over. Nothing but that it is over follows from
// it, so that a bare read will do; nil if it is gone.
func (a *Approvals) over(ctx context.Context, key state.Key, version state.Version) (*state.Record, error) {
	found, err := a.store.Read(ctx, key)
	if err != nil {
		return nil, failed(err)
	}
	if r := found[0]; r != nil && r.Version == version {
		return r, nil
	}
	return nil, nil
}

// deciding is one step that decides.
type deciding struct {
	ops     []state.Op
	permit  *Permit
	request Request
}

func (a *Approvals) step(ctx context.Context, p *DecideParams, to State, found *Request, r *state.Record, mint func(Call) (*Permit, error)) (*deciding, error) {
	now, err := a.store.Now(ctx)
	if err != nil {
		return nil, failed(err)
	}
	token, err := a.store.Token()
	if err != nil {
		return nil, failed(err)
	}
	expires, d := now+DeniedFor.Milliseconds(), &deciding{request: *found}
	decision := &decision{State: to, By: p.By, At: now, Note: p.Note}
	if mint != nil {
		if d.permit, err = mint(found.Call); err != nil {
			return nil, err
		}
		expires, decision.Permit = d.permit.Expires.UnixMilli(), d.permit.Wire
	}
	b := newBody(&found.Call, found.Arguments, found.AskedAt.UnixMilli())
	b.Decision = decision
	text, err := b.encode()
	if err != nil {
		return nil, err
	}
	key := state.Key{Scope: p.Scope, Kind: state.KindApproval, ID: rawID(p.ID)}
	d.ops = []state.Op{state.Settle{
		Key: key, Token: r.Token, NewToken: token, IfVersion: r.Version, Given: ids.Hash("counterfoil.approval-decision.v1", text), Body: text, Expires: expires,
	}}
	if d.permit != nil {
		d.ops = append(d.ops, d.permit.Checks...)
	}
	d.request.State, d.request.ExpiresAt = to, at(expires)
	d.request.DecidedBy, d.request.DecidedAt, d.request.Note = p.By, at(now), p.Note
	return d, nil
}

// refused names what stands against the decision; nil means that the request has changed, so that a further try can tell.
func (d *deciding) refused(out *state.Outcome) error {
	if first, ok := out.Refused(0); ok {
		switch first.Reason {
		case state.Expired:
			return ErrExpired
		case state.Changed, state.NotPending, state.NotHolder, state.Absent:
			return nil
		case state.Recovering:
			return refused(out)
		}
	}
	if d.permit != nil {
		if err := d.permit.Refusal(out, 1); err != nil {
			return err
		}
	}
	return refused(out)
}
