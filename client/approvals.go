package client

import (
	"context"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/permit"
)

// RequestApproval asks that an operator approves one exact call.
func (c *Caller) RequestApproval(ctx context.Context, p counterfoil.ApprovalParams) (counterfoil.Approval, error) {
	if hash, err := permit.ParameterHash(p.Arguments); err != nil || hash != p.Call.ParameterHash || p.TTL%time.Second != 0 {
		return counterfoil.Approval{}, aboutApproval.invalid()
	}
	call := expected(p.Call)
	req := api.ApprovalRequest{
		Subject: call.Subject, Capability: call.Capability, Server: call.Server, Tool: call.Tool, RequestID: call.RequestID,
		Arguments: p.Arguments, TTL: seconds(p.TTL),
	}
	var a api.ApprovalAnswer
	if err := c.post(ctx, aboutApproval, "/v1/approvals", &req, &a); err != nil {
		return counterfoil.Approval{}, err
	}
	if a.ID == "" || a.State == "" || (a.State == api.StateGranted) != (len(a.Permit) > 0) {
		return counterfoil.Approval{}, strange(aboutApproval)
	}
	return counterfoil.Approval{
		ID: string(a.ID), State: approval.State(a.State), Permit: a.Permit, ExpiresAt: a.ExpiresAt.Time(), Note: a.Note,
	}, nil
}
