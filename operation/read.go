package operation

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// GetParams names an operation.
type GetParams struct {
	Scope string
	Owner string // "" for any owner's
	ID    string
}

// Get tells what is durably known about an operation. It fails with [ErrNotFound], and with [state.ErrCorrupt] if the
// record is damaged.
func (o *Operations) Get(ctx context.Context, p GetParams) (Operation, error) {
	key, err := recordKey(p.Scope, p.ID)
	if err != nil {
		return Operation{}, err
	}
	out, err := o.store.Do(ctx, &state.Batch{Scope: p.Scope, Read: []state.Key{key}})
	switch {
	case err != nil:
		return Operation{}, fmt.Errorf("operation: %w", err)
	case len(out.Refusals) > 0:
		return Operation{}, shared(out.Refusals[0].Reason)
	case !owned(out.Records[0], p.Owner) || out.Records[0].Over(out.Now):
		return Operation{}, ErrNotFound
	}
	return describe(key, out.Records[0], out.Now)
}

// describe tells what a record says at now.
func describe(key state.Key, r *state.Record, now int64) (Operation, error) {
	op := Operation{
		ID: hex.EncodeToString([]byte(key.ID)), Owner: r.Owner, State: stateOf(r, now), Fence: r.Fence, CreatedAt: at(r.Created),
	}
	switch op.State {
	case InFlight, OutcomeUnknown:
		op.LeaseUntil = at(r.Lease)
	case Settled:
		op.CompletedAt, op.RetainUntil = at(r.Updated), at(retainUntil(r))
	case Expired, Aborted:
	}
	if len(r.Body) == 0 {
		return op, nil
	}
	b, err := decodeBody(r.Body)
	if err != nil {
		return Operation{}, err
	}
	op.Key, op.HoldID, op.Metadata = b.key, b.hold.ID, slices.Clone(b.metadata)
	op.NotRetained, op.Unsettled = b.notRetained, b.unsettled
	if b.receipt != nil {
		op.Receipt = b.receipt.clone()
	}
	if b.resolved != nil {
		resolved := *b.resolved
		resolved.At = at(r.Updated)
		op.Resolved = &resolved
	}
	return op, nil
}

func stateOf(r *state.Record, now int64) State {
	switch {
	case r.State == state.Void:
		return Aborted
	case r.State == state.Settled && r.Retained(now):
		return Settled
	case r.State == state.Settled:
		return Expired
	case r.Lease > now:
		return InFlight
	}
	return OutcomeUnknown
}

// Bounds of a list.
const (
	DefaultLimit = 50
	MaxLimit     = 500
	// maxScanned bounds the records that one call looks at; a page may be short, or empty, although there are more.
	maxScanned = 5_000
)

// ListParams asks for a page of operations.
type ListParams struct {
	Scope  string
	Owner  string // "" for every owner's
	State  State  // "" for every state
	Cursor string // of the page before, "" for the first
	Limit  int    // 1 to 500; 0: 50
}

// Page is a part of a list. There are more if and only if Next is not "", even if the page is short.
type Page struct {
	Operations []Operation // without receipts
	Next       string
	// Damaged lists the ids of operations whose records cannot be read: which state they are in nobody can tell.
	Damaged []string
}

// List lists operations by id; those whose outcome is unknown by the end of their lease, the longest over first. It shows
// what was stored at some moment during the call.
func (o *Operations) List(ctx context.Context, p ListParams) (Page, error) {
	if p.Limit == 0 {
		p.Limit = DefaultLimit
	}
	if p.Limit < 0 || p.Limit > MaxLimit {
		return Page{}, invalidf("a page has 1 to %d operations", MaxLimit)
	}
	switch p.State {
	case "", InFlight, OutcomeUnknown, Settled, Expired, Aborted:
	default:
		return Page{}, invalidf("there is no state of that name")
	}
	if p.Owner != "" {
		if err := checkName("owner", p.Owner); err != nil {
			return Page{}, err
		}
	}
	cursor, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil {
		return Page{}, invalidf("the cursor is not one that a list gave")
	}
	// A scope that does not exist is an error, not an empty list.
	out, err := o.store.Do(ctx, &state.Batch{Scope: p.Scope, Read: []state.Key{state.ScopeKey(p.Scope)}})
	if err != nil {
		return Page{}, fmt.Errorf("operation: %w", err)
	}
	return o.list(ctx, p, string(cursor), out.Now)
}

func (o *Operations) list(ctx context.Context, p ListParams, cursor string, now int64) (Page, error) {
	var page Page
	for scanned := 0; scanned < maxScanned && len(page.Operations) < p.Limit; {
		entries, next, err := o.entries(ctx, p, cursor, p.Limit-len(page.Operations), now)
		if err != nil {
			return Page{}, fmt.Errorf("operation: %w", err)
		}
		for _, e := range entries {
			page.add(e, p, now)
		}
		scanned += len(entries)
		if cursor = next; cursor == "" {
			break
		}
	}
	page.Next = base64.RawURLEncoding.EncodeToString([]byte(cursor))
	return page, nil
}

func (o *Operations) entries(ctx context.Context, p ListParams, cursor string, limit int, now int64) ([]store.Entry, string, error) {
	if p.State == OutcomeUnknown {
		return o.store.Leases(ctx, p.Scope, state.KindOperation, now, cursor, limit)
	}
	return o.store.Scan(ctx, p.Scope, state.KindOperation, "", cursor, limit)
}

// add puts an entry on the page if it is asked for.
func (page *Page) add(e store.Entry, p ListParams, now int64) {
	op, err := Operation{}, e.Err
	if err == nil {
		if !owned(e.Record, p.Owner) || e.Record.Over(now) || p.State != "" && stateOf(e.Record, now) != p.State {
			return
		}
		op, err = describe(e.Key, e.Record, now)
	}
	switch {
	case err == nil:
		op.Receipt = nil
		page.Operations = append(page.Operations, op)
	case p.Owner == "":
		page.Damaged = append(page.Damaged, hex.EncodeToString([]byte(e.Key.ID)))
	}
}
