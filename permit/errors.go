package permit

import (
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// Reason says why a permit was not accepted. The set is closed; its values are part of the interface.
type Reason string

// Reasons that a permit alone gives, in the order in which they are looked for.
const (
	ReasonMalformed         Reason = "malformed"
	ReasonUnsupportedSchema Reason = "unsupported_schema"
	ReasonExpired           Reason = "expired"
	ReasonNotYetValid       Reason = "not_yet_valid"
	ReasonBindingMismatch   Reason = "binding_mismatch"
	ReasonInvalidSignature  Reason = "invalid_signature"
)

// Reasons that the store gives.
const (
	ReasonReplayed    Reason = "replayed"
	ReasonRevoked     Reason = "revoked"
	ReasonFull        Reason = "full"
	ReasonOwnerFull   Reason = "owner_full"
	ReasonHoldSettled Reason = "hold_settled"
	ReasonHoldExpired Reason = "hold_expired"
)

// Reasons that are no refusal of the permit: it was not judged (unavailable), or nobody can say (unknown).
const (
	ReasonUnavailable Reason = "unavailable"
	ReasonUnknown     Reason = "unknown"
)

// Error is a permit that was not accepted. errors.Is finds the sentinel of its reason through any wrapper.
type Error struct {
	Reason Reason
	Detail string // what is wrong and where; never a value of the permit
	// RetryAfter is when a permit can be minted again, if a revocation lies ahead; else 0.
	RetryAfter time.Duration
	Err        error // what lies beneath, or nil
}

// Error says why the permit was not accepted.
func (e *Error) Error() string {
	text := "permit: " + e.Reason.text()
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil && (e.Reason == ReasonUnavailable || e.Reason == ReasonUnknown) {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns what lies beneath.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the sentinel of the same reason.
func (e *Error) Is(target error) bool {
	sentinel, ok := target.(*Error)
	return ok && *sentinel == Error{Reason: e.Reason}
}

// The sentinels, one for each reason.
var (
	ErrMalformed         = &Error{Reason: ReasonMalformed}
	ErrUnsupportedSchema = &Error{Reason: ReasonUnsupportedSchema}
	ErrExpired           = &Error{Reason: ReasonExpired}
	ErrNotYetValid       = &Error{Reason: ReasonNotYetValid}
	ErrBindingMismatch   = &Error{Reason: ReasonBindingMismatch}
	ErrInvalidSignature  = &Error{Reason: ReasonInvalidSignature}

	ErrReplayed    = &Error{Reason: ReasonReplayed}
	ErrRevoked     = &Error{Reason: ReasonRevoked}
	ErrFull        = &Error{Reason: ReasonFull}
	ErrOwnerFull   = &Error{Reason: ReasonOwnerFull}
	ErrHoldSettled = &Error{Reason: ReasonHoldSettled}
	ErrHoldExpired = &Error{Reason: ReasonHoldExpired}

	ErrUnavailable = &Error{Reason: ReasonUnavailable}
	ErrUnknown     = &Error{Reason: ReasonUnknown}
)

func (r Reason) text() string {
	switch r {
	case ReasonMalformed:
		return "it is not a permit"
	case ReasonUnsupportedSchema:
		return "its schema is not " + Schema
	case ReasonExpired:
		return "it has expired; ask for a new one"
	case ReasonNotYetValid:
		return "it is not valid yet; compare the clocks of issuer and verifier"
	case ReasonBindingMismatch:
		return "it is bound to another call"
	case ReasonInvalidSignature:
		return "no accepted key signed it"
	case ReasonReplayed:
		return "it was used before"
	case ReasonRevoked:
		return "it was revoked"
	case ReasonFull:
		return "the store is full"
	case ReasonOwnerFull:
		return "the owner's share of the store is full"
	case ReasonHoldSettled:
		return "its hold is settled"
	case ReasonHoldExpired:
		return "its hold has expired"
	case ReasonUnavailable:
		return "the store is unavailable; nothing was used"
	case ReasonUnknown:
		return "it is unknown whether it was used; treat it as used"
	default:
		return string(r)
	}
}

// Field names a part of the call that a permit is bound to.
type Field string

// The fields, in the order in which they are compared.
const (
	FieldSubject       Field = "subject"
	FieldCapability    Field = "capability"
	FieldServer        Field = "server"
	FieldTool          Field = "tool"
	FieldRequestID     Field = "request_id"
	FieldParameterHash Field = "parameter_hash"
)

// BindingMismatchError is a permit that is bound to another call than the one expected. errors.Is finds
// [ErrBindingMismatch].
type BindingMismatchError struct {
	Field Field // the first that differs, or is empty on either side
}

// Error names the field, never its values.
func (e *BindingMismatchError) Error() string {
	return "permit: it is bound to another " + string(e.Field)
}

// Is reports whether target is ErrBindingMismatch.
func (e *BindingMismatchError) Is(target error) bool { return target == error(ErrBindingMismatch) }

// ReasonOf returns the reason of an error of this package, through any wrapper.
func ReasonOf(err error) (Reason, bool) {
	var mismatch *BindingMismatchError
	if errors.As(err, &mismatch) {
		return ReasonBindingMismatch, true
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Reason, true
	}
	return "", false
}

// ErrInvalid is a permit that cannot be issued as asked: an empty or over-long binding, a TTL out of range, an unusable
// key. It wraps [state.ErrInvalid].
var ErrInvalid = fmt.Errorf("permit: %w", state.ErrInvalid)
