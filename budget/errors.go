package budget

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// Refusals. Nothing was written.
var (
	// ErrExceeded: an amount does not fit. The error is an [*ExceededError].
	ErrExceeded = errors.New("budget: an amount does not fit")
	// ErrBudgetUnknown: nobody defined a budget, or it was closed. The error is an [*UnknownError].
	ErrBudgetUnknown = errors.New("budget: nobody defined it")
	// ErrDiffers: a budget is defined otherwise, or its parent counts another unit.
	ErrDiffers = errors.New("budget: defined otherwise; close it to define it anew")
	// ErrRequestIDReused: the request id was used for something else.
	ErrRequestIDReused = errors.New("budget: the request id was used for another request; use a new one")
	// ErrSpendUnknown: the owner has no such spend, or it is no longer remembered.
	ErrSpendUnknown = errors.New("budget: there is no such spend")
	// ErrSpendExpired: the spend was made too long ago to be given back.
	ErrSpendExpired = errors.New("budget: the spend can no longer be refunded")
	// ErrRefunded: this request was spent and given back; it is not revived.
	ErrRefunded = errors.New("budget: it was spent and refunded; use a new request id")
	// ErrHoldUnknown: the owner has no such hold, or it is no longer remembered.
	ErrHoldUnknown = errors.New("budget: there is no such hold")
	// ErrHoldExpired: the hold ended by itself, and everything was returned.
	ErrHoldExpired = errors.New("budget: the hold has expired; make a new one")
	// ErrHoldFenced: the hold is bound to something that is under way, whose outcome settles it.
	ErrHoldFenced = errors.New("budget: the hold is fenced; the outcome of what uses it settles it")
	// ErrHoldSettled: the hold is captured, void, or over because a budget that it counts in was closed.
	ErrHoldSettled = errors.New("budget: the hold is settled")
	// ErrNotHolder: the token is not the hold's.
	ErrNotHolder = errors.New("budget: the token is not the hold's")
	// ErrWindowClosed: a window that the hold belongs to is over: it can be settled, not extended.
	ErrWindowClosed = errors.New("budget: a window that the hold belongs to is closed; capture or void it, and make a new hold")
)

// ErrInvalid is for a parameter that is never accepted. Nothing was sent. It wraps [state.ErrInvalid].
var ErrInvalid = fmt.Errorf("budget: %w", state.ErrInvalid)

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// ExceededError names every budget that an amount did not fit, with its figures before the call.
type ExceededError struct {
	Refused []Figures
}

// Error names the budgets and says what is missing.
func (e *ExceededError) Error() string {
	parts := make([]string, len(e.Refused))
	for i, f := range e.Refused {
		parts[i] = fmt.Sprintf("%s has %d of %d %s left, %d more were asked for", f.Name, f.Remaining, limit(&e.Refused[i]), f.Unit, f.Amount)
	}
	return "budget: " + strings.Join(parts, "; ")
}

// Is reports whether target is [ErrExceeded].
func (e *ExceededError) Is(target error) bool { return target == ErrExceeded }

// RetryAt is when the same call may fit: at the latest end of a window, or, if only holds are in the way, when the first
// of them ends in each budget. It reports false if waiting cannot help: a budget never begins anew, or the amount is above
// its limit.
func (e *ExceededError) RetryAt() (time.Time, bool) {
	var at int64
	for i := range e.Refused {
		f := &e.Refused[i]
		if f.Lifetime || f.Amount > limit(f) {
			return time.Time{}, false
		}
		until := f.ResetsAt
		if f.HeldUntil != 0 && f.Spent+f.Amount <= limit(f) {
			until = min(until, f.HeldUntil)
		}
		at = max(at, until)
	}
	return time.UnixMilli(at).UTC(), at != 0
}

func limit(f *Figures) uint64 {
	if f.Unlimited {
		return state.MaxAmount
	}
	return f.Limit
}

// UnknownError names budgets that are not there.
type UnknownError struct {
	Budgets []string
	// stale: what was known of a budget before turned out to be out of date.
	stale bool
}

// Error names the budgets.
func (e *UnknownError) Error() string {
	return "budget: nobody defined " + strings.Join(e.Budgets, ", ")
}

// Is reports whether target is [ErrBudgetUnknown].
func (e *UnknownError) Is(target error) bool { return target == ErrBudgetUnknown }

// changedError: a hold changed between the reading of it and the batch.
type changedError struct{}

func (changedError) Error() string { return "budget: the hold changed meanwhile" }

// Is reports whether target is [state.ErrUnavailable]: asking again helps.
func (changedError) Is(target error) bool { return target == state.ErrUnavailable }

// Again reports whether err is of a [Part] that rested on something which has changed since: nothing was written, and the
// part, built anew, may be accepted. A caller should try that once or twice and then answer with err.
func Again(err error) bool {
	if unknown, ok := errors.AsType[*UnknownError](err); ok {
		return unknown.stale
	}
	_, changed := errors.AsType[changedError](err)
	return changed
}
