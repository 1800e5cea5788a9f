package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// answerTo is what a client gets when its request ends with err.
func (r *rig) answerTo(t *testing.T, err error, x *exchange) (api.Problem, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	x.ResponseWriter = w
	x.r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/x", nil)
	r.server.refuse(x, err)
	a := reply{status: w.Code, header: w.Header(), body: w.Body.String()}
	return a.problem(t), w.Header()
}

func TestEveryErrorHasItsCodeThroughEveryWrapper(t *testing.T) {
	t.Parallel()
	r := prepared(t, Limits{})
	joined := func(errs ...error) error { return fmt.Errorf("a: %w", errors.Join(errs...)) }
	for name, c := range map[string]struct {
		err    error
		status int
		code   api.Code
		retry  bool
		after  string
	}{
		"unknown":                         {state.ErrUnknown, 503, api.CommitUnknown, false, ""},
		"unknown goes before all":         {joined(state.ErrUnavailable, &budget.ExceededError{}, state.ErrUnknown), 503, api.CommitUnknown, false, ""},
		"unknown of a permit":             {&permit.Error{Reason: permit.ReasonUnknown, Err: state.ErrUnknown}, 503, api.CommitUnknown, false, ""},
		"unknown of a replayed permit":    {joined(&permit.Error{Reason: permit.ReasonReplayed}, state.ErrUnknown), 503, api.CommitUnknown, false, ""},
		"end of a context":                {context.DeadlineExceeded, 503, api.CommitUnknown, false, ""},
		"end of a context, nothing done":  {joined(state.ErrUnavailable, context.Canceled), 503, api.StoreUnavailable, true, "1"},
		"latched":                         {joined(state.ErrLatched), 503, api.Latched, true, ""},
		"latched of a permit":             {&permit.Error{Reason: permit.ReasonUnavailable, Err: state.ErrLatched}, 503, api.Latched, true, ""},
		"unavailable of a permit":         {&permit.Error{Reason: permit.ReasonUnavailable}, 503, api.StoreUnavailable, true, "1"},
		"clock":                           {&state.RecordError{Err: state.ErrClock}, 503, api.ClockRefused, true, ""},
		"corrupt":                         {&state.RecordError{Err: state.ErrCorrupt}, 500, api.RecordCorrupt, false, ""},
		"key unknown":                     {&state.RecordError{Err: state.ErrKeyUnknown}, 503, api.KeyUnknown, false, ""},
		"recovering":                      {joined(state.ErrRecovering), 503, api.Recovering, true, ""},
		"full":                            {joined(state.ErrFull), 503, api.StoreFull, true, ""},
		"owner full":                      {joined(state.ErrOwnerFull), 429, api.OwnerQuota, true, ""},
		"full of a permit":                {&permit.Error{Reason: permit.ReasonFull}, 503, api.StoreFull, true, ""},
		"stale":                           {joined(state.ErrStale), 409, api.Stale, false, ""},
		"no signing key":                  {joined(keyring.ErrNoSigningKey), 503, api.KeyUnknown, false, ""},
		"no scope":                        {joined(state.ErrNoScope), 404, api.NotFound, false, ""},
		"in flight":                       {joined(&operation.InFlightError{RetryAfter: 1500 * time.Millisecond}), 409, api.InFlight, true, "2"},
		"outcome unknown":                 {joined(operation.ErrOutcomeUnknown), 409, api.OutcomeUnknown, false, ""},
		"revoked":                         {joined(&permit.Error{Reason: permit.ReasonRevoked}), 403, api.PermitRevoked, false, ""},
		"revoked for a while":             {joined(&permit.Error{Reason: permit.ReasonRevoked, RetryAfter: time.Second}), 403, api.PermitRevoked, true, "1"},
		"no permit":                       {&permit.Error{Reason: permit.ReasonMalformed, Err: canonical.Invalid("x")}, 400, api.PermitMalformed, false, ""},
		"a permit's reason not known yet": {&permit.Error{Reason: "new"}, 500, api.Internal, false, ""},
		"not retained":                    {joined(&operation.NotRetainedError{NotRetained: operation.NotRetained{Length: 5}}), 410, api.ReceiptNotRetained, false, ""},
		"document":                        {joined(canonical.Invalid("x")), 400, api.Invalid, false, ""},
		"document too large":              {&canonical.Error{Kind: canonical.ErrTooLarge}, 413, api.TooLarge, false, ""},
		"nobody foresaw it":               {errors.New("secret"), 500, api.Internal, false, ""},
		"nil":                             {nil, 500, api.Internal, false, ""},
		"a code that is none":             {api.NewProblem("none", "x"), 500, api.Internal, false, ""},
		"lifetime exceeded":               {&budget.ExceededError{Refused: []budget.Figures{{Name: "b", Lifetime: true, Limit: 5, Amount: 1}}}, 402, api.BudgetExceeded, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, h := r.answerTo(t, c.err, &exchange{})
			if p.Status != c.status || p.Code != c.code || p.Retryable != c.retry || h.Get("Retry-After") != c.after {
				t.Errorf("%+v, Retry-After %q", p, h.Get("Retry-After"))
			}
			if strings.Contains(p.Detail, "secret") {
				t.Errorf("detail %q", p.Detail)
			}
			if p, h := r.answerTo(t, c.err, &exchange{repeatable: true}); p.Code == api.CommitUnknown && (!p.Retryable || h.Get("Retry-After") != "1") {
				t.Errorf("may be sent again, and does not say so: %+v %v", p, h)
			}
		})
	}
}

// A refusal that a capability names and that has no code here would be answered as a fault of the server.
func TestEverySentinelHasACode(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		operation.ErrInFlight, operation.ErrOutcomeUnknown, operation.ErrMismatch, operation.ErrKeyExpired, operation.ErrReceiptNotRetained, operation.ErrAborted,
		operation.ErrNotFound, operation.ErrNotHolder, operation.ErrNotPending, operation.ErrInvalid,
		permit.ErrMalformed, permit.ErrUnsupportedSchema, permit.ErrExpired, permit.ErrNotYetValid, permit.ErrBindingMismatch, permit.ErrInvalidSignature,
		permit.ErrReplayed, permit.ErrRevoked, permit.ErrFull, permit.ErrOwnerFull, permit.ErrHoldSettled, permit.ErrHoldExpired, permit.ErrUnavailable, permit.ErrUnknown, permit.ErrInvalid,
		budget.ErrDiffers, budget.ErrBudgetUnknown, budget.ErrRequestIDReused, budget.ErrSpendUnknown, budget.ErrSpendExpired, budget.ErrRefunded, budget.ErrHoldUnknown,
		budget.ErrHoldExpired, budget.ErrHoldFenced, budget.ErrHoldSettled, budget.ErrNotHolder, budget.ErrWindowClosed, budget.ErrInvalid,
		approval.ErrNotFound, approval.ErrNotPending, approval.ErrDecided, approval.ErrExpired, approval.ErrInvalid,
		access.ErrUnauthenticated, access.ErrForbidden, access.ErrInvalid, access.ErrExists, access.ErrNotFound, access.ErrTooMany,
		state.ErrInvalid, state.ErrCorrupt, state.ErrKeyUnknown, state.ErrNoScope, state.ErrUnknown, state.ErrUnavailable, state.ErrClock, state.ErrLatched,
		state.ErrRecovering, state.ErrStale, state.ErrFull, state.ErrOwnerFull,
	} {
		if p := (&exchange{}).problemOf(fmt.Errorf("wrapped: %w", err), time.Now()); p.Code == api.Internal {
			t.Errorf("%v has no code", err)
		}
	}
}

func TestARequestIsRepeatableIfItNamesItself(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		req  any
		want bool
	}{
		{&api.BeginRequest{Key: "k"}, true}, {&api.ConsumeRequest{}, false}, {&api.ConsumeRequest{Token: token32}, true}, {&api.SpendRequest{RequestID: "r"}, true},
		{&api.RefundRequest{ID: someID}, true}, {&api.IssueRequest{JobID: job}, false}, {&api.ConsumeChallengeRequest{JobID: job}, false},
		{&api.ConsumeChallengeRequest{JobID: job, Token: token32}, true}, {&api.CreateTokenRequest{Name: "n"}, false}, {&api.MintRequest{RequestID: "r"}, true},
	} {
		v := reflect.ValueOf(c.req).Elem()
		if got := formOf(v.Type()).repeatable(v); got != c.want {
			t.Errorf("%T: %v", c.req, got)
		}
	}
}

func TestAStoreInTroubleIsNeverAYesNorAnAbsence(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "money", 100, "")
	b := r.begin(t, order+`}`)
	path := "/v1/operations/" + string(b.Operation.ID)
	key := state.Key{Scope: "default", Kind: state.KindOperation, ID: string(idBytes(b.Operation.ID))}
	r.Damage(key)
	for _, c := range [][3]string{
		{"GET", path, ""}, {"POST", "/v1/operations", order + `}`}, {"POST", path + "/complete", `{"token":"` + string(b.Operation.Token) + `","receipt":{}}`},
	} {
		wantProblem(t, r.send(t, c[0], c[1], c[2]), 500, api.RecordCorrupt)
	}
	var list api.OperationList
	r.want(t, 200, "GET", "/v1/operations", "", &list)
	if len(list.Damaged) != 1 || list.Damaged[0] != b.Operation.ID {
		t.Errorf("%+v", list)
	}
	r.want(t, 200, "POST", path+"/resolve", `{"outcome":"happened","receipt":{"status":7},"note":"looked at the bank"}`, nil)

	var asked api.ApprovalAnswer
	r.want(t, 201, "POST", "/v1/approvals", `{`+call+`,"arguments":{"to":"bob"}}`, &asked)
	waiting := "/v1/approvals/" + string(asked.ID)
	r.Quarantine()
	for _, c := range [][2]string{
		{"/v1/operations", `{"key":"new","request":1}`}, {"/v1/spends", `{"request_id":"r","entries":[{"budget":"money","amount":1}]}`},
		{"/v1/challenges", `{"job_id":"` + job + `"}`}, {"/v1/epoch/advance", `{"from":1}`},
		{"/v1/approvals", `{` + call + `,"arguments":{"to":"eve"}}`}, {waiting + "/grant", `{}`}, {waiting + "/deny", `{}`},
	} {
		wantProblem(t, r.send(t, "POST", c[0], c[1]), 503, api.Recovering)
	}

	r.Clock.Step(-time.Hour)
	wantProblem(t, r.send(t, "GET", path, ""), 503, api.ClockRefused)
	wantProblem(t, r.send(t, "GET", "/readyz", ""), 503, api.ClockRefused)
	r.Clock.Step(time.Hour)

	must(t, r.Store.Close())
	a := r.send(t, "GET", path, "")
	if a.status != 503 {
		t.Errorf("a closed store: %d %s", a.status, a.body)
	}
	if a := r.send(t, "GET", "/readyz", ""); a.status != 503 {
		t.Errorf("a closed store: %d %s", a.status, a.body)
	}
}

func idBytes(d api.Digest) []byte {
	sum, _ := d.Bytes()
	return sum[:]
}
