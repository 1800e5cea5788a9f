package mcpguard

import (
	"context"
	"errors"
)

// approvalError is a call that no operator has approved.
type approvalError struct{ refusal *Refusal }

func (*approvalError) Error() string { return "mcpguard: the call is not approved" }

// approval asks for the approval of the call, and gives the permit of one that is granted.
func (s *guarded) approval(context.Context) ([]byte, error) {
	return nil, errors.ErrUnsupported
}
