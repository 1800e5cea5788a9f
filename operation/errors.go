package operation

import (
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// Refusals of a claim. Nothing was written.
var (
	// ErrInFlight: another holder is at work. The error is an [*InFlightError].
	ErrInFlight = errors.New("operation: in flight; ask again later")
	// ErrOutcomeUnknown: it was begun and its holder is gone. It may have happened, so that it is never run again until
	// an operator resolves it.
	ErrOutcomeUnknown = errors.New("operation: outcome unknown; find out whether it happened and resolve it")
	// ErrMismatch: the key is in use for another request.
	ErrMismatch = errors.New("operation: the key was used for another request; use a new key")
	// ErrKeyExpired: it happened, its receipt is no longer kept, and the key is still taken.
	ErrKeyExpired = errors.New("operation: it has happened and its receipt is no longer kept; use a new key")
	// ErrReceiptNotRetained: it happened, and its receipt was too large to keep. The error is a [*NotRetainedError].
	ErrReceiptNotRetained = errors.New("operation: it has happened, but its receipt was too large to be kept")
	// ErrAborted: this same claim was made and aborted before.
	ErrAborted = errors.New("operation: this claim was aborted; begin anew with a new token")
)

// Refusals of a holder's and an operator's steps. Nothing was written.
var (
	// ErrNotFound: the owner has no such operation.
	ErrNotFound = errors.New("operation: there is none")
	// ErrNotHolder: another token holds it, or an operator has resolved it.
	ErrNotHolder = errors.New("operation: held by another, or resolved by an operator")
	// ErrNotPending: it is finished, otherwise than asked.
	ErrNotPending = errors.New("operation: finished already, otherwise than asked")
)

// ErrInvalid means that a parameter is never accepted. Nothing was sent. It wraps [state.ErrInvalid].
var ErrInvalid = fmt.Errorf("operation: %w", state.ErrInvalid)

// InFlightError says until when the holder is taken to be alive.
type InFlightError struct {
	LeaseUntil time.Time
	RetryAfter time.Duration // from the deciding step to the end of the lease; at least a millisecond
}

// Error says when to ask again.
func (e *InFlightError) Error() string {
	return fmt.Sprintf("operation: in flight; ask again in %s", e.RetryAfter)
}

// Is reports whether target is [ErrInFlight].
func (e *InFlightError) Is(target error) bool { return target == ErrInFlight }

// NotRetainedError says what is left of a receipt that was too large.
type NotRetainedError struct{ NotRetained }

// Error says how large the receipt was.
func (e *NotRetainedError) Error() string {
	return fmt.Sprintf("operation: it has happened, but its receipt of %d bytes was too large to be kept", e.Length)
}

// Is reports whether target is [ErrReceiptNotRetained].
func (e *NotRetainedError) Is(target error) bool { return target == ErrReceiptNotRetained }

// corrupt says that a record that authenticates cannot be understood.
func corrupt(err error) error { return fmt.Errorf("operation: %w: %w", state.ErrCorrupt, err) }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
