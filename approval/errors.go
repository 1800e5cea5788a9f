package approval

import (
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/state"
)

// Refusals. Nothing was written.
var (
	// ErrNotFound: there is no such request in the scope.
	ErrNotFound = errors.New("approval: there is no such request")
	// ErrNotPending: it does not wait for a decision. Every [ErrDecided] and [ErrExpired] is one too.
	ErrNotPending = errors.New("approval: it does not wait for a decision")
	// ErrDecided: somebody has decided otherwise. The error is a [*DecidedError].
	ErrDecided = fmt.Errorf("%w: it is decided already", ErrNotPending)
	// ErrExpired: nobody decided in time, or what was granted is over.
	ErrExpired = fmt.Errorf("%w: its time is over; the call must be asked for anew", ErrNotPending)
)

// ErrInvalid means: a parameter is never accepted. Nothing was sent.
var ErrInvalid = fmt.Errorf("approval: %w", state.ErrInvalid)

// DecidedError says how a request was decided.
type DecidedError struct{ State State }

// Error says how.
func (e *DecidedError) Error() string { return "approval: it is " + string(e.State) + " already" }

// Is reports whether target is [ErrDecided] or [ErrNotPending].
func (e *DecidedError) Is(target error) bool { return target == ErrDecided || target == ErrNotPending }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// failed passes on an error of the store.
func failed(err error) error { return fmt.Errorf("approval: %w", err) }

// refused is the error of a refusal that no name of this package fits.
func refused(out *state.Outcome) error {
	for _, r := range out.Refusals {
		if err := state.RefusalError(r.Reason); err != nil {
			return failed(err)
		}
	}
	return fmt.Errorf("approval: refused: %s", out.Refusals[0].Reason)
}

// contended is the error when others changed a request each time before this caller could.
func contended() error {
	return failed(fmt.Errorf("%w: the request is being changed by others all the time", state.ErrUnavailable))
}
