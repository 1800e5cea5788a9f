package mcpguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/approval"
)

// maxShown is how many bytes of arguments an operator can be shown.
const maxShown = 64 << 10

// pollApproval is when a model should ask again whether its call is approved, in seconds.
const pollApproval = 10

// approvalError is a call that no operator has approved.
type approvalError struct{ refusal *Refusal }

func (e *approvalError) Error() string { return "mcpguard: " + e.refusal.said() }

// approval asks for the approval of the call, and gives the permit of one that is granted.
func (s *guarded) approval(ctx context.Context) ([]byte, error) {
	if len(s.call.arguments) > maxShown {
		return nil, &approvalError{invalid(fmt.Sprintf("the arguments have more than %d bytes, and no person can be asked to approve them", maxShown))}
	}
	a, err := s.caller.RequestApproval(ctx, counterfoil.ApprovalParams{
		Call: s.claim.begin.Expected, Arguments: s.call.arguments, TTL: s.claim.policy.ApprovalTTL,
	})
	if err != nil {
		return nil, err
	}
	switch {
	case a.State == approval.Granted && len(a.Permit) > 0:
		return a.Permit, nil
	case a.State == approval.Denied:
		return nil, &approvalError{&Refusal{Code: ApprovalDenied, Approval: a.ID, text: noted(a.Note)}}
	case a.State == approval.Pending:
		return nil, &approvalError{&Refusal{
			Code: ApprovalPending, Approval: a.ID, Retryable: true, RetryAfter: pollApproval,
			text: "The request has the id " + a.ID + ", and waits until " + a.ExpiresAt.UTC().Format("2006-01-02T15:04:05Z") + ".",
		}}
	}
	return nil, fmt.Errorf("mcpguard: an approval of an unknown state: %w", errors.ErrUnsupported)
}

func noted(note string) string {
	if note == "" {
		return ""
	}
	return "The person said: " + note
}
