package counterfoil

import (
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// ErrInvalid means that a parameter is never accepted. Nothing was sent. It wraps [state.ErrInvalid], as the capabilities'
// own errors of that name do.
var ErrInvalid = fmt.Errorf("counterfoil: %w", state.ErrInvalid)

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// invalid reports whether an error says that a parameter is never accepted, whichever capability says so.
func invalid(err error) bool {
	return errors.Is(err, state.ErrInvalid) || errors.Is(err, permit.ErrInvalid)
}

// distinct refuses a budget that the caller names twice: which of the amounts is meant is not certain.
func distinct(entries []Entry) error {
	for i, e := range entries {
		for _, earlier := range entries[:i] {
			if earlier.Budget == e.Budget {
				return invalidf("entry %d names the budget of an earlier one", i)
			}
		}
	}
	return nil
}
