// Package guard holds what the guards in front of HTTP handlers and of MCP tools share: what a refusal of
// [counterfoil.Caller] means to whoever called them, in the codes of package api. It is one table, so that the same refusal
// has the same name in front of everything.
package guard

import (
	"errors"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
)

// meanings says what a refusal of the Caller means to a client. The first that errors.Is finds counts, so that what leaves
// it open comes first. Whatever is not here is internal, and no yes.
var meanings = []struct {
	err    error
	code   api.Code
	detail string
}{
	{counterfoil.ErrUnknown, api.CommitUnknown, "the claim may have been recorded or not; nothing was called. Send the request again with the same key"},
	{counterfoil.ErrLatched, api.Latched, "the store is closed; nothing was called"},
	{counterfoil.ErrClock, api.ClockRefused, "the clock of the store cannot be trusted; nothing was called"},
	{counterfoil.ErrKeyUnknown, api.KeyUnknown, "the store has other integrity keys; nothing was called"},
	{counterfoil.ErrCorrupt, api.RecordCorrupt, "a record of this key is damaged; nothing was called"},
	{counterfoil.ErrUnavailable, api.StoreUnavailable, "nothing was called"},
	{counterfoil.ErrRecovering, api.Recovering, "nothing was called"},
	{counterfoil.ErrInvalid, api.Invalid, "a value of the call is never accepted; nothing was called"},
	{counterfoil.ErrStale, api.Stale, "the claim came too late; nothing was called"},
	{counterfoil.ErrFull, api.StoreFull, "nothing was called"},
	{counterfoil.ErrOwnerFull, api.OwnerQuota, "nothing was called"},
	{operation.ErrOutcomeUnknown, api.OutcomeUnknown, "an earlier request of this key ended without a receipt; an operator must find out and resolve it"},
	{operation.ErrMismatch, api.KeyReused, "use a new key for a new request"},
	{operation.ErrKeyExpired, api.KeyExpired, "it has happened, and its answer is no longer kept"},
	{budget.ErrBudgetUnknown, api.BudgetUnknown, "a budget of this call is not defined; nothing was called"},
}

// permitCodes says what the reasons of a permit's refusal mean to a client.
var permitCodes = map[permit.Reason]api.Code{
	permit.ReasonMalformed: api.PermitMalformed, permit.ReasonUnsupportedSchema: api.PermitUnsupportedSchema,
	permit.ReasonExpired: api.PermitExpired, permit.ReasonNotYetValid: api.PermitNotYetValid,
	permit.ReasonInvalidSignature: api.PermitSignatureInvalid, permit.ReasonReplayed: api.PermitReplayed,
	permit.ReasonRevoked: api.PermitRevoked, permit.ReasonFull: api.StoreFull, permit.ReasonOwnerFull: api.OwnerQuota,
	permit.ReasonHoldSettled: api.HoldSettled, permit.ReasonHoldExpired: api.HoldExpired,
}

// Problem says what a refusal of a [counterfoil.Caller] means to a client. Nothing in it repeats a value of the request or
// a figure of a budget. An error that no refusal is known for is internal.
func Problem(err error, now time.Time) *api.Problem {
	if !errors.Is(err, counterfoil.ErrUnknown) {
		if p := detailed(err, now); p != nil {
			return p
		}
	}
	for _, m := range meanings {
		if errors.Is(err, m.err) {
			p := api.NewProblem(m.code, m.detail)
			p.Retryable = p.Retryable || m.code == api.CommitUnknown
			return p
		}
	}
	return api.NewProblem(api.Internal, "")
}

// detailed is the problem of a refusal that says more than its code, nil for any other.
func detailed(err error, now time.Time) *api.Problem {
	var busy *operation.InFlightError
	if errors.As(err, &busy) {
		p := api.NewProblem(api.InFlight, "another request of this key is at work")
		p.RetryAfter = max(busy.RetryAfter, time.Second)
		return p
	}
	var large *operation.NotRetainedError
	if errors.As(err, &large) {
		p := api.NewProblem(api.ReceiptNotRetained, "it has happened, and its answer was too large to keep")
		p.Digest, p.Length = api.DigestOf(large.Digest), new(int64(large.Length))
		return p
	}
	var exceeded *budget.ExceededError
	if errors.As(err, &exceeded) {
		return overBudget(exceeded, now)
	}
	var mismatch *permit.BindingMismatchError
	if errors.As(err, &mismatch) {
		p := api.NewProblem(api.PermitBindingMismatch, "the permit is bound to another "+string(mismatch.Field))
		p.Field = string(mismatch.Field)
		return p
	}
	var refused *permit.Error
	if errors.As(err, &refused) {
		if code, ok := permitCodes[refused.Reason]; ok {
			p := api.NewProblem(code, refused.Detail)
			if refused.RetryAfter > 0 {
				p.Retryable, p.RetryAfter = true, refused.RetryAfter
			}
			return p
		}
	}
	return nil
}

// overBudget names the budgets in the way. Their figures are the operator's, and not shown to whoever calls an API.
func overBudget(e *budget.ExceededError, now time.Time) *api.Problem {
	p := api.NewProblem(api.BudgetExceeded, "a budget of this call is used up; nothing was called")
	for i := range e.Refused {
		p.Refused = append(p.Refused, api.RefusedBudget{Budget: api.BudgetName(e.Refused[i].Name)})
	}
	if at, helps := e.RetryAt(); helps {
		p.Status, p.Retryable, p.RetryAfter = api.StatusRetryBudget, true, max(at.Sub(now), time.Second)
	}
	return p
}
