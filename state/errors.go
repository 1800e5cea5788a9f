package state

import (
	"errors"
	"fmt"
)

// Errors of a batch that got no outcome. Only ErrUnknown leaves open whether
// the batch took effect; after every other one nothing was written.
var (
	// ErrInvalid: the batch breaks a rule of its form; sending it again cannot help.
	ErrInvalid = errors.New("invalid")
	// ErrCorrupt: a record that the batch needs does not authenticate, decode or fit its range.
	ErrCorrupt = errors.New("a stored record is damaged")
	// ErrKeyUnknown: a record is sealed under an integrity key that this process does not have.
	ErrKeyUnknown = errors.New("a stored record is sealed under an unknown integrity key")
	// ErrNoScope: the scope was never created.
	ErrNoScope = errors.New("the scope does not exist")
	// ErrUnknown: the batch may or may not have taken effect. It is neither yes nor no.
	ErrUnknown = errors.New("the outcome of the commit is unknown")
	// ErrUnavailable: the store cannot answer now; nothing was written.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrClock: the clock stepped too far, or a record lies too far ahead of it.
	ErrClock = errors.New("the clock cannot be trusted")
	// ErrLatched: an earlier commit failed; the store refuses everything until it is reopened.
	ErrLatched = errors.New("the store is latched closed after a failed commit")
)

// Refusals that every capability gives for the same reasons. Nothing was
// written.
var (
	// ErrRecovering: the scope is in quarantine, and this would begin something new.
	ErrRecovering = errors.New("the scope is in quarantine after state was lost; nothing new may begin until an operator lifts it")
	// ErrStale: the request came too late after it was made.
	ErrStale = errors.New("the request is too old; make it anew")
	// ErrFull: the scope's quota is used up.
	ErrFull = errors.New("the scope is full; raise its caps or wait until records end")
	// ErrOwnerFull: the owner's quota in the scope is used up.
	ErrOwnerFull = errors.New("the owner's share of the scope is used up; wait until records end")
)

// RefusalError gives the sentinel of a reason that means the same whatever was
// asked, nil for any other.
func RefusalError(r Reason) error {
	switch r {
	case Recovering:
		return ErrRecovering
	case Stale:
		return ErrStale
	case Full:
		return ErrFull
	case OwnerFull:
		return ErrOwnerFull
	}
	return nil
}

// RecordError names the key whose record could not be read. It unwraps to
// ErrCorrupt, ErrKeyUnknown or ErrClock.
type RecordError struct {
	Key Key
	Err error
}

// Error names the kind of the record, never its whole key.
func (e *RecordError) Error() string { return fmt.Sprintf("%s record: %v", e.Key.Kind, e.Err) }

// Unwrap gives the sentinel.
func (e *RecordError) Unwrap() error { return e.Err }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
