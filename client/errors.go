package client

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/challenge"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// Error is a server's refusal. It wraps the capability's own error of the same meaning, and the problem.
type Error struct {
	Problem api.Problem
	means   error
}

// Error says what was refused, without any value of the request.
func (e *Error) Error() string { return e.Problem.Error() }

// Unwrap gives the capability's own error, and the problem.
func (e *Error) Unwrap() []error {
	if e.means == nil {
		return []error{&e.Problem}
	}
	return []error{e.means, &e.Problem}
}

// about is what a request is about: it tells whose error a code stands for.
type about uint8

const (
	aboutAnything about = iota
	aboutPermit
	aboutOperation
	aboutClaim         // of an operation, without anything that it rests on
	aboutClaimByHold   // with a hold
	aboutClaimByPermit // with a permit, which may carry a hold
	aboutChallenge
	aboutBudget
	aboutSpend
	aboutHold
	aboutScope
	aboutToken
	aboutApproval
)

// settles are the refusals that come from the step itself, which recognises a repetition before it looks at anything else:
// after one of them an earlier send of the same request has certainly not had its effect, or is over like what it made.
var settles = map[api.Code]bool{
	api.PermitReplayed: true, api.InFlight: true, api.OutcomeUnknown: true, api.NotPending: true, api.NotHolder: true, api.Aborted: true,
	api.ChallengePending: true, api.ChallengeConsumed: true, api.ChallengeUnknown: true, api.ChallengeMismatch: true, api.ChallengeExpired: true,
	api.EpochStale: true, api.RequestIDReused: true, api.HoldSettled: true, api.HoldFenced: true, api.HoldExpired: true, api.BudgetDiffers: true,
	api.BudgetExceeded: true, api.BudgetUnknown: true, api.NotFound: true, api.KeyExpired: true, api.ReceiptNotRetained: true, api.KeyReused: true,
	api.OwnerQuota: true, api.StoreFull: true,
}

// plain are the codes that mean the same whatever was asked.
var plain = map[api.Code]error{
	api.Unauthenticated: access.ErrUnauthenticated, api.Forbidden: access.ErrForbidden,
	api.OutcomeUnknown: operation.ErrOutcomeUnknown, api.Aborted: operation.ErrAborted,
	api.KeyReused: operation.ErrMismatch, api.KeyExpired: operation.ErrKeyExpired,
	api.ChallengeMismatch: challenge.ErrMismatch, api.ChallengeUnknown: challenge.ErrUnknownJob, api.ChallengePending: challenge.ErrAlreadyPending,
	api.ChallengeConsumed: challenge.ErrAlreadyConsumed, api.ChallengeExpired: challenge.ErrExpired, api.EpochStale: challenge.ErrStaleEpoch,
	api.EpochConflict: challenge.ErrEpochConflict,
	api.BudgetUnknown: budget.ErrBudgetUnknown, api.BudgetDiffers: budget.ErrDiffers, api.HoldFenced: budget.ErrHoldFenced,
	api.RecordCorrupt: state.ErrCorrupt, api.ClockRefused: state.ErrClock, api.Latched: state.ErrLatched, api.Recovering: state.ErrRecovering,
	api.KeyUnknown: state.ErrKeyUnknown,
}

// reasons are the codes that say what stands against a permit.
var reasons = map[api.Code]permit.Reason{
	api.PermitMalformed: permit.ReasonMalformed, api.PermitUnsupportedSchema: permit.ReasonUnsupportedSchema, api.PermitExpired: permit.ReasonExpired,
	api.PermitNotYetValid: permit.ReasonNotYetValid, api.PermitSignatureInvalid: permit.ReasonInvalidSignature,
	api.PermitReplayed: permit.ReasonReplayed, api.PermitRevoked: permit.ReasonRevoked,
}

// meaning gives the capability's own error that a problem stands for, nil if there is none.
func (a about) meaning(p *api.Problem, now time.Time) error {
	if err, ok := plain[p.Code]; ok {
		return err
	}
	if r, ok := reasons[p.Code]; ok {
		return &permit.Error{Reason: r, Detail: p.Detail, RetryAfter: p.RetryAfter}
	}
	switch p.Code {
	case api.PermitBindingMismatch:
		return &permit.BindingMismatchError{Field: permit.Field(p.Field)}
	case api.InFlight:
		return &operation.InFlightError{LeaseUntil: now.Add(p.RetryAfter), RetryAfter: p.RetryAfter}
	case api.ReceiptNotRetained:
		return notRetained(p)
	case api.BudgetExceeded:
		return exceeded(p)
	case api.CommitUnknown, api.Internal:
		return a.unknown()
	case api.StoreUnavailable, api.Overloaded, api.Draining, api.RequestTimeout:
		return a.unavailable()
	case api.Malformed, api.Invalid, api.TooLarge:
		return a.invalid()
	}
	if err := a.named(p.Code); err != nil {
		return err
	}
	if p.Status >= 500 {
		// A code of a later version: that nothing was done must not be guessed.
		return a.unknown()
	}
	return nil
}

// named gives the error of a code that means another thing of each kind of request.
func (a about) named(code api.Code) error {
	switch code {
	case api.NotFound:
		return map[about]error{
			aboutOperation: operation.ErrNotFound, aboutSpend: budget.ErrSpendUnknown, aboutHold: budget.ErrHoldUnknown, aboutScope: state.ErrNoScope,
			aboutToken: access.ErrNotFound, aboutApproval: approval.ErrNotFound, aboutClaim: state.ErrNoScope, aboutClaimByHold: budget.ErrHoldUnknown, aboutClaimByPermit: budget.ErrHoldUnknown,
		}[a]
	case api.NotPending:
		if a == aboutApproval {
			return approval.ErrNotPending
		}
		return operation.ErrNotPending
	case api.NotHolder:
		if a == aboutHold {
			return budget.ErrNotHolder
		}
		return operation.ErrNotHolder
	case api.Stale:
		if a == aboutHold {
			return budget.ErrWindowClosed
		}
		return state.ErrStale
	case api.RequestIDReused:
		if a == aboutToken {
			return access.ErrExists
		}
		return budget.ErrRequestIDReused
	case api.HoldSettled:
		return a.ofHold(permit.ReasonHoldSettled, budget.ErrHoldSettled)
	case api.HoldExpired:
		return a.ofHold(permit.ReasonHoldExpired, budget.ErrHoldExpired)
	case api.StoreFull:
		if a == aboutToken {
			return access.ErrTooMany
		}
		return a.ofPermit(permit.ReasonFull, state.ErrFull)
	case api.OwnerQuota:
		return a.ofPermit(permit.ReasonOwnerFull, state.ErrOwnerFull)
	}
	return nil
}

// ofPermit gives an error its reason among those of permits, if it is about one.
func (a about) ofPermit(r permit.Reason, err error) error {
	if a != aboutPermit {
		return err
	}
	return &permit.Error{Reason: r, Err: err}
}

// ofHold is ofPermit for what stands against the hold that a permit carries.
func (a about) ofHold(r permit.Reason, err error) error {
	if a == aboutClaimByPermit {
		a = aboutPermit
	}
	return a.ofPermit(r, err)
}

func (a about) unknown() error     { return a.ofPermit(permit.ReasonUnknown, state.ErrUnknown) }
func (a about) unavailable() error { return a.ofPermit(permit.ReasonUnavailable, state.ErrUnavailable) }

// invalid is the error of a parameter that is never accepted.
func (a about) invalid() error {
	switch a {
	case aboutPermit:
		return fmt.Errorf("%w: %w", permit.ErrInvalid, state.ErrInvalid)
	case aboutOperation, aboutClaim, aboutClaimByHold, aboutClaimByPermit:
		return operation.ErrInvalid
	case aboutChallenge:
		return fmt.Errorf("%w: %w", challenge.ErrInvalid, state.ErrInvalid)
	case aboutBudget, aboutSpend, aboutHold:
		return budget.ErrInvalid
	case aboutToken:
		return fmt.Errorf("%w: %w", access.ErrInvalid, state.ErrInvalid)
	case aboutApproval:
		return approval.ErrInvalid
	}
	return state.ErrInvalid
}

func notRetained(p *api.Problem) error {
	e := new(operation.NotRetainedError)
	if sum, err := hex.DecodeString(string(p.Digest)); err == nil && len(sum) == len(e.Digest) {
		e.Digest = [32]byte(sum)
	}
	if p.Length != nil {
		e.Length = int(*p.Length)
	}
	return e
}

// exceeded keeps every budget that was in the way; of those that the token may not see there is the name alone.
func exceeded(p *api.Problem) error {
	e := &budget.ExceededError{Refused: make([]budget.Figures, len(p.Refused))}
	for i, r := range p.Refused {
		f := budget.Figures{Name: string(r.Budget)}
		if r.RefusedFigures != nil {
			f.Unit, f.Spent, f.Held, f.Amount, f.ResetsAt = r.Unit, r.Spent, r.Held, r.Amount, r.ResetsAt.UnixMilli()
			f.Limit, f.Unlimited = limit(r.Limit)
			f.Remaining, _ = limit(r.Remaining)
			f.Lifetime = f.ResetsAt == 0
		}
		e.Refused[i] = f
	}
	return e
}
