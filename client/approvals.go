package client

import (
	"context"
	"net/url"
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

// Approval tells how a request for an approval stands, without its permit. It needs the role resolve; another owner's
// request besides the role observe.
func (c *Caller) Approval(ctx context.Context, id string) (approval.Request, error) {
	var a api.Approval
	if err := c.get(ctx, aboutApproval, approvalPath(id), nil, &a); err != nil {
		return approval.Request{}, err
	}
	return requestOf(&a)
}

// Approvals lists requests for approvals by id. Scope and Owner are the caller's: other owners' show with the role observe.
func (c *Caller) Approvals(ctx context.Context, p approval.ListParams) (approval.Page, error) {
	q := page(p.Cursor, p.Limit)
	set(q, "state", string(p.State))
	var a api.ApprovalList
	if err := c.get(ctx, aboutApproval, "/v1/approvals", q, &a); err != nil {
		return approval.Page{}, err
	}
	out := approval.Page{Next: a.NextCursor}
	for i := range a.Items {
		r, err := requestOf(&a.Items[i])
		if err != nil {
			return approval.Page{}, err
		}
		out.Requests = append(out.Requests, r)
	}
	for _, id := range a.Damaged {
		out.Damaged = append(out.Damaged, string(id))
	}
	return out, nil
}

// Grant decides for a pending request: its owner gets a permit for that very call. TTL is how long it can be used, whole
// seconds, 1 s to 1 h; 0: 5 min. What no longer waits for a decision is [approval.ErrNotPending].
func (c *Caller) Grant(ctx context.Context, id string, ttl time.Duration, note string) (approval.Decided, error) {
	if ttl%time.Second != 0 {
		return approval.Decided{}, aboutApproval.invalid()
	}
	return c.decide(ctx, id, "/grant", approval.Granted, &api.GrantRequest{TTL: seconds(ttl), Note: note})
}

// Deny decides against a pending request: the call is denied for a day. As [Caller.Grant].
func (c *Caller) Deny(ctx context.Context, id, note string) (approval.Decided, error) {
	return c.decide(ctx, id, "/deny", approval.Denied, &api.DenyRequest{Note: note})
}

func (c *Caller) decide(ctx context.Context, id, verb string, to approval.State, body any) (approval.Decided, error) {
	var a api.DecisionAnswer
	if err := c.post(ctx, aboutApproval, approvalPath(id)+verb, body, &a); err != nil {
		return approval.Decided{}, err
	}
	r, err := requestOf(&a.Approval)
	if err == nil && (r.ID != id || r.State != to) {
		err = strange(aboutApproval)
	}
	return approval.Decided{Request: r, Repeated: a.Repeated}, err
}

func approvalPath(id string) string { return "/v1/approvals/" + url.PathEscape(id) }

func requestOf(a *api.Approval) (approval.Request, error) {
	if a.ID == "" || a.State == "" {
		return approval.Request{}, strange(aboutApproval)
	}
	r := approval.Request{
		ID: string(a.ID), Owner: string(a.Owner), Arguments: a.Arguments, State: approval.State(a.State),
		Call: approval.Call{
			Subject: string(a.Subject), Capability: string(a.Capability), Server: string(a.Server), Tool: string(a.Tool),
			RequestID: string(a.RequestID), ParameterHash: string(a.ParameterHash),
		},
		AskedAt: a.AskedAt.Time(), ExpiresAt: a.ExpiresAt.Time(),
	}
	if d := a.Decided; d != nil {
		r.DecidedBy, r.DecidedAt, r.Note = d.By, d.At.Time(), d.Note
	}
	return r, nil
}
