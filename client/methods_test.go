package client_test

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/challenge"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

func TestBudgetsOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{})
	c, ctx := r.caller, t.Context()
	for _, d := range []budget.Definition{
		{Name: "acme", Unit: "cent", Limit: 100, Window: budget.Window{Kind: budget.Lifetime}},
		{Name: "acme/s 1", Unit: "cent", Limit: 60, Window: budget.Window{Kind: budget.Lifetime}},
		{Name: "acme/s1", Unit: "cent", Limit: 60, Window: budget.Window{Kind: state.WindowDay, Zone: "Europe/Berlin"}, Parent: "acme"},
		{Name: "acme/s1/free", Unit: "cent", Unlimited: true, Window: budget.Window{Kind: state.WindowFixed, Seconds: 60}, Parent: "acme/s1"},
	} {
		b, err := c.DefineBudget(ctx, d)
		if strings.Contains(d.Name, " ") {
			r.want("a name with a space", err, budget.ErrInvalid)
			continue
		}
		r.must(err)
		if b.Name != d.Name || b.Limit != d.Limit || b.Unlimited != d.Unlimited || b.Window != d.Window || b.Parent != d.Parent || b.Lifetime != (d.Window.Kind == budget.Lifetime) {
			t.Fatalf("defined %+v; want %+v", b, d)
		}
	}
	_, err := c.DefineBudget(ctx, budget.Definition{Name: "acme", Unit: "calls", Limit: 1, Window: budget.Window{Kind: budget.Lifetime}})
	r.want("another unit", err, budget.ErrDiffers)
	spent, err := c.Spend(ctx, budget.SpendParams{RequestID: "s", Entries: []budget.Entry{{Budget: "acme/s1/free", Amount: 20}}})
	r.must(err)
	if !spent.Limited || spent.Remaining != 40 || len(spent.Budgets) != 3 {
		t.Fatalf("spend: %+v", spent)
	}
	if again, err := c.Spend(ctx, budget.SpendParams{RequestID: "s", Entries: []budget.Entry{{Budget: "acme/s1/free", Amount: 20}}}); err != nil || !again.Repeated || again.ID != spent.ID {
		t.Fatalf("again: %+v, %v", again, err)
	}
	free, err := c.Budget(ctx, "acme/s1/free")
	r.must(err)
	if !free.Unlimited || free.Spent != 20 || free.Remaining != state.MaxAmount-20 || free.ResetsAt-free.WindowAt != 60_000 {
		t.Fatalf("budget: %+v", free)
	}
	page, err := c.Budgets(ctx, budget.ListParams{Prefix: "acme", Limit: 2})
	r.must(err)
	rest, err := c.Budgets(ctx, budget.ListParams{Prefix: "acme", Limit: 2, Cursor: page.Next})
	r.must(err)
	if len(page.Items) != 2 || len(rest.Items) != 1 || rest.Next != "" {
		t.Fatalf("lists: %+v, %+v", page, rest)
	}
	r.must(c.Refund(ctx, spent.ID))
	r.want("a spend that nobody made", c.Refund(ctx, strings.Repeat("ab", 32)), budget.ErrSpendUnknown)
	_, err = c.Budget(ctx, "nobody")
	r.want("a budget that nobody defined", err, budget.ErrBudgetUnknown)
	if n, err := c.CloseBudgets(ctx, "acme/s1"); err != nil || n != 2 {
		t.Fatalf("close: %d, %v", n, err)
	}
}

func TestApprovalsOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{})
	c, ctx := r.caller, t.Context()
	ask := func(request string) string {
		hash, err := permit.ParameterHash([]byte(`{"cents":5}`))
		r.must(err)
		a, err := c.RequestApproval(ctx, counterfoil.ApprovalParams{
			Call:      permit.Expected{Subject: "ann", Capability: "pay", Server: "bank", Tool: "transfer", RequestID: request, ParameterHash: hash},
			Arguments: []byte(`{"cents":5}`),
		})
		r.must(err)
		return a.ID
	}
	yes, no := ask("yes"), ask("no")
	// The answer to a grant that is lost is asked for again.
	r.lose(lostReply)
	done, err := c.Grant(ctx, yes, time.Minute, "fine")
	r.must(err)
	if done.State != approval.Granted || !done.Repeated || done.Note != "fine" || done.DecidedAt.IsZero() || !done.ExpiresAt.Equal(r.Clock.Now().Add(time.Minute)) {
		t.Fatalf("granted: %+v", done)
	}
	if done, err = c.Deny(ctx, no, ""); err != nil || done.State != approval.Denied || done.Repeated {
		t.Fatalf("denied: %+v, %v", done, err)
	}
	_, err = c.Deny(ctx, yes, "")
	r.want("the other decision", err, approval.ErrNotPending)
	_, err = c.Grant(ctx, no, 0, "")
	r.want("the other decision", err, approval.ErrNotPending)
	_, err = c.Grant(ctx, no, time.Second/2, "")
	r.want("half a second", err, approval.ErrInvalid)
	_, err = c.Grant(ctx, strings.Repeat("ab", 32), 0, "")
	r.want("what nobody asked for", err, approval.ErrNotFound)
	got, err := c.Approval(ctx, yes)
	r.must(err)
	if got.Owner != "ann" || got.Call.Tool != "transfer" || string(got.Arguments) != `{"cents":5}` || got.State != approval.Granted || got.DecidedBy == "" || got.AskedAt.IsZero() {
		t.Fatalf("approval: %+v", got)
	}
	first, err := c.Approvals(ctx, approval.ListParams{Limit: 1})
	r.must(err)
	second, err := c.Approvals(ctx, approval.ListParams{Limit: 1, Cursor: first.Next})
	r.must(err)
	denied, err := c.Approvals(ctx, approval.ListParams{State: approval.Denied})
	r.must(err)
	if len(first.Requests) != 1 || len(second.Requests) != 1 || first.Requests[0].ID == second.Requests[0].ID || len(denied.Requests) != 1 || denied.Requests[0].ID != no {
		t.Fatalf("lists: %+v, %+v, %+v", first, second, denied)
	}
}

func TestHoldsOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{})
	c, ctx := r.caller, t.Context()
	_, err := c.DefineBudget(ctx, budget.Definition{Name: "b", Unit: "cent", Limit: 100, Window: budget.Window{Kind: budget.Lifetime}})
	r.must(err)
	hold := func(id string) string {
		h, err := c.Hold(ctx, counterfoil.HoldParams{RequestID: id, Entries: []counterfoil.Entry{{Budget: "b", Amount: 10}}, TTL: time.Minute})
		r.must(err)
		return h.ID
	}
	first := hold("first")
	e, err := c.Extend(ctx, budget.ExtendParams{HoldID: first, TTL: time.Hour})
	r.must(err)
	if e.ExpiresAt.Before(r.Clock.Now().Add(time.Hour)) {
		t.Fatalf("extend: %+v", e)
	}
	got, err := c.Capture(ctx, budget.CaptureParams{HoldID: first, Capture: &[]budget.Entry{{Budget: "b", Amount: 4}}})
	r.must(err)
	if len(got.Captured) != 1 || got.Captured[0].Amount != 4 || got.Budgets[0].Spent != 4 {
		t.Fatalf("capture: %+v", got)
	}
	whole := hold("whole")
	if got, err = c.Capture(ctx, budget.CaptureParams{HoldID: whole}); err != nil || got.Captured[0].Amount != 10 {
		t.Fatalf("capture of all: %+v, %v", got, err)
	}
	v, err := c.GetHold(ctx, whole)
	r.must(err)
	if v.State != budget.HoldCaptured || len(v.Entries) != 1 {
		t.Fatalf("hold: %+v", v)
	}
	_, err = c.Capture(ctx, budget.CaptureParams{HoldID: first, Capture: &[]budget.Entry{}, Token: state.Token{9}})
	r.want("another token", err, budget.ErrNotHolder)
	_, err = c.GetHold(ctx, strings.Repeat("ab", 32))
	r.want("a hold that nobody made", err, budget.ErrHoldUnknown)
}

func TestChallengesOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{})
	c, ctx, job := r.caller, t.Context(), challenge.Job{1}
	_, err := c.Lookup(ctx, challenge.LookupParams{Job: job})
	r.want("none yet", err, challenge.ErrUnknownJob)
	issued, err := c.Issue(ctx, challenge.IssueParams{Job: job, TTL: time.Minute})
	r.must(err)
	_, err = c.Issue(ctx, challenge.IssueParams{Job: job})
	r.want("pending", err, challenge.ErrAlreadyPending)
	_, err = c.ConsumeChallenge(ctx, challenge.ConsumeParams{Job: job, Epoch: issued.Epoch})
	r.want("another nonce", err, challenge.ErrMismatch)
	_, err = c.ConsumeChallenge(ctx, challenge.ConsumeParams{Job: job, Nonce: issued.Nonce, Epoch: issued.Epoch + 1})
	r.want("another epoch", err, challenge.ErrStaleEpoch)
	used, err := c.ConsumeChallenge(ctx, challenge.ConsumeParams{Job: job, Nonce: issued.Nonce, Epoch: issued.Epoch})
	r.must(err)
	_, err = c.ConsumeChallenge(ctx, challenge.ConsumeParams{Job: job, Nonce: issued.Nonce, Epoch: issued.Epoch})
	r.want("again", err, challenge.ErrAlreadyConsumed)
	found, err := c.Lookup(ctx, challenge.LookupParams{Job: job})
	r.must(err)
	if found.State != challenge.StateConsumed || found.Epoch != issued.Epoch || used.ConsumedAt.IsZero() {
		t.Fatalf("lookup: %+v", found)
	}
	_, err = c.AdvanceEpoch(ctx, challenge.AdvanceParams{From: 7})
	r.want("not the epoch", err, challenge.ErrEpochConflict)
	if e, err := c.Epoch(ctx); err != nil || e.Epoch != 1 {
		t.Fatalf("epoch: %+v, %v", e, err)
	}
}

func TestAdministrationOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{})
	c, ctx := r.caller, t.Context()
	grant := access.Grant{
		Name: "worker", Scope: "default", Owner: "w", Roles: []access.Role{access.Operate, access.Read}, Budgets: []string{"acme"},
		Always: []access.Entry{{Budget: "acme/calls", Amount: 1}}, Require: access.RequireBudget,
	}
	made, token, err := c.CreateToken(ctx, grant)
	r.must(err)
	if made.Name != "worker" || made.Owner != "w" || made.Created.IsZero() || len(token.Reveal()) != access.TokenLength {
		t.Fatalf("token: %+v", made)
	}
	_, _, err = c.CreateToken(ctx, grant)
	r.want("again", err, access.ErrExists)
	list, _, err := c.Tokens(ctx, "", 0)
	r.must(err)
	if len(list) != 1 || list[0].Require != access.RequireBudget || len(list[0].Always) != 1 || list[0].Budgets[0] != "acme" {
		t.Fatalf("tokens: %+v", list)
	}
	worker, err := client.New(client.Options{URL: r.url, Token: token.Reveal(), RetryFor: -1})
	r.must(err)
	_, err = worker.As("", "").Begin(ctx, begin("k"))
	r.want("without a budget", err, access.ErrForbidden)
	_, err = worker.As("", "other").Operations(ctx, operation.ListParams{})
	r.want("as another owner", err, access.ErrForbidden)
	r.must(c.RevokeToken(ctx, "worker"))
	_, err = worker.As("", "").Operations(ctx, operation.ListParams{})
	r.want("revoked", err, access.ErrUnauthenticated)
	r.want("a token that nobody has", c.RevokeToken(ctx, "nobody"), access.ErrNotFound)

	_, err = c.CreateScope(ctx, "acme")
	r.must(err)
	scopes, _, err := c.Scopes(ctx, "", 0)
	r.must(err)
	if len(scopes) != 2 || scopes[0].Name != "acme" || scopes[0].Epoch != 1 {
		t.Fatalf("scopes: %+v", scopes)
	}
	admin, err := client.New(client.Options{URL: r.url, Token: r.admin})
	r.must(err)
	if _, err := admin.As("acme", "ann").Begin(ctx, begin("k")); err != nil {
		t.Fatalf("in another scope: %v", err)
	}
	_, err = admin.As("nowhere", "ann").Begin(ctx, begin("k"))
	r.want("in a scope that nobody made", err, state.ErrNoScope)

	added, err := c.RotateKey(ctx)
	r.must(err)
	public, _, err := ed25519.GenerateKey(nil)
	r.must(err)
	_, err = c.TrustKey(ctx, permit.PublicKey(public))
	r.must(err)
	keys, err := c.Keys(ctx)
	r.must(err)
	if len(keys) != 3 || keys[0].State != api.KeySigning || keys[1] != added || keys[2].State != api.KeyTrusted {
		t.Fatalf("keys: %+v", keys)
	}
	r.must(c.RetireKey(ctx, permit.PublicKey(public)))
	floor, err := c.Revoke(ctx, permit.RevokeParams{Subject: "agent"})
	r.must(err)
	if !floor.Floor.After(r.Clock.Now()) {
		t.Fatalf("floor: %+v", floor)
	}
	_, err = c.Authorize(ctx, counterfoil.AuthorizeParams{Call: call("r")})
	r.want("under a revocation", err, permit.ErrRevoked)
	if client.RetryAfter(err) <= 0 {
		t.Fatalf("no time to wait in %v", err)
	}
	r.want("a copy of memory", c.Backup(ctx, t.TempDir()+"/b"), state.ErrInvalid)
	ready, err := c.Ready(ctx)
	r.must(err)
	if !ready.Ready || ready.Engine != "memory" || ready.Guarantee != "process" {
		t.Fatalf("ready: %+v", ready)
	}
}

func TestOperationsOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{})
	c, ctx := r.caller, t.Context()
	for _, key := range []string{"a", "b", "c"} {
		_, err := c.Begin(ctx, begin(key))
		r.must(err)
		r.Clock.Advance(time.Second)
	}
	page, err := c.Operations(ctx, operation.ListParams{Limit: 2})
	r.must(err)
	rest, err := c.Operations(ctx, operation.ListParams{Limit: 2, Cursor: page.Next})
	r.must(err)
	if len(page.Operations) != 2 || len(rest.Operations) != 1 || rest.Next != "" || page.Operations[0].State != operation.InFlight {
		t.Fatalf("lists: %+v, %+v", page, rest)
	}
	r.Clock.Advance(time.Hour)
	late, err := c.Operations(ctx, operation.ListParams{State: operation.OutcomeUnknown, Owner: "ann"})
	r.must(err)
	if len(late.Operations) != 3 || late.Operations[0].Key != "a" {
		t.Fatalf("outcome unknown: %+v", late)
	}
	_, err = c.Operations(ctx, operation.ListParams{State: "nonsense"})
	r.want("a state", err, operation.ErrInvalid)
}
