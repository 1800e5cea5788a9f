package client

import (
	"context"
	"net/http"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// post sends a POST that does no more when it is sent twice.
func (c *Caller) post(ctx context.Context, what about, path string, body, answer any) error {
	return c.do(ctx, Request{Method: http.MethodPost, Path: path, Body: body, Again: true}, what, answer)
}

// Authorize mints a permit, with a hold if asked.
func (c *Caller) Authorize(ctx context.Context, p counterfoil.AuthorizeParams) (counterfoil.Authorization, error) {
	call := expected(p.Call)
	req := api.MintRequest{
		Subject: call.Subject, Capability: call.Capability, Server: call.Server, Tool: call.Tool, RequestID: call.RequestID,
		ParameterHash: call.ParameterHash, TTL: seconds(p.TTL),
	}
	if p.TTL%time.Second != 0 {
		return counterfoil.Authorization{}, aboutPermit.invalid()
	}
	if len(p.Hold) > 0 {
		req.Hold = &api.MintHold{Entries: entries(p.Hold)}
	}
	var a api.MintAnswer
	if err := c.post(ctx, aboutPermit, "/v1/permits", &req, &a); err != nil {
		return counterfoil.Authorization{}, err
	}
	if len(a.Permit) == 0 {
		return counterfoil.Authorization{}, strange(aboutPermit)
	}
	return counterfoil.Authorization{
		Permit: a.Permit, ExpiresAt: a.ExpiresAt.Time(), HoldID: string(a.HoldID), Budgets: figures(a.Budgets), Repeated: a.Repeated,
	}, nil
}

// Check verifies a permit without using it up.
func (c *Caller) Check(ctx context.Context, p counterfoil.CheckParams) (counterfoil.Checked, error) {
	var a api.CheckAnswer
	req := api.CheckRequest{Permit: wirePermit(p.Permit), Expected: expected(p.Expected)}
	if err := c.post(ctx, aboutPermit, "/v1/permits/check", &req, &a); err != nil {
		return counterfoil.Checked{}, err
	}
	shown, err := permit.Decode(p.Permit)
	if err != nil || !a.Valid {
		return counterfoil.Checked{}, strange(aboutPermit)
	}
	return counterfoil.Checked{NonceID: shown.Nonce.ID, ExpiresAt: time.Unix(shown.Nonce.ExpiresAt, 0).UTC(), HoldID: shown.Nonce.ReservedHoldID}, nil
}

// Consume uses a permit up.
func (c *Caller) Consume(ctx context.Context, p counterfoil.ConsumeParams) (counterfoil.Consumed, error) {
	mine, err := c.token(p.Token)
	if err != nil {
		return counterfoil.Consumed{}, err
	}
	var a api.ConsumeAnswer
	req := api.ConsumeRequest{Permit: wirePermit(p.Permit), Expected: expected(p.Expected), Token: wireToken(mine)}
	if err := c.post(ctx, aboutPermit, "/v1/permits/consume", &req, &a); err != nil {
		return counterfoil.Consumed{}, err
	}
	if !a.Consumed || token(a.Token) != mine {
		return counterfoil.Consumed{}, strange(aboutPermit)
	}
	return counterfoil.Consumed{NonceID: a.NonceID, HoldID: string(a.HoldID), Token: mine, Repeated: a.Repeated}, nil
}

// Hold reserves amounts in budgets.
func (c *Caller) Hold(ctx context.Context, p counterfoil.HoldParams) (counterfoil.Held, error) {
	var a api.HoldAnswer
	req := api.HoldRequest{RequestID: api.Name(p.RequestID), Entries: append([]api.Entry{}, entries(p.Entries)...), TTL: seconds(p.TTL)}
	if err := c.post(ctx, aboutHold, "/v1/holds", &req, &a); err != nil {
		return counterfoil.Held{}, err
	}
	if a.HoldID == "" {
		return counterfoil.Held{}, strange(aboutHold)
	}
	return counterfoil.Held{ID: string(a.HoldID), ExpiresAt: a.ExpiresAt.Time(), Budgets: figures(a.Budgets), Repeated: a.Repeated}, nil
}

// Void gives back what an open hold reserves. Where the budgets stand does not go over the wire.
func (c *Caller) Void(ctx context.Context, p counterfoil.VoidParams) (counterfoil.Voided, error) {
	path, err := under("/v1/holds/", p.ID, "/void", aboutHold)
	if err != nil {
		return counterfoil.Voided{}, err
	}
	var a api.VoidAnswer
	if err := c.post(ctx, aboutHold, path, struct{}{}, &a); err != nil {
		return counterfoil.Voided{}, err
	}
	if !a.Voided {
		return counterfoil.Voided{}, strange(aboutHold)
	}
	return counterfoil.Voided{}, nil
}

// Begin claims an operation.
func (c *Caller) Begin(ctx context.Context, p counterfoil.BeginParams) (counterfoil.Begun, error) {
	mine, err := c.token(p.Token)
	if err != nil {
		return counterfoil.Begun{}, err
	}
	req := api.BeginRequest{
		Key: api.Name(p.Key), Fingerprint: api.DigestOf(p.Fingerprint), Lease: seconds(p.Lease), Permit: wirePermit(p.Permit),
		HoldID: api.Digest(p.HoldID), Spend: entries(p.Spend), Metadata: p.Metadata, Token: wireToken(mine),
	}
	what := aboutClaim
	if p.HoldID != "" {
		what = aboutClaimByHold
	}
	if p.Permit != nil {
		e := expected(p.Expected)
		req.Expected, what = &e, aboutClaimByPermit
	}
	var a api.BeginAnswer
	if err := c.post(ctx, what, "/v1/operations", &req, &a); err != nil {
		return counterfoil.Begun{}, err
	}
	return begun(&a, p, mine)
}

// begun reads the answer to a begin, and makes sure that it is one: only that lets an effect happen.
func begun(a *api.BeginAnswer, p counterfoil.BeginParams, mine state.Token) (counterfoil.Begun, error) {
	o := a.Operation
	out := counterfoil.Begun{
		State: counterfoil.State(a.State), ID: string(o.ID), Key: string(o.Key), Repeated: a.Repeated, CreatedAt: o.CreatedAt.Time(),
	}
	if out.Key != p.Key || !isDigest(o.ID) {
		return counterfoil.Begun{}, strange(aboutOperation)
	}
	switch out.State {
	case counterfoil.Execute:
		if token(o.Token) != mine || o.Fence == 0 {
			return counterfoil.Begun{}, strange(aboutOperation)
		}
		out.Token, out.Fence, out.LeaseUntil, out.Budgets = mine, o.Fence, o.LeaseUntil.Time(), figures(a.Budgets)
		out.HoldID = string(o.HoldID)
		return out, nil
	case counterfoil.Replay:
		r, err := receipt(a.Receipt)
		if err != nil {
			return counterfoil.Begun{}, err
		}
		out.Receipt, out.CompletedAt = r, o.CompletedAt.Time()
		return out, nil
	}
	return counterfoil.Begun{}, strange(aboutOperation)
}

// Renew moves the end of a lease.
func (c *Caller) Renew(ctx context.Context, p counterfoil.RenewParams) (counterfoil.Renewed, error) {
	path, err := under("/v1/operations/", p.ID, "/renew", aboutOperation)
	if err != nil {
		return counterfoil.Renewed{}, err
	}
	if p.Lease == 0 {
		p.Lease = counterfoil.DefaultLease
	}
	var a api.RenewAnswer
	if err := c.post(ctx, aboutOperation, path, &api.RenewRequest{Token: wireToken(p.Token), Lease: seconds(p.Lease)}, &a); err != nil {
		return counterfoil.Renewed{}, err
	}
	if a.LeaseUntil == (api.Time{}) {
		return counterfoil.Renewed{}, strange(aboutOperation)
	}
	return counterfoil.Renewed{LeaseUntil: a.LeaseUntil.Time()}, nil
}

// Complete records a receipt and captures the hold.
func (c *Caller) Complete(ctx context.Context, p counterfoil.CompleteParams) (counterfoil.Completed, error) {
	path, err := under("/v1/operations/", p.ID, "/complete", aboutOperation)
	if err != nil {
		return counterfoil.Completed{}, err
	}
	r, err := wireReceipt(&p.Receipt)
	if err != nil {
		return counterfoil.Completed{}, err
	}
	var a api.CompleteAnswer
	req := api.CompleteRequest{Token: wireToken(p.Token), Receipt: r, Capture: capture(p.Capture)}
	if err := c.post(ctx, aboutOperation, path, &req, &a); err != nil {
		return counterfoil.Completed{}, err
	}
	if !a.Recorded {
		return counterfoil.Completed{}, strange(aboutOperation)
	}
	return counterfoil.Completed{ReceiptExpiresAt: a.ReceiptExpiresAt.Time(), Uncaptured: entriesOf(a.Uncaptured), Unsettled: a.HoldUnsettled}, nil
}

// Abort takes a claim back.
func (c *Caller) Abort(ctx context.Context, p counterfoil.AbortParams) (counterfoil.AbortResult, error) {
	path, err := under("/v1/operations/", p.ID, "/abort", aboutOperation)
	if err != nil {
		return counterfoil.AbortResult{}, err
	}
	var a api.AbortAnswer
	if err := c.post(ctx, aboutOperation, path, &api.AbortRequest{Token: wireToken(p.Token), Reason: p.Reason}, &a); err != nil {
		return counterfoil.AbortResult{}, err
	}
	if !a.Aborted {
		return counterfoil.AbortResult{}, strange(aboutOperation)
	}
	return counterfoil.AbortResult{Unsettled: a.HoldUnsettled}, nil
}

// Resolve settles an operation whose outcome was unknown.
func (c *Caller) Resolve(ctx context.Context, p counterfoil.ResolveParams) (counterfoil.ResolveResult, error) {
	path, err := under("/v1/operations/", p.ID, "/resolve", aboutOperation)
	if err != nil {
		return counterfoil.ResolveResult{}, err
	}
	req := api.ResolveRequest{Outcome: string(p.Outcome), Capture: capture(p.Capture), Note: p.Note}
	if p.Outcome == operation.Happened {
		if req.Receipt, err = wireReceipt(&p.Receipt); err != nil {
			return counterfoil.ResolveResult{}, err
		}
	}
	var a api.ResolveAnswer
	if err := c.post(ctx, aboutOperation, path, &req, &a); err != nil {
		return counterfoil.ResolveResult{}, err
	}
	switch a.State {
	case api.StateSettled, api.StateAborted:
		return counterfoil.ResolveResult{State: operation.State(a.State), Uncaptured: entriesOf(a.Uncaptured), Unsettled: a.HoldUnsettled}, nil
	}
	return counterfoil.ResolveResult{}, strange(aboutOperation)
}

// Operation tells what is known about an operation.
func (c *Caller) Operation(ctx context.Context, id string) (operation.Operation, error) {
	path, err := under("/v1/operations/", id, "", aboutOperation)
	if err != nil {
		return operation.Operation{}, err
	}
	var a api.Operation
	if err := c.do(ctx, Request{Method: http.MethodGet, Path: path, Again: true}, aboutOperation, &a); err != nil {
		return operation.Operation{}, err
	}
	return operationOf(&a)
}

// operationOf reads an operation. Fence and the end of the receipt's retention do not go over the wire.
func operationOf(a *api.Operation) (operation.Operation, error) {
	out := operation.Operation{
		ID: string(a.ID), Key: string(a.Key), Owner: string(a.Owner), State: operation.State(a.State), CreatedAt: a.CreatedAt.Time(),
		LeaseUntil: a.LeaseUntil.Time(), CompletedAt: a.CompletedAt.Time(), Metadata: a.Metadata,
		HoldID: string(a.HoldID), Unsettled: a.HoldUnsettled,
	}
	if !isDigest(a.ID) || out.State == "" {
		return operation.Operation{}, strange(aboutOperation)
	}
	if a.Receipt != nil {
		r, err := receipt(a.Receipt)
		if err != nil {
			return operation.Operation{}, err
		}
		out.Receipt = r
	}
	if n := a.NotRetained; n != nil {
		sum, _ := n.Digest.Bytes()
		out.NotRetained = &operation.NotRetained{Digest: sum, Length: int(n.Length)}
	}
	if r := a.Resolved; r != nil {
		out.Resolved = &operation.Resolution{By: r.By, Outcome: operation.Outcome(r.Outcome), Note: r.Note, At: r.At.Time()}
	}
	return out, nil
}

func isDigest(d api.Digest) bool {
	_, ok := d.Bytes()
	return ok
}

// under is the path of something that has an id of 64 hex digits.
func under(before, id, after string, what about) (string, error) {
	if !isDigest(api.Digest(id)) {
		return "", what.invalid()
	}
	return before + id + after, nil
}
