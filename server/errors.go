package server

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/challenge"
	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// meanings says what a sentinel means to a client. The first that errors.Is finds counts, so that what leaves an outcome
// open comes first: an error that is both unknown and anything else is unknown.
var meanings = []struct {
	err    error
	code   api.Code
	detail string // "": what the error says, which never repeats a value
}{
	{state.ErrUnknown, api.CommitUnknown, "the store failed while it recorded this"},
	{state.ErrLatched, api.Latched, "a write failed, and the store must be opened again"},
	{state.ErrClock, api.ClockRefused, "the clock stepped too far"},
	{state.ErrKeyUnknown, api.KeyUnknown, "a record is sealed by an integrity key that this server does not have"},
	{keyring.ErrNoSigningKey, api.KeyUnknown, "this server has no key to sign the scope's permits with; an operator makes one: counterfoil key rotate"},
	{state.ErrCorrupt, api.RecordCorrupt, "a record that this needs is damaged; counterfoil doctor names it"},
	{state.ErrUnavailable, api.StoreUnavailable, "the store does not take this now"},
	{state.ErrRecovering, api.Recovering, "the scope is in quarantine until an operator lifts it"},
	{state.ErrStale, api.Stale, "the request is too old; make it anew"},
	{state.ErrFull, api.StoreFull, "the scope has as many live records as its caps allow"},
	{state.ErrOwnerFull, api.OwnerQuota, "the owner has as many live records as one owner may have"},
	{state.ErrNoScope, api.NotFound, "the scope does not exist"},
	{challenge.ErrUnknownJob, api.ChallengeUnknown, "nothing was issued for this job"},
	{challenge.ErrAlreadyConsumed, api.ChallengeConsumed, "the challenge of this job was consumed before"},
	{challenge.ErrMismatch, api.ChallengeMismatch, "the nonce is not the one that was issued"},
	{challenge.ErrStaleEpoch, api.EpochStale, "it is of another epoch than the present one; issue a new challenge"},
	{challenge.ErrExpired, api.ChallengeExpired, "it was not consumed in time; issue a new challenge"},
	{challenge.ErrAlreadyPending, api.ChallengePending, "the job has a challenge that is neither consumed nor over"},
	{challenge.ErrEpochConflict, api.EpochConflict, "the epoch is not the one to go on from; read it again"},
	{challenge.ErrInvalid, api.Invalid, ""},

	{permit.ErrUnknown, api.CommitUnknown, "the store failed while it recorded this"},
	{permit.ErrUnavailable, api.StoreUnavailable, "the store does not take this now"},
	{permit.ErrInvalid, api.Invalid, ""},

	{operation.ErrInFlight, api.InFlight, "another caller holds the operation, and its lease lives"},
	{operation.ErrOutcomeUnknown, api.OutcomeUnknown, "it was begun, and its holder did not report before its lease ended; resolve it"},
	{operation.ErrMismatch, api.KeyReused, "the key was used for another request"},
	{operation.ErrKeyExpired, api.KeyExpired, "it has happened, and its receipt is no longer kept"},
	{operation.ErrReceiptNotRetained, api.ReceiptNotRetained, "it has happened, and its receipt was too large to keep"},
	{operation.ErrAborted, api.Aborted, "what this token had begun was aborted"},
	{operation.ErrNotFound, api.NotFound, "there is no such operation"},
	{operation.ErrNotHolder, api.NotHolder, "another token holds the operation, or an operator has resolved it"},
	{operation.ErrNotPending, api.NotPending, "the operation is finished, otherwise than asked"},
	{operation.ErrInvalid, api.Invalid, ""},

	{budget.ErrDiffers, api.BudgetDiffers, "unit, window and parent are fixed; one of them differs"},
	{budget.ErrBudgetUnknown, api.BudgetUnknown, budgetUnknown},
	{budget.ErrRequestIDReused, api.RequestIDReused, "the request id was used for another request"},
	{budget.ErrRefunded, api.RequestIDReused, "this was spent and refunded, and is not revived"},
	{budget.ErrSpendUnknown, api.NotFound, "there is no such spend"},
	{budget.ErrSpendExpired, api.NotFound, "the spend was made too long ago to be refunded"},
	{budget.ErrHoldUnknown, api.NotFound, "there is no such hold"},
	{budget.ErrHoldExpired, api.HoldExpired, "the hold ended by itself, and everything was returned"},
	{budget.ErrHoldFenced, api.HoldFenced, "what uses the hold settles it"},
	{budget.ErrHoldSettled, api.HoldSettled, "the hold is captured, void, or over because a budget was closed"},
	{budget.ErrNotHolder, api.NotHolder, "the token is not the hold's"},
	{budget.ErrWindowClosed, api.Stale, "a window that the hold belongs to is closed: capture or void it"},
	{budget.ErrInvalid, api.Invalid, ""},

	{approval.ErrNotFound, api.NotFound, "there is no such request for an approval"},
	{approval.ErrDecided, api.NotPending, "somebody has decided it otherwise"},
	{approval.ErrExpired, api.NotPending, "its time is over; the call must be asked for anew"},
	{approval.ErrNotPending, api.NotPending, "it does not wait for a decision"},
	{approval.ErrInvalid, api.Invalid, ""},

	{keyring.ErrUnknown, api.CommitUnknown, "nobody knows whether the change of keys was kept; list the keys"},
	{keyring.ErrInvalid, api.Invalid, ""},
	{keyring.ErrNoKey, api.NotFound, "the scope does not accept this key"},
	{keyring.ErrInUse, api.Invalid, "the key signs now; rotate first"},
	{keyring.ErrTaken, api.Invalid, "the public key is accepted already, by this scope or another"},
	{keyring.ErrFull, api.StoreFull, "the scope accepts as many keys as it may; retire some"},
	{keyring.ErrUnavailable, api.StoreUnavailable, "the keys cannot be changed now"},

	{access.ErrUnauthenticated, api.Unauthenticated, ""},
	{access.ErrForbidden, api.Forbidden, ""},
	{access.ErrInvalid, api.Invalid, ""},
	{access.ErrExists, api.RequestIDReused, "a token of that name exists already; revoke it or choose another name"},
	{access.ErrNotFound, api.NotFound, "there is no token of that name"},
	{access.ErrTooMany, api.StoreFull, "the scope has as many tokens as it may have; revoke some"},
	{state.ErrInvalid, api.Invalid, ""},
	// The end of a context alone says nothing about what was recorded before.
	{context.DeadlineExceeded, api.CommitUnknown, "the store did not answer in time"},
	{context.Canceled, api.CommitUnknown, "the client left before the store answered"},
}

// problemOf says what err means to a client. What it does not know is internal: a refusal that nobody foresaw must not
// look like one that somebody did.
func (x *exchange) problemOf(err error, now time.Time) *api.Problem {
	var p *api.Problem
	if errors.As(err, &p) {
		own := *p
		return &own
	}
	if p := x.ofCapability(err, now); p != nil {
		return p
	}
	var doc *canonical.Error
	if errors.As(err, &doc) {
		return ofDocument(err, doc)
	}
	for _, m := range meanings {
		if errors.Is(err, m.err) {
			return api.NewProblem(m.code, cmp.Or(m.detail, err.Error()))
		}
	}
	return api.NewProblem(api.Internal, "")
}

// ofCapability is the problem of a refusal that says more than its code. It is nil for any other error.
func (x *exchange) ofCapability(err error, now time.Time) *api.Problem {
	// What leaves an outcome open is that first, whatever it wraps.
	if errors.Is(err, state.ErrUnknown) {
		return nil
	}
	var exceeded *budget.ExceededError
	if errors.As(err, &exceeded) {
		return budgetExceeded(x.who, exceeded, now)
	}
	var busy *operation.InFlightError
	if errors.As(err, &busy) {
		p := api.NewProblem(api.InFlight, "another caller holds the operation, and its lease lives")
		p.RetryAfter = busy.RetryAfter
		return p
	}
	var large *operation.NotRetainedError
	if errors.As(err, &large) {
		p := api.NewProblem(api.ReceiptNotRetained, "it has happened; digest and length are all that is kept of its receipt")
		p.Digest, p.Length = api.DigestOf(large.Digest), new(int64(large.Length))
		return p
	}
	return ofPermit(err)
}

// permitCodes says what the reasons of a permit's refusal mean to a client.
var permitCodes = map[permit.Reason]api.Code{
	permit.ReasonMalformed:         api.PermitMalformed,
	permit.ReasonUnsupportedSchema: api.PermitUnsupportedSchema,
	permit.ReasonExpired:           api.PermitExpired,
	permit.ReasonNotYetValid:       api.PermitNotYetValid,
	permit.ReasonBindingMismatch:   api.PermitBindingMismatch,
	permit.ReasonInvalidSignature:  api.PermitSignatureInvalid,
	permit.ReasonReplayed:          api.PermitReplayed,
	permit.ReasonRevoked:           api.PermitRevoked,
	permit.ReasonFull:              api.StoreFull,
	permit.ReasonOwnerFull:         api.OwnerQuota,
	permit.ReasonHoldSettled:       api.HoldSettled,
	permit.ReasonHoldExpired:       api.HoldExpired,
}

// ofPermit is the problem of a permit that is refused. That the store did not judge it is for the store's own errors to
// say: nil.
func ofPermit(err error) *api.Problem {
	var mismatch *permit.BindingMismatchError
	if errors.As(err, &mismatch) {
		p := api.NewProblem(api.PermitBindingMismatch, "the permit is bound to another "+string(mismatch.Field))
		p.Field = string(mismatch.Field)
		return p
	}
	var refused *permit.Error
	if !errors.As(err, &refused) {
		return nil
	}
	code, ok := permitCodes[refused.Reason]
	if !ok {
		return nil
	}
	p := api.NewProblem(code, refused.Detail)
	if refused.RetryAfter > 0 {
		p.Retryable, p.RetryAfter = true, refused.RetryAfter
	}
	return p
}

// ofDocument is the problem of a request that is not as its route takes it.
func ofDocument(err error, doc *canonical.Error) *api.Problem {
	code := api.Malformed
	switch {
	case errors.Is(doc.Kind, canonical.ErrTooLarge):
		code = api.TooLarge
	case errors.Is(doc.Kind, canonical.ErrInvalid):
		code = api.Invalid
	}
	detail := doc.Reason
	var at *placeError
	if errors.As(err, &at) {
		detail = at.place + ": " + detail
	}
	p := api.NewProblem(code, detail)
	p.Pointer = doc.Pointer
	return p
}

// placeError says where, outside of the body, a value is wrong.
type placeError struct {
	place string
	err   error
}

// Error says where and what.
func (e *placeError) Error() string { return e.place + ": " + e.err.Error() }

// Unwrap returns what is wrong.
func (e *placeError) Unwrap() error { return e.err }
