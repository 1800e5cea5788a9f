package operation

import (
	"context"
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/state"
)

// resolvedAs reports whether a record was resolved with that outcome.
func resolvedAs(r *state.Record, outcome Outcome) bool {
	if r == nil || len(r.Body) == 0 || r.State == state.Pending {
		return false
	}
	b, err := decodeBody(r.Body)
	return err == nil && b.resolved != nil && b.resolved.Outcome == outcome
}

// refusedResolution gives the error of a resolution: whoever holds the token, for an operator all that is finished is
// not pending.
func refusedResolution(r state.Refusal, now int64) error {
	if r.Reason == state.NotHolder || r.Reason == state.NotPending {
		if r.Record.State == state.Pending {
			return fmt.Errorf("operation: it was claimed anew meanwhile: %w", ErrInFlight)
		}
		return ErrNotPending
	}
	return refusalError(r, now)
}

// CheckResolution refuses a resolution that lacks what must be recorded.
func CheckResolution(r *Resolution) error {
	if r.Outcome != Happened && r.Outcome != DidNotHappen {
		return invalidf("the outcome is %q or %q", Happened, DidNotHappen)
	}
	if err := checkName("name of the operator", r.By); err != nil {
		return err
	}
	return checkText("note", r.Note, true)
}

// MendParams resolves an operation whose record is damaged.
type MendParams struct {
	Scope      string
	Owner      string // whose operation it is: the damaged record cannot tell
	ID         string
	Resolution Resolution
	Receipt    Receipt // with Happened
	// Fingerprint stands for the one that is lost; zero: every request under the key is a mismatch from now on.
	Fingerprint state.Digest
}

// ErrReadable means that the record is not damaged, or was mended meanwhile: resolve it as any other.
var ErrReadable = errors.New("operation: the record is not damaged")

// Mend overwrites a damaged record by what an operator found out. What the intent held or spent cannot be told from a
// damaged record: it stays as it is, on the side of counting too much. It fails with [ErrReadable] if the record is not
// damaged.
func (o *Operations) Mend(ctx context.Context, p MendParams) error {
	if err := p.validate(); err != nil {
		return err
	}
	key, err := recordKey(p.Scope, p.ID)
	if err != nil {
		return err
	}
	entries, _, err := o.store.Scan(ctx, p.Scope, state.KindOperation, key.ID, "", 1)
	if err != nil {
		return fmt.Errorf("operation: %w", err)
	}
	switch {
	case len(entries) == 0 || entries[0].Key != key:
		return ErrNotFound
	case entries[0].Err == nil:
		return ErrReadable
	case !errors.Is(entries[0].Err, state.ErrCorrupt):
		return fmt.Errorf("operation: %w", entries[0].Err)
	}
	return o.replace(ctx, p, key, entries[0].Version)
}

func (p *MendParams) validate() error {
	if err := checkName("owner", p.Owner); err != nil {
		return err
	}
	if err := CheckResolution(&p.Resolution); err != nil {
		return err
	}
	return p.Receipt.validate()
}

func (o *Operations) replace(ctx context.Context, p MendParams, key state.Key, version state.Version) error {
	token, err := o.store.Token()
	if err != nil {
		return err
	}
	now, err := o.store.Now(ctx)
	if err != nil {
		return err
	}
	b := body{resolved: &p.Resolution, unsettled: true}
	op := state.Replace{Key: key, Version: version, State: state.Void, Owner: p.Owner, Token: token, Digest: p.Fingerprint}
	if p.Resolution.Outcome == Happened {
		op.State, b.receipt = state.Settled, &p.Receipt
		if o.tooLarge(&p.Receipt) {
			b.receipt, b.notRetained = nil, notRetained(&p.Receipt)
		}
		op.Given = given(Happened, &p.Receipt, nil)
		op.Retain, op.Expires = o.keep(now)
	}
	op.Body = b.encode()
	out, err := o.do(ctx, p.Scope, []state.Op{op})
	switch {
	case err != nil:
		return err
	case out.Applied:
		o.log.Warn("a damaged operation was resolved", "outcome", p.Resolution.Outcome, "by", p.Resolution.By)
		return nil
	}
	switch r := out.Refusals[0]; r.Reason {
	case state.Readable:
		return ErrReadable
	case state.Changed:
		return fmt.Errorf("operation: the damaged record changed meanwhile; try again: %w", state.ErrUnavailable)
	default:
		return shared(r.Reason)
	}
}
