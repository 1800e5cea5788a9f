package api

import (
	"encoding/json"
	"strings"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

// MaxMetadata is how many bytes of JSON an operation's metadata may have.
const MaxMetadata = 4 << 10

// BeginRequest claims an operation: POST /v1/operations. Exactly one of Fingerprint and Request is given; Permit and
// Expected are given both or neither. Besides key and fingerprint nothing tells one request from another.
type BeginRequest struct {
	Key         Name            `json:"key" doc:"The idempotency key, within its owner."`
	Fingerprint Digest          `json:"fingerprint,omitzero" doc:"SHA-256 of what is to be done; instead of request."`
	Request     json.RawMessage `json:"request,omitzero" doc:"What is to be done, any JSON; its fingerprint is the SHA-256 of its canonical form (RFC 8785)."`
	Lease       Seconds         `json:"lease_seconds,omitzero" minimum:"1" maximum:"3600" default:"30"`
	Permit      json.RawMessage `json:"permit,omitzero" doc:"A permit to use in the same step. Needs expected."`
	Expected    *Expected       `json:"expected,omitzero" doc:"The call that the permit must be bound to."`
	HoldID      Digest          `json:"hold_id,omitzero" doc:"A hold to take over in the same step. Also needs the role spend."`
	Spend       []Entry         `json:"spend,omitzero" maxItems:"16" doc:"Amounts to spend in the same step. Also needs the role spend."`
	Metadata    json.RawMessage `json:"metadata,omitzero" doc:"An object of at most 4 KiB, kept with the operation."`
	Token       Token           `json:"token,omitzero" doc:"Drawn at random before the first send; the same again for a repetition."`
}

// Check refuses members that do not go together, and metadata that is no object or too large.
func (r *BeginRequest) Check() error {
	if err := exactlyOne(r.Fingerprint != "", r.Request != nil, "fingerprint", "request"); err != nil {
		return err
	}
	if (r.Permit != nil) != (r.Expected != nil) {
		return &canonical.Error{Kind: canonical.ErrMalformed, Reason: "give permit and expected both or neither"}
	}
	if r.Metadata != nil && r.Metadata[0] != '{' {
		return &canonical.Error{Kind: canonical.ErrMalformed, Pointer: "/metadata", Reason: "want an object"}
	}
	if len(r.Metadata) > MaxMetadata {
		return &canonical.Error{Kind: canonical.ErrInvalid, Pointer: "/metadata", Reason: "more than 4096 bytes"}
	}
	return nil
}

// The states of a begin's answer.
const (
	StateExecute = "execute"
	StateReplay  = "replay"
)

// BeginAnswer tells the caller to execute (201), or gives the receipt of the execution (200).
type BeginAnswer struct {
	State     string    `json:"state" enum:"execute,replay"`
	Operation Grant     `json:"operation"`
	Receipt   *Receipt  `json:"receipt,omitzero" doc:"replay: as it was given."`
	Budgets   []Figures `json:"budgets,omitzero" doc:"execute with spend: where each budget stands, ancestors too."`
	Repeated  bool      `json:"repeated,omitzero"`
}

// Outcome names the answer in the header Counterfoil-Outcome.
func (a *BeginAnswer) Outcome() string { return a.State }

// Grant is an operation as its begin shows it.
type Grant struct {
	ID          Digest `json:"id" doc:"Length-prefixed hash of owner and key: a client can compute it."`
	Key         Name   `json:"key"`
	Token       Token  `json:"token,omitzero" doc:"execute: proves that the caller holds it."`
	Fence       uint64 `json:"fence,omitzero" doc:"execute: rises with every execution of this key; hand it downstream."`
	LeaseUntil  Time   `json:"lease_until,omitzero" doc:"execute: until then it must be completed, renewed or aborted."`
	CreatedAt   Time   `json:"created_at,omitzero"`
	CompletedAt Time   `json:"completed_at,omitzero" doc:"replay"`
	HoldID      Digest `json:"hold_id,omitzero" doc:"execute: the hold that its completion charges."`
}

// Receipt is what an operation came to. At most one of Body and Body64 is given.
type Receipt struct {
	Status      int             `json:"status,omitzero" minimum:"0" maximum:"999" doc:"HTTP status or exit code of the effect, if it has one."`
	Headers     Headers         `json:"headers,omitzero" maxItems:"64"`
	ContentType string          `json:"content_type,omitzero" maxLength:"256"`
	Body        json.RawMessage `json:"body,omitzero" doc:"Any JSON; numbers stay as they are spelled."`
	Body64      *string         `json:"body_base64,omitzero" nullable:"false" doc:"Any bytes, in base64 (RFC 4648 section 4, with padding)."`
}

// Check refuses two bodies.
func (r *Receipt) Check() error {
	if r.Body != nil && r.Body64 != nil {
		return &canonical.Error{Kind: canonical.ErrMalformed, Pointer: "/body_base64", Reason: "give either body or body_base64, not both"}
	}
	for name := range r.Headers {
		if name == "" || len(name) > MaxName || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == ':' }) {
			return &canonical.Error{Kind: canonical.ErrInvalid, Pointer: "/headers", Reason: "want names of headers"}
		}
	}
	return nil
}

// Headers are HTTP headers by name.
type Headers map[string]HeaderValue

// HeaderValue is the value of a header, or the list of its values. A list of one and its only value are the same.
type HeaderValue []string

// UnmarshalJSON reads a string or an array of strings.
func (v *HeaderValue) UnmarshalJSON(src []byte) error {
	if len(src) > 0 && src[0] == '[' {
		var list []string
		if err := canonical.Decode(src, &list); err != nil {
			return err
		}
		*v = list
		return nil
	}
	var text string
	if err := canonical.Decode(src, &text); err != nil {
		return err
	}
	*v = HeaderValue{text}
	return nil
}

// MarshalJSON writes one value as a string, any other number as an array.
func (v HeaderValue) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return canonical.AppendString(nil, v[0]), nil
	}
	out := []byte{'['}
	for i, text := range v {
		if i > 0 {
			out = append(out, ',')
		}
		out = canonical.AppendString(out, text)
	}
	return append(out, ']'), nil
}

// CompleteRequest records what an operation came to: POST /v1/operations/{id}/complete.
type CompleteRequest struct {
	ID      Digest   `json:"-" path:"id"`
	Token   Token    `json:"token" doc:"The token of its begin."`
	Receipt *Receipt `json:"receipt"`
	Capture []Entry  `json:"capture,omitzero" maxItems:"40" doc:"What the operation's hold is charged; absent: in full, empty: nothing."`
}

// CompleteAnswer says that the receipt is durable.
type CompleteAnswer struct {
	Recorded         bool    `json:"recorded"`
	ReceiptExpiresAt Time    `json:"receipt_expires_at"`
	Uncaptured       []Entry `json:"uncaptured,omitzero" doc:"What exceeded the hold and did not fit the budgets: recorded, not charged."`
	HoldUnsettled    bool    `json:"hold_unsettled,omitzero" doc:"The receipt is recorded, but the hold could not be settled."`
}

// RenewRequest prolongs a lease: POST /v1/operations/{id}/renew.
type RenewRequest struct {
	ID    Digest  `json:"-" path:"id"`
	Token Token   `json:"token"`
	Lease Seconds `json:"lease_seconds" minimum:"1" maximum:"3600" doc:"From now on."`
}

// RenewAnswer is the new end of the lease.
type RenewAnswer struct {
	LeaseUntil Time `json:"lease_until"`
}

// AbortRequest gives an operation back whose effect provably did not happen: POST /v1/operations/{id}/abort.
type AbortRequest struct {
	ID     Digest `json:"-" path:"id"`
	Token  Token  `json:"token"`
	Reason string `json:"reason" maxLength:"1024" doc:"Kept with the operation."`
}

// AbortAnswer says that the key is free again.
type AbortAnswer struct {
	Aborted       bool `json:"aborted"`
	HoldUnsettled bool `json:"hold_unsettled,omitzero" doc:"It is aborted, but its hold or spends could not be given back."`
}

// The outcomes that an operator can give an operation.
const (
	Happened     = "happened"
	DidNotHappen = "did_not_happen"
)

// ResolveRequest decides an operation whose outcome is unknown: POST /v1/operations/{id}/resolve.
type ResolveRequest struct {
	ID      Digest   `json:"-" path:"id"`
	Outcome string   `json:"outcome" enum:"happened,did_not_happen"`
	Receipt *Receipt `json:"receipt,omitzero" doc:"happened: what is replayed from now on; absent: {}."`
	Capture []Entry  `json:"capture,omitzero" maxItems:"40" doc:"happened: what its hold is charged; absent: in full."`
	Note    string   `json:"note" maxLength:"1024" doc:"How it was found out. Kept with the operation."`
}

// Check refuses a receipt or capture for what did not happen.
func (r *ResolveRequest) Check() error {
	if r.Outcome == DidNotHappen && r.Receipt != nil {
		return &canonical.Error{Kind: canonical.ErrInvalid, Pointer: "/receipt", Reason: "what did not happen has no receipt"}
	}
	if r.Outcome == DidNotHappen && r.Capture != nil {
		return &canonical.Error{Kind: canonical.ErrInvalid, Pointer: "/capture", Reason: "what did not happen is not charged"}
	}
	return nil
}

// ResolveAnswer is the state after the resolution.
type ResolveAnswer struct {
	State         string  `json:"state" enum:"settled,aborted"`
	Uncaptured    []Entry `json:"uncaptured,omitzero" doc:"What exceeded the hold and did not fit the budgets."`
	HoldUnsettled bool    `json:"hold_unsettled,omitzero" doc:"It is resolved, but its hold could not be settled."`
}

// OperationRequest reads an operation: GET /v1/operations/{id}.
type OperationRequest struct {
	ID Digest `json:"-" path:"id"`
}

// The states of an operation.
const (
	StateInFlight       = "in_flight"
	StateOutcomeUnknown = "outcome_unknown"
	StateSettled        = "settled"
	StateExpired        = "expired"
	StateAborted        = "aborted"
)

// Operation is an operation as it stands.
type Operation struct {
	ID          Digest          `json:"id"`
	Key         Name            `json:"key"`
	Owner       Name            `json:"owner"`
	State       string          `json:"state" enum:"in_flight,outcome_unknown,settled,expired,aborted"`
	CreatedAt   Time            `json:"created_at"`
	LeaseUntil  Time            `json:"lease_until,omitzero"`
	CompletedAt Time            `json:"completed_at,omitzero"`
	Receipt     *Receipt        `json:"receipt,omitzero" doc:"Not in lists."`
	Resolved    *Resolution     `json:"resolved,omitzero"`
	Metadata    json.RawMessage `json:"metadata,omitzero"`
	HoldID      Digest          `json:"hold_id,omitzero" doc:"The hold that it took over."`
	// HoldUnsettled: the receipt is recorded, the hold could not be settled.
	HoldUnsettled bool         `json:"hold_unsettled,omitzero" doc:"It is recorded, but its hold could not be settled."`
	NotRetained   *NotRetained `json:"receipt_not_retained,omitzero" doc:"What is left of a receipt that was too large to keep."`
}

// NotRetained is what is left of a receipt that was too large to keep.
type NotRetained struct {
	Digest Digest `json:"digest" doc:"SHA-256 of its body."`
	Length int64  `json:"length" doc:"Of its body, in bytes."`
}

// OperationList is a part of a list of operations.
type OperationList struct {
	List[Operation]
	Damaged []Digest `json:"damaged,omitzero" doc:"Operations whose records cannot be read: in which state they are nobody can tell."`
}

// Resolution is what an operator decided.
type Resolution struct {
	By      string `json:"by" doc:"The name of the credential."`
	Outcome string `json:"outcome" enum:"happened,did_not_happen"`
	Note    string `json:"note"`
	At      Time   `json:"at"`
}

// OperationsRequest lists operations by id, those of unknown outcome by the end of their lease: GET /v1/operations.
type OperationsRequest struct {
	Page
	State string `json:"-" query:"state" enum:"in_flight,outcome_unknown,settled,expired,aborted"`
	Owner Name   `json:"-" query:"owner" doc:"Another owner's need the role observe."`
}
