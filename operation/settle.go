package operation

import (
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// SettleParams turns an intent into a receipt.
type SettleParams struct {
	Now     int64 // of the store, ms; retention is counted from it
	Token   state.Token
	Receipt Receipt
	Capture *[]Amount // what the caller asked to charge of the hold; part of what tells a repetition
	Over    []Amount  // what of it lies above the hold: what the batch's Extras are
	// Keep says that the batch has Extras and keeps its outcome.
	Keep bool
	// Unsettled says that the batch does not settle the intent's hold.
	Unsettled bool
	// Resolution is set if an operator settles it, whose token is not asked for. Its Outcome is Happened.
	Resolution *Resolution
}

// Completed says that a receipt is durable.
type Completed struct {
	ReceiptExpiresAt time.Time
	NotRetained      *NotRetained
	Uncaptured       []Amount
	Unsettled        bool
	Repeated         bool
}

// SettlePart is the part of a batch that settles an operation. It is the anchor: its op must be the first.
type SettlePart struct {
	Ops []state.Op

	operations *Operations
	resolution *Resolution
}

// Settle makes the part of a batch that turns the intent into a receipt if and only if it is pending and the token is its
// holder's; by a resolution, if and only if it is pending and its lease is over.
func (o *Operations) Settle(i *Intent, p SettleParams) (*SettlePart, error) {
	if err := p.Receipt.validate(); err != nil {
		return nil, err
	}
	if i.finished() {
		return nil, errTomb
	}
	b := body{
		key: i.body.key, metadata: i.body.metadata, hold: i.body.hold, over: p.Over,
		unsettled: p.Unsettled, resolved: p.Resolution, receipt: &p.Receipt,
	}
	if o.tooLarge(&p.Receipt) {
		b.receipt, b.notRetained = nil, notRetained(&p.Receipt)
	}
	op := state.Settle{
		Key: i.key, Token: p.Token, Given: given(Happened, &p.Receipt, p.Capture), Body: b.encode(), Short: b.short(),
	}
	op.Retain, op.Expires = o.keep(p.Now)
	var err error
	if p.Resolution != nil {
		op.Token, op.NewToken, op.IfLeaseOver, err = o.resolving(i)
	}
	return &SettlePart{Ops: []state.Op{op}, operations: o, resolution: p.Resolution}, err
}

// tooLarge reports whether only digest and length of a receipt are kept.
func (o *Operations) tooLarge(r *Receipt) bool {
	size := len(r.Body)
	for name, values := range r.Headers {
		size += len(name)
		for _, v := range values {
			size += len(v)
		}
	}
	return size > o.maxSize
}

// resolving gives the tokens by which an operator takes over an intent.
func (o *Operations) resolving(i *Intent) (old, fresh state.Token, ifLeaseOver bool, err error) {
	fresh, err = o.store.Token()
	return i.rec.Token, fresh, true, err
}

// Read gives the answer from the outcome of the part's batch. It fails with [ErrNotHolder], [ErrNotPending],
// [ErrAborted], [ErrNotFound], [ErrInFlight] (to a resolution), [ErrKeyExpired] and the shared refusals of package state.
// The error is nil without an answer if the part itself would have held: then another part of the batch refused.
func (p *SettlePart) Read(out *state.Outcome) (done Completed, held bool, err error) {
	if out.Applied || out.Repeated {
		done, err = completed(out.Anchor)
		done.Repeated = out.Repeated
		return done, err == nil, err
	}
	r, refused := out.Refused(0)
	switch {
	case !refused:
		return Completed{}, false, nil
	case p.resolution != nil:
		if !resolvedAs(r.Record, Happened) {
			return Completed{}, false, refusedResolution(r, out.Now)
		}
		done, err = completed(r.Record)
		done.Repeated = true
		return done, err == nil, err
	}
	p.operations.noteLate(r)
	return Completed{}, false, refusalError(r, out.Now)
}

// completed reads what a settled record says about its completion. A record past its retention has no body to tell more.
func completed(r *state.Record) (Completed, error) {
	done := Completed{ReceiptExpiresAt: at(retainUntil(r))}
	if len(r.Body) == 0 {
		return done, nil
	}
	b, err := decodeBody(r.Body)
	if err != nil {
		return Completed{}, err
	}
	done.NotRetained, done.Unsettled = b.notRetained, b.unsettled
	if len(b.over) > 0 {
		kept, err := state.DecodeResult(r.Result)
		if err != nil {
			return Completed{}, corrupt(err)
		}
		if !kept.Extra {
			done.Uncaptured = b.over
		}
	}
	return done, nil
}

// retainUntil is when a settled record stops giving its receipt.
func retainUntil(r *state.Record) int64 {
	if r.Retain != 0 {
		return r.Retain
	}
	return r.Expires
}

// noteLate counts a receipt that came from one that is no longer the holder: after a resolution that it did not happen,
// it did.
func (o *Operations) noteLate(r state.Refusal) {
	if r.Reason != state.NotHolder || resolvedAs(r.Record, Happened) {
		return
	}
	o.late.Add(1)
	o.log.Warn("a receipt came from one that no longer holds the operation: it may have happened although it was resolved as not having happened",
		"created", at(r.Record.Created), "state", r.Record.State.String(), "did_not_happen", resolvedAs(r.Record, DidNotHappen))
}
