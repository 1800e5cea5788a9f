package server

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
)

// operationRoutes are about effects that must not happen twice.
func (s *Server) operationRoutes() []Route {
	holders := with(writes, api.NotPending, api.NotHolder, api.OutcomeUnknown, api.Aborted, api.KeyExpired)
	begin := with(begins, permitRefusals...)
	begin = with(begin, api.KeyReused, api.InFlight, api.OutcomeUnknown, api.KeyExpired, api.ReceiptNotRetained, api.Aborted,
		api.BudgetUnknown, api.BudgetExceeded)
	return []Route{
		handle(Route{
			Method: http.MethodPost, Path: "/v1/operations", Doc: "Claims an operation, uses its permit, takes over its hold and spends, all or nothing: execute (201) or replay (200).",
			Statuses: []int{http.StatusCreated, http.StatusOK}, MaxBody: s.limits.Arguments, Codes: begin,
		}, s.begin),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/operations/{id}/complete", Doc: "Records what an operation came to, and charges its hold.",
			MaxBody: s.limits.Receipt, Codes: holders,
		}, s.complete),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/operations/{id}/renew", Doc: "Prolongs the lease of an operation that is being executed.", Codes: holders,
		}, s.renew),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/operations/{id}/abort", Doc: "Gives an operation back whose effect provably did not happen, with its hold and spends.", Codes: holders,
		}, s.abort),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/operations/{id}/resolve", Doc: "Decides an operation whose outcome is unknown, or whose record is damaged, by what an operator found out.",
			MaxBody: s.limits.Receipt, Codes: with(writes, api.InFlight, api.NotPending, api.NotHolder, api.KeyExpired),
		}, s.resolve),
		handle(Route{Method: http.MethodGet, Path: "/v1/operations/{id}", Doc: "Shows how an operation stands, with its receipt."}, s.readOperation),
		handle(Route{
			Method: http.MethodGet, Path: "/v1/operations", Doc: "Lists operations by id, those of unknown outcome by the end of their lease, without receipts.",
		}, s.listOperations),
	}
}

func (s *Server) begin(ctx context.Context, who *access.Principal, req *api.BeginRequest) (int, *api.BeginAnswer, error) {
	params, err := s.beginParams(who, req)
	if err != nil {
		return 0, nil, err
	}
	if req.HoldID != "" {
		if err := s.mayUseHold(ctx, who, req.HoldID); err != nil {
			return 0, nil, err
		}
	}
	begun, err := s.caller(who).Begin(ctx, params)
	if err != nil {
		return 0, nil, inEntries(err, "/spend", req.Spend)
	}
	answer := &api.BeginAnswer{
		State:     string(begun.State),
		Operation: api.Grant{ID: api.Digest(begun.ID), Key: api.Name(begun.Key), CreatedAt: timeOrNone(begun.CreatedAt)},
		Repeated:  begun.Repeated,
	}
	grant := &answer.Operation
	switch begun.State {
	case counterfoil.Execute:
		grant.Token, grant.Fence, grant.LeaseUntil = api.TokenFrom(begun.Token), begun.Fence, timeOf(begun.LeaseUntil)
		grant.HoldID = api.Digest(begun.HoldID)
		if len(begun.Budgets) > 0 {
			answer.Budgets = figuresOf(who, begun.Budgets)
		}
		return http.StatusCreated, answer, nil
	case counterfoil.Replay:
		grant.CompletedAt, answer.Receipt = timeOf(begun.CompletedAt), receiptView(begun.Receipt)
		return http.StatusOK, answer, nil
	}
	return 0, nil, api.NewProblem(api.Internal, "")
}

func (s *Server) beginParams(who *access.Principal, req *api.BeginRequest) (counterfoil.BeginParams, error) {
	none := counterfoil.BeginParams{}
	if (req.Spend != nil || req.HoldID != "") && !who.Allows(access.Spend) {
		return none, api.NewProblem(api.Forbidden, "a begin with spend or hold_id also needs the role spend")
	}
	if err := required(who, req); err != nil {
		return none, err
	}
	params := counterfoil.BeginParams{
		Key: string(req.Key), Lease: req.Lease.Duration(), Permit: req.Permit, HoldID: string(req.HoldID),
		Metadata: req.Metadata, Token: tokenOf(req.Token),
	}
	fingerprint, err := parameterHash(req.Request, req.Fingerprint, "/request")
	if err != nil {
		return none, err
	}
	params.Fingerprint = bytes32(fingerprint)
	if req.Expected != nil {
		if params.Expected, err = expected(req.Expected); err != nil {
			return none, err
		}
	}
	if req.Spend != nil {
		if params.Spend, err = entriesOf(who, req.Spend); err != nil {
			return none, err
		}
	}
	return params, nil
}

// required refuses a begin that lacks what the token demands of each.
func required(who *access.Principal, req *api.BeginRequest) error {
	switch who.Require {
	case access.RequirePermit:
		if req.Permit == nil {
			return api.NewProblem(api.Forbidden, "each begin of this token must carry a permit")
		}
	case access.RequireBudget:
		if !takes(req.Spend) && req.HoldID == "" && !carriesHold(req.Permit) {
			return api.NewProblem(api.Forbidden, "each begin of this token must carry a spend above 0 or a hold")
		}
	case access.RequireNothing:
	}
	return nil
}

// takes reports whether anything is spent: an amount of 0 is free, and bounds nothing.
func takes(spend []api.Entry) bool {
	return slices.ContainsFunc(spend, func(e api.Entry) bool { return e.Amount > 0 })
}

// carriesHold reports whether a permit names a hold. One that cannot be read is refused as a permit, later.
func carriesHold(wire []byte) bool {
	if wire == nil {
		return false
	}
	p, err := permit.Decode(wire)
	return err != nil || p.Nonce.ReservedHoldID != ""
}

// receiptOf reads a receipt; nil is an empty one.
func receiptOf(r *api.Receipt, pointer string) (operation.Receipt, error) {
	if r == nil {
		return operation.Receipt{}, nil
	}
	out := operation.Receipt{Status: r.Status, ContentType: r.ContentType, Body: r.Body, JSON: r.Body != nil}
	if r.Headers != nil {
		out.Headers = make(map[string][]string, len(r.Headers))
		for name, values := range r.Headers {
			out.Headers[name] = values
		}
	}
	if r.Body64 != nil {
		body, err := base64.StdEncoding.Strict().DecodeString(*r.Body64)
		if err != nil {
			p := api.NewProblem(api.Invalid, "want base64 with padding (RFC 4648 section 4)")
			p.Pointer = pointer + "/body_base64"
			return out, p
		}
		out.Body = body
	}
	return out, nil
}

// receiptView shows a receipt as it was given.
func receiptView(r *operation.Receipt) *api.Receipt {
	if r == nil {
		return nil
	}
	out := &api.Receipt{Status: r.Status, ContentType: r.ContentType}
	if r.Headers != nil {
		out.Headers = make(api.Headers, len(r.Headers))
		for name, values := range r.Headers {
			out.Headers[name] = values
		}
	}
	switch {
	case r.JSON:
		out.Body = r.Body
	case len(r.Body) > 0:
		out.Body64 = new(base64.StdEncoding.EncodeToString(r.Body))
	}
	return out
}

// captureOf reads what a hold is to be charged: nil is all of it. Which budgets may be charged was decided when the hold
// was made; to refuse one here would leave an effect unrecorded.
func captureOf(given []api.Entry) *[]counterfoil.Entry {
	if given == nil {
		return nil
	}
	out := make([]counterfoil.Entry, len(given))
	for i, e := range given {
		out[i] = counterfoil.Entry{Budget: string(e.Budget), Amount: e.Amount}
	}
	return &out
}

func (s *Server) complete(ctx context.Context, who *access.Principal, req *api.CompleteRequest) (int, *api.CompleteAnswer, error) {
	receipt, err := receiptOf(req.Receipt, "/receipt")
	if err != nil {
		return 0, nil, err
	}
	done, err := s.caller(who).Complete(ctx, counterfoil.CompleteParams{
		ID: string(req.ID), Token: tokenOf(req.Token), Receipt: receipt, Capture: captureOf(req.Capture),
	})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.CompleteAnswer{
		Recorded: true, ReceiptExpiresAt: timeOf(done.ReceiptExpiresAt), Uncaptured: entriesView(done.Uncaptured), HoldUnsettled: done.Unsettled,
	}, nil
}

func (s *Server) renew(ctx context.Context, who *access.Principal, req *api.RenewRequest) (int, *api.RenewAnswer, error) {
	done, err := s.caller(who).Renew(ctx, counterfoil.RenewParams{ID: string(req.ID), Token: tokenOf(req.Token), Lease: req.Lease.Duration()})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.RenewAnswer{LeaseUntil: timeOf(done.LeaseUntil)}, nil
}

func (s *Server) abort(ctx context.Context, who *access.Principal, req *api.AbortRequest) (int, *api.AbortAnswer, error) {
	done, err := s.caller(who).Abort(ctx, counterfoil.AbortParams{ID: string(req.ID), Token: tokenOf(req.Token), Reason: req.Reason})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.AbortAnswer{Aborted: true, HoldUnsettled: done.Unsettled}, nil
}

func (s *Server) resolve(ctx context.Context, who *access.Principal, req *api.ResolveRequest) (int, *api.ResolveAnswer, error) {
	receipt, err := receiptOf(req.Receipt, "/receipt")
	if err != nil {
		return 0, nil, err
	}
	done, err := s.caller(who).Resolve(ctx, counterfoil.ResolveParams{
		ID: string(req.ID), Outcome: operation.Outcome(req.Outcome), Receipt: receipt, Capture: captureOf(req.Capture), Note: req.Note,
	})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.ResolveAnswer{State: string(done.State), Uncaptured: entriesView(done.Uncaptured), HoldUnsettled: done.Unsettled}, nil
}

func (s *Server) readOperation(ctx context.Context, who *access.Principal, req *api.OperationRequest) (int, *api.Operation, error) {
	op, err := s.caller(who).Operation(ctx, string(req.ID))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, operationView(&op), nil
}

func operationView(op *operation.Operation) *api.Operation {
	out := &api.Operation{
		ID: api.Digest(op.ID), Key: api.Name(op.Key), Owner: api.Name(op.Owner), State: string(op.State), CreatedAt: timeOf(op.CreatedAt),
		LeaseUntil: timeOrNone(op.LeaseUntil), CompletedAt: timeOrNone(op.CompletedAt), Receipt: receiptView(op.Receipt),
		Metadata: op.Metadata, HoldID: api.Digest(op.HoldID), HoldUnsettled: op.Unsettled,
	}
	if r := op.Resolved; r != nil {
		out.Resolved = &api.Resolution{By: r.By, Outcome: string(r.Outcome), Note: r.Note, At: timeOf(r.At)}
	}
	if n := op.NotRetained; n != nil {
		out.NotRetained = &api.NotRetained{Digest: api.DigestOf(n.Digest), Length: int64(n.Length)}
	}
	return out
}

func timeOrNone(at time.Time) api.Time {
	if at.IsZero() {
		return api.Time{}
	}
	return timeOf(at)
}

func (s *Server) listOperations(ctx context.Context, who *access.Principal, req *api.OperationsRequest) (int, *api.OperationList, error) {
	owner := string(req.Owner)
	if !who.Allows(access.Observe) {
		if owner != "" && owner != who.Owner {
			return 0, nil, api.NewProblem(api.Forbidden, "another owner's operations need the role observe")
		}
		owner = who.Owner
	}
	page, err := s.core.Operations.List(ctx, operation.ListParams{
		Scope: who.Scope, Owner: owner, State: operation.State(req.State), Cursor: req.Cursor, Limit: req.Limit,
	})
	if err != nil {
		return 0, nil, err
	}
	out := &api.OperationList{List: api.List[api.Operation]{Items: make([]api.Operation, 0, len(page.Operations)), NextCursor: page.Next}}
	for i := range page.Operations {
		out.Items = append(out.Items, *operationView(&page.Operations[i]))
	}
	for _, id := range page.Damaged {
		out.Damaged = append(out.Damaged, api.Digest(id))
	}
	return http.StatusOK, out, nil
}
