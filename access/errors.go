package access

import (
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/state"
)

// Refusals. Every other error is one of package state, above all state.ErrUnavailable and, after a change,
// state.ErrUnknown.
var (
	// ErrUnauthenticated means: there is no token, or it is malformed, unknown or revoked.
	ErrUnauthenticated = errors.New("no valid token")
	// ErrForbidden means: the token does not allow it.
	ErrForbidden = errors.New("the token does not allow this")
	// ErrInvalid means: what was asked for is not well-formed.
	ErrInvalid = errors.New("invalid value")
	// ErrExists means: a token of that name exists in the scope.
	ErrExists = errors.New("a token of that name exists already")
	// ErrNotFound means: the scope has no token of that name.
	ErrNotFound = errors.New("there is no token of that name")
	// ErrTooMany means: the scope has as many tokens as it may have.
	ErrTooMany = errors.New("too many tokens; revoke some")
)

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

func forbidden(why string) error { return fmt.Errorf("%w: %s", ErrForbidden, why) }

// refused turns the first refusal of an outcome into an error.
func refused(out *state.Outcome) error {
	if len(out.Refusals) == 0 {
		return fmt.Errorf("%w: refused without a reason", state.ErrUnavailable)
	}
	reason := out.Refusals[0].Reason
	if err := state.RefusalError(reason); err != nil {
		return err
	}
	return fmt.Errorf("%w: refused: %s", state.ErrUnavailable, reason)
}
