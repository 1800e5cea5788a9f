package counterfoil

import (
	"fmt"

	"github.com/counterfoil/counterfoil/state"
)

// The errors that every capability gives, named once more for who builds on [Caller] alone. They are those of package
// state.
var (
	// ErrInvalid: a parameter is never accepted. Nothing was sent.
	ErrInvalid = state.ErrInvalid
	// ErrUnknown: the step may or may not have taken effect. It is neither yes nor no; send it again as it is.
	ErrUnknown = state.ErrUnknown
	// ErrUnavailable: the store cannot answer now. Nothing was written.
	ErrUnavailable = state.ErrUnavailable
	// ErrLatched: a commit failed, and the store refuses everything until it is reopened.
	ErrLatched = state.ErrLatched
	// ErrClock: the clock stepped too far, or a record lies too far ahead of it.
	ErrClock = state.ErrClock
	// ErrCorrupt: a record that the step needs is damaged.
	ErrCorrupt = state.ErrCorrupt
	// ErrKeyUnknown: a record is sealed under an integrity key that is not here.
	ErrKeyUnknown = state.ErrKeyUnknown
	// ErrNoScope: the scope was never created.
	ErrNoScope = state.ErrNoScope
	// ErrRecovering: the scope is in quarantine, and this would begin something new.
	ErrRecovering = state.ErrRecovering
	// ErrStale: the step came too late after it was made.
	ErrStale = state.ErrStale
	// ErrFull: the scope's quota is used up.
	ErrFull = state.ErrFull
	// ErrOwnerFull: the owner's share of the scope is used up.
	ErrOwnerFull = state.ErrOwnerFull
)

func invalidf(format string, args ...any) error {
	return fmt.Errorf("counterfoil: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
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
