package server

import (
	"context"
	"net/http"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/permit"
)

// approvalRoutes are about calls that wait for a person.
func (s *Server) approvalRoutes() []Route {
	return []Route{
		handle(Route{
			Method: http.MethodPost, Path: "/v1/approvals",
			Doc:      "Asks that an operator approves one exact call (201), or tells where that request stands (200). Granted, it comes with a permit.",
			Statuses: []int{http.StatusCreated, http.StatusOK}, MaxBody: s.limits.Arguments, Codes: begins,
		}, s.askApproval),
		handle(Route{Method: http.MethodGet, Path: "/v1/approvals", Doc: "Lists requests for approvals by id, with their arguments."}, s.listApprovals),
		handle(Route{Method: http.MethodGet, Path: "/v1/approvals/{id}", Doc: "Shows a request for an approval."}, s.readApproval),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/approvals/{id}/grant", Doc: "Grants a pending request: its owner gets a permit for that very call.",
			Codes: with(writes, api.NotPending, api.PermitRevoked, api.Recovering),
		}, s.grantApproval),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/approvals/{id}/deny", Doc: "Denies a pending request: the call stays denied for a day.",
			Codes: with(writes, api.NotPending, api.Recovering),
		}, s.denyApproval),
	}
}

func (s *Server) askApproval(ctx context.Context, who *access.Principal, req *api.ApprovalRequest) (int, *api.ApprovalAnswer, error) {
	hash, err := parameterHash(req.Arguments, "", "/arguments")
	if err != nil {
		return 0, nil, err
	}
	asked, err := s.caller(who).RequestApproval(ctx, counterfoil.ApprovalParams{
		Call: permit.Expected{
			Subject: string(req.Subject), Capability: string(req.Capability), Server: string(req.Server), Tool: string(req.Tool),
			RequestID: string(req.RequestID), ParameterHash: string(hash),
		},
		Arguments: req.Arguments, TTL: req.TTL.Duration(),
	})
	if err != nil {
		return 0, nil, err
	}
	status := http.StatusOK
	if asked.Fresh {
		status = http.StatusCreated
	}
	return status, &api.ApprovalAnswer{
		ID: api.Digest(asked.ID), State: string(asked.State), ExpiresAt: timeOf(asked.ExpiresAt), Note: asked.Note, Permit: asked.Permit,
	}, nil
}

// judged is whose requests a principal may see and decide, "" for everybody's.
func judged(who *access.Principal) string {
	if who.Allows(access.Observe) {
		return ""
	}
	return who.Owner
}

func (s *Server) listApprovals(ctx context.Context, who *access.Principal, req *api.ApprovalsRequest) (int, *api.ApprovalList, error) {
	page, err := s.core.Approvals.List(ctx, approval.ListParams{
		Scope: who.Scope, Owner: judged(who), State: approval.State(req.State), Cursor: req.Cursor, Limit: req.Limit,
	})
	if err != nil {
		return 0, nil, err
	}
	out := &api.ApprovalList{List: api.List[api.Approval]{Items: make([]api.Approval, 0, len(page.Requests)), NextCursor: page.Next}}
	for i := range page.Requests {
		out.Items = append(out.Items, approvalView(&page.Requests[i]))
	}
	for _, id := range page.Damaged {
		out.Damaged = append(out.Damaged, api.Digest(id))
	}
	return http.StatusOK, out, nil
}

func (s *Server) readApproval(ctx context.Context, who *access.Principal, req *api.ApprovalIDRequest) (int, *api.Approval, error) {
	q, err := s.core.Approvals.Get(ctx, approval.GetParams{Scope: who.Scope, Owner: judged(who), ID: string(req.ID)})
	if err != nil {
		return 0, nil, err
	}
	view := approvalView(&q)
	return http.StatusOK, &view, nil
}

func (s *Server) grantApproval(ctx context.Context, who *access.Principal, req *api.GrantRequest) (int, *api.DecisionAnswer, error) {
	done, err := s.core.Grant(ctx, counterfoil.GrantParams{DecideParams: deciding(who, req.ID, req.Note), TTL: req.TTL.Duration()})
	return decided(&done, err)
}

func (s *Server) denyApproval(ctx context.Context, who *access.Principal, req *api.DenyRequest) (int, *api.DecisionAnswer, error) {
	done, err := s.core.Approvals.Deny(ctx, deciding(who, req.ID, req.Note))
	return decided(&done, err)
}

func deciding(who *access.Principal, id api.Digest, note string) approval.DecideParams {
	return approval.DecideParams{Scope: who.Scope, Owner: judged(who), ID: string(id), By: who.Token, Note: note}
}

func decided(done *approval.Decided, err error) (int, *api.DecisionAnswer, error) {
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.DecisionAnswer{Approval: approvalView(&done.Request), Repeated: done.Repeated}, nil
}

func approvalView(q *approval.Request) api.Approval {
	c := &q.Call
	out := api.Approval{
		ID: api.Digest(q.ID), State: string(q.State), Owner: api.Name(q.Owner), Subject: api.Name(c.Subject), Capability: api.Name(c.Capability),
		Server: api.Name(c.Server), Tool: api.Name(c.Tool), RequestID: api.Name(c.RequestID), Arguments: q.Arguments,
		ParameterHash: api.Digest(c.ParameterHash), AskedAt: timeOf(q.AskedAt), ExpiresAt: timeOf(q.ExpiresAt),
	}
	if !q.DecidedAt.IsZero() {
		out.Decided = &api.Decision{By: q.DecidedBy, At: timeOf(q.DecidedAt), Note: q.Note}
	}
	return out
}
