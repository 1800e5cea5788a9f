package challenge

import (
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/state"
)

// Refusals. Nothing was written. [Challenges.Consume] gives the first that applies, in the order of the first five.
var (
	// ErrUnknownJob: nothing was issued for this job, or to another owner.
	ErrUnknownJob = errors.New("challenge: none was issued for this job")
	// ErrAlreadyConsumed: the challenge of this job was consumed before, and the job stays refused for a while.
	ErrAlreadyConsumed = errors.New("challenge: it was consumed before; use another job id")
	// ErrMismatch: another nonce was issued. The challenge is as it was.
	ErrMismatch = errors.New("challenge: the nonce is not the one that was issued")
	// ErrStaleEpoch: the epoch that was given, or the one of the challenge, is not the scope's present one.
	ErrStaleEpoch = errors.New("challenge: it is of another epoch; issue a new one")
	// ErrExpired: it was not consumed in time, or state was lost since it was issued.
	ErrExpired = errors.New("challenge: it has expired; issue a new one")
	// ErrAlreadyPending: the job has a challenge that is neither consumed nor over.
	ErrAlreadyPending = errors.New("challenge: the job has one that is pending; consume it, supersede it, or wait until it expires")
	// ErrEpochConflict: the epoch is another one than the caller goes on from. The error is an [*EpochConflictError].
	ErrEpochConflict = errors.New("challenge: the epoch is not the one to go on from")
)

// ErrInvalid means: a parameter is never accepted. Nothing was sent.
var ErrInvalid = errors.New("challenge: invalid")

// Two errors of the store that this package's callers meet; the others pass through alike. After ErrUnavailable nothing
// was written. A damaged challenge is ErrCorrupt, never absent. Only [state.ErrUnknown] leaves open what happened.
var (
	ErrUnavailable = state.ErrUnavailable
	ErrCorrupt     = state.ErrCorrupt
)

// EpochConflictError says which epoch it is.
type EpochConflictError struct {
	Epoch uint64 // the scope's
}

// Error names the present epoch.
func (e *EpochConflictError) Error() string {
	return fmt.Sprintf("challenge: the epoch is %d", e.Epoch)
}

// Is reports whether target is [ErrEpochConflict].
func (e *EpochConflictError) Is(target error) bool { return target == ErrEpochConflict }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// failed passes on an error of the store.
func failed(err error) error { return fmt.Errorf("challenge: %w", err) }

// refused is the error of a refusal that no name of this package fits.
func refused(out *state.Outcome) error {
	for _, r := range out.Refusals {
		if err := state.RefusalError(r.Reason); err != nil {
			return failed(err)
		}
	}
	return fmt.Errorf("challenge: refused: %s", out.Refusals[0].Reason)
}

// contended is the error when others changed a challenge each time before this caller could.
func contended() error {
	return failed(fmt.Errorf("%w: the challenge is being changed by others all the time", state.ErrUnavailable))
}
