package operation

import (
	"context"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// Answer says what a claim allows. The zero Answer allows nothing.
type Answer string

// The answers that are no refusal.
const (
	// Execute: the caller holds the operation, and nobody else ever did since it was last free.
	Execute Answer = "execute"
	// Replay: it has happened; the receipt is the answer.
	Replay Answer = "replay"
)

// ClaimParams asks for an intent.
type ClaimParams struct {
	Scope       string
	Owner       string // from the caller's credential, never from its request
	Key         string // 1 to 256 bytes of UTF-8 without control characters
	Fingerprint state.Digest
	Lease       time.Duration // 1 s to 1 h; 0: 30 s
	Metadata    []byte        // a JSON object of at most 4 KiB, or nil
	Token       state.Token   // drawn before the first send; zero: drawn here
	Hold        Hold          // fenced by the same batch
	Spends      bool          // the same batch spends, and keeps its outcome
}

// Claimed is the answer to a claim that is no refusal.
type Claimed struct {
	Answer   Answer
	ID       string
	Key      string
	Repeated bool // this same token had claimed it before

	// With Execute:
	Token      state.Token
	Fence      uint64 // now in µs, or the key's last + 1 if that is greater
	LeaseUntil time.Time
	CreatedAt  time.Time
	HoldID     string
	Kept       state.Kept // the figures of the batch's Moves, if it spends

	// With Replay:
	Receipt     *Receipt
	CompletedAt time.Time
}

// ClaimPart is the part of a batch that claims an intent. It is the anchor: its op must be the first.
type ClaimPart struct {
	Ops []state.Op

	id, key     string
	token       state.Token
	fingerprint state.Digest
}

// RecordKey is the key of the operation's record.
func (p *ClaimPart) RecordKey() state.Key { return p.Ops[0].(state.Claim).Key } //nolint:forcetypeassert // made so by Claim.

// Claim makes the part of a batch that claims an intent if and only if no live operation has the owner's key.
func (o *Operations) Claim(ctx context.Context, p ClaimParams) (*ClaimPart, error) {
	if err := checkName("owner", p.Owner); err != nil {
		return nil, err
	}
	if err := checkName("key", p.Key); err != nil {
		return nil, err
	}
	if p.Fingerprint == (state.Digest{}) {
		return nil, invalidf("the fingerprint is missing")
	}
	lease, err := leaseOf(p.Lease)
	if err != nil {
		return nil, err
	}
	if err := checkMetadata(p.Metadata); err != nil {
		return nil, err
	}
	token, err := o.token(p.Token)
	if err != nil {
		return nil, err
	}
	now, err := o.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	id := ID(p.Owner, p.Key)
	key, err := recordKey(p.Scope, id)
	if err != nil {
		return nil, err
	}
	b := body{key: p.Key, metadata: p.Metadata, hold: p.Hold, spends: p.Spends}
	claim := state.Claim{
		Key: key, Owner: p.Owner, Token: token, Digest: p.Fingerprint, State: state.Pending, Body: b.encode(), Lease: now + lease,
	}
	return &ClaimPart{Ops: []state.Op{claim}, id: id, key: p.Key, token: token, fingerprint: p.Fingerprint}, nil
}

// Live reports whether a live operation answers for the outcome of the part's batch, whatever else the batch was refused
// for. If so, Read gives that answer.
func (p *ClaimPart) Live(out *state.Outcome) bool {
	if out.Applied || out.Repeated {
		return true
	}
	r, refused := out.Refused(0)
	return refused && (r.Reason == state.Exists || r.Reason == state.Aborted)
}

// Read gives the answer from the outcome of the part's batch. It fails with [ErrInFlight], [ErrOutcomeUnknown],
// [ErrMismatch], [ErrKeyExpired], [ErrReceiptNotRetained] or [ErrAborted], which a live operation gives; with the shared
// refusals of package state; and with [state.ErrCorrupt]. The error is nil without an answer if the claim itself would
// have held: then another part of the batch refused.
func (p *ClaimPart) Read(out *state.Outcome) (Claimed, error) {
	switch {
	case out.Applied:
		return p.granted(out.Anchor)
	case out.Repeated:
		c, err := p.Answer(out.Anchor, out.Now)
		c.Repeated = err == nil
		return c, err
	}
	r, refused := out.Refused(0)
	switch {
	case !refused:
		return Claimed{}, nil
	case r.Reason == state.Exists:
		return p.Answer(r.Record, out.Now)
	case r.Reason == state.Aborted:
		return Claimed{}, ErrAborted
	}
	return Claimed{}, shared(r.Reason)
}

// Found reports whether a live operation has the key, in the outcome of a batch that reads the record alone. If so, Answer
// gives its answer.
func (p *ClaimPart) Found(out *state.Outcome) bool {
	return len(out.Records) == 1 && out.Records[0] != nil && out.Records[0].State != state.Void && !out.Records[0].Over(out.Now)
}

// Answer gives what a live record of the operation answers to the claim.
func (p *ClaimPart) Answer(r *state.Record, now int64) (Claimed, error) {
	switch {
	case r.State == state.Settled && !r.Retained(now):
		return Claimed{}, ErrKeyExpired
	case r.Digest != p.fingerprint:
		return Claimed{}, ErrMismatch
	case r.State == state.Settled:
		return p.replay(r)
	case r.Lease <= now:
		return Claimed{}, ErrOutcomeUnknown
	case r.Token == p.token:
		return p.granted(r)
	}
	return Claimed{}, inFlight(r, now)
}

func (p *ClaimPart) granted(r *state.Record) (Claimed, error) {
	b, err := decodeBody(r.Body)
	if err != nil {
		return Claimed{}, err
	}
	c := Claimed{
		Answer: Execute, ID: p.id, Key: p.key, Token: p.token, Fence: r.Fence, LeaseUntil: at(r.Lease), CreatedAt: at(r.Created), HoldID: b.hold.ID,
	}
	if b.spends {
		if c.Kept, err = state.DecodeResult(r.Result); err != nil {
			return Claimed{}, corrupt(err)
		}
	}
	return c, nil
}

func (p *ClaimPart) replay(r *state.Record) (Claimed, error) {
	b, err := decodeBody(r.Body)
	switch {
	case err != nil:
		return Claimed{}, err
	case b.notRetained != nil:
		return Claimed{}, &NotRetainedError{*b.notRetained}
	case b.receipt == nil:
		return Claimed{}, corrupt(errCutOff)
	}
	return Claimed{Answer: Replay, ID: p.id, Key: p.key, Receipt: b.receipt.clone(), CompletedAt: at(r.Updated)}, nil
}

// clone keeps a caller from changing the bytes of a record.
func (r *Receipt) clone() *Receipt {
	c := *r
	c.Body = slices.Clone(r.Body)
	return &c
}
