package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
)

const order = `{"key":"order-1","request":{"b":1,"a":[1,2]}`

func (r *rig) begin(t *testing.T, body string) api.BeginAnswer {
	t.Helper()
	var b api.BeginAnswer
	a := r.want(t, 201, "POST", "/v1/operations", body, &b)
	if b.State != "execute" || a.header.Get("Counterfoil-Outcome") != "execute" || b.Operation.Token == "" || b.Operation.Fence == 0 || b.Operation.LeaseUntil == (api.Time{}) {
		t.Fatalf("%s", a.body)
	}
	return b
}

func TestAnOperationIsExecutedOnceAndReplayedAsGiven(t *testing.T) {
	t.Parallel()
	for name, receipt := range map[string]string{
		"empty":      `{}`,
		"whole":      `{"status":201,"headers":{"Location":"/pay/1","Via":["a","b"]},"content_type":"application/json","body":{"n":1.50,"big":123456789012345678901234567890,"e":1E3}}`,
		"null body":  `{"body":null}`,
		"text body":  `{"body":"a\u00e9/"}`,
		"bytes":      `{"content_type":"image/png","body_base64":"AP/+"}`,
		"exit code":  `{"status":3}`,
		"many lists": `{"headers":{"A":[],"B":["x","y"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serve(t, Limits{}, nil)
			b := r.begin(t, order+`}`)
			id := string(b.Operation.ID)
			if b.Operation.ID != api.OperationID("default", "order-1") || b.Operation.Key != "order-1" {
				t.Fatalf("%+v", b)
			}
			a := r.send(t, "POST", "/v1/operations", order+`}`)
			if p := wantProblem(t, a, 409, api.InFlight); a.header.Get("Retry-After") != "30" || !p.Retryable {
				t.Errorf("%v", a.header)
			}
			body := `{"token":"` + string(b.Operation.Token) + `","receipt":` + receipt + `}`
			var done api.CompleteAnswer
			for range 2 {
				r.want(t, 200, "POST", "/v1/operations/"+id+"/complete", body, &done)
				if !done.Recorded || done.ReceiptExpiresAt.Time().Sub(r.Clock.Now()) != 24*time.Hour {
					t.Fatalf("%+v", done)
				}
			}
			wantProblem(t, r.send(t, "POST", "/v1/operations/"+id+"/complete", `{"token":"`+string(b.Operation.Token)+`","receipt":{"status":9}}`), 409, api.NotPending)
			a = r.want(t, 200, "POST", "/v1/operations", order+`}`, nil)
			if want := `"receipt":` + receipt; !strings.Contains(a.body, want) && name != "text body" || a.header.Get("Counterfoil-Outcome") != "replay" {
				t.Errorf("%s: replayed as %s", receipt, a.body)
			}
			if name == "text body" && !strings.Contains(a.body, `"body":"aé/"`) && !strings.Contains(a.body, receipt) {
				t.Errorf("%s: replayed as %s", receipt, a.body)
			}
			if strings.Contains(a.body, string(b.Operation.Token)) {
				t.Error("the replay shows the holder's token")
			}
			a = r.want(t, 200, "GET", "/v1/operations/"+id, "", nil)
			if strings.Contains(a.body, string(b.Operation.Token)) {
				t.Error("the operation shows the holder's token")
			}
			wantProblem(t, r.send(t, "POST", "/v1/operations", `{"key":"order-1","request":{"b":2}}`), 422, api.KeyReused)
			wantProblem(t, r.send(t, "POST", "/v1/operations", `{"key":"order-1","fingerprint":"`+someID+`"}`), 422, api.KeyReused)
			r.want(t, 200, "POST", "/v1/operations", `{"key":"order-1","fingerprint":"94a786c3662bc7beeb598efa7d8cb58d7bea25d6c275ea9785a0230ff1f8c2ba"}`, nil)
		})
	}
}

func TestABeginSentAgainWithItsTokenIsTheSameGrant(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	body := order + `,"token":"55555555555555555555555555555555"}`
	first := r.begin(t, body)
	again := r.begin(t, body)
	if !again.Repeated || again.Operation.Token != first.Operation.Token || again.Operation.Fence != first.Operation.Fence {
		t.Fatalf("%+v", again)
	}
}

func TestALostOperationIsUnknownUntilResolved(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	for _, c := range [][2]string{{"happened", "settled"}, {"did_not_happen", "aborted"}} {
		outcome, state := c[0], c[1]
		body := strings.Replace(order, "order-1", outcome, 1) + `,"lease_seconds":10}`
		b := r.begin(t, body)
		path := "/v1/operations/" + string(b.Operation.ID)
		resolve := `{"outcome":"` + outcome + `","note":"asked the bank"}`
		wantProblem(t, r.send(t, "POST", path+"/resolve", resolve), 409, api.InFlight)
		r.Clock.Advance(11 * time.Second)
		a := r.send(t, "POST", "/v1/operations", body)
		if p := wantProblem(t, a, 409, api.OutcomeUnknown); p.Retryable || a.header.Get("Retry-After") != "" {
			t.Errorf("%v", a.header)
		}
		var list api.OperationList
		r.want(t, 200, "GET", "/v1/operations?state=outcome_unknown", "", &list)
		if len(list.Items) != 1 || list.Items[0].ID != b.Operation.ID || list.Items[0].State != "outcome_unknown" {
			t.Fatalf("%+v", list)
		}
		var done api.ResolveAnswer
		for range 2 {
			r.want(t, 200, "POST", path+"/resolve", resolve, &done)
			if done.State != state {
				t.Fatalf("%+v", done)
			}
		}
		other := map[string]string{"happened": "did_not_happen", "did_not_happen": "happened"}[outcome]
		wantProblem(t, r.send(t, "POST", path+"/resolve", `{"outcome":"`+other+`","note":"changed my mind"}`), 409, api.NotPending)
		wantProblem(t, r.send(t, "POST", path+"/complete", `{"token":"`+string(b.Operation.Token)+`","receipt":{}}`), 409, api.NotHolder)
		var shown api.Operation
		r.want(t, 200, "GET", path, "", &shown)
		if shown.State != state || shown.Resolved == nil || shown.Resolved.By != "admin" || shown.Resolved.Outcome != outcome || shown.Resolved.Note != "asked the bank" {
			t.Fatalf("%+v", shown)
		}
		if outcome == "happened" {
			a := r.want(t, 200, "POST", "/v1/operations", body, nil)
			if !strings.Contains(a.body, `"receipt":{}`) {
				t.Errorf("%s", a.body)
			}
			continue
		}
		r.begin(t, body)
	}
	if a := r.send(t, "GET", "/metrics", ""); !strings.Contains(a.body, "counterfoil_operations_late_completions_total 1") {
		t.Error("a completion after did_not_happen is not counted")
	}
	for _, body := range []string{`{"outcome":"maybe","note":"x"}`, `{"outcome":"happened"}`, `{"outcome":"did_not_happen","note":"x","receipt":{}}`, `{"outcome":"did_not_happen","note":"x","capture":[]}`} {
		if a := r.send(t, "POST", "/v1/operations/"+someID+"/resolve", body); a.status != 400 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}

func TestALeaseIsRenewedByItsHolder(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	b := r.begin(t, order+`}`)
	path := "/v1/operations/" + string(b.Operation.ID)
	var lease api.RenewAnswer
	r.want(t, 200, "POST", path+"/renew", `{"token":"`+string(b.Operation.Token)+`","lease_seconds":100}`, &lease)
	if lease.LeaseUntil.Time().Sub(r.Clock.Now()) != 100*time.Second {
		t.Fatalf("%+v", lease)
	}
	wantProblem(t, r.send(t, "POST", path+"/renew", `{"token":"66666666666666666666666666666666","lease_seconds":100}`), 409, api.NotHolder)
	wantProblem(t, r.send(t, "POST", "/v1/operations/"+strings.Repeat("1", 64)+"/renew", `{"token":"66666666666666666666666666666666","lease_seconds":100}`), 404, api.NotFound)
	wantProblem(t, r.send(t, "POST", path+"/renew", `{"token":"`+string(b.Operation.Token)+`","lease_seconds":3601}`), 400, api.Invalid)
	r.Clock.Advance(101 * time.Second)
	if a := r.send(t, "POST", path+"/renew", `{"token":"`+string(b.Operation.Token)+`","lease_seconds":100}`); a.status != 409 {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

func TestAnAbortedOperationMayBeginAnew(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "money", 10, "")
	body := order + `,"spend":[{"budget":"money","amount":7}],"metadata":{"cart":5}}`
	b := r.begin(t, body)
	if len(b.Budgets) != 1 || b.Budgets[0].Spent != 7 {
		t.Fatalf("%+v", b)
	}
	path := "/v1/operations/" + string(b.Operation.ID)
	abort := `{"token":"` + string(b.Operation.Token) + `","reason":"the bank refused the connection"}`
	for range 2 {
		r.want(t, 200, "POST", path+"/abort", abort, nil)
	}
	again := r.begin(t, body)
	if again.Operation.Fence <= b.Operation.Fence {
		t.Errorf("fence %d after %d", again.Operation.Fence, b.Operation.Fence)
	}
	var shown api.Operation
	r.want(t, 200, "GET", path, "", &shown)
	if string(shown.Metadata) != `{"cart":5}` || shown.State != "in_flight" {
		t.Fatalf("%+v", shown)
	}
	for _, bad := range []string{
		order + `,"metadata":[1]}`, order + `,"metadata":{"a":"` + strings.Repeat("x", 4096) + `"}}`, `{"key":"k"}`,
		order + `,"fingerprint":"` + someID + `"}`, order + `,"permit":{}}`, order + `,"expected":` + expects + `}`,
		order + `,"spend":[{"budget":"money","amount":1},{"budget":"money","amount":1}]}`, `{"key":"k","request":9007199254740993}`,
	} {
		if a := r.send(t, "POST", "/v1/operations", bad); a.status != 400 {
			t.Errorf("%.100s: %d %s", bad, a.status, a.body)
		}
	}
}

// The main job: a permit with a hold is minted, used by a begin, and the hold charged by its completion.
func TestAGuardedCall(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "money", 100, "")
	m := r.mint(t, `,"hold":{"entries":[{"budget":"money","amount":60}]}`)
	body := order + `,"permit":` + string(m.Permit) + `,"expected":` + expects + `}`
	wantProblem(t, r.send(t, "POST", "/v1/operations", strings.Replace(body, `"bank"`, `"shop"`, 2)), 403, api.PermitSignatureInvalid)
	b := r.begin(t, body)
	if b.Operation.HoldID != m.HoldID {
		t.Fatalf("%+v", b)
	}
	// A live operation answers alone, whatever has become of the permit.
	wantProblem(t, r.send(t, "POST", "/v1/operations", order+`,"permit":"no permit","expected":`+expects+`}`), 409, api.InFlight)
	wantProblem(t, r.send(t, "POST", "/v1/permits/consume", consumeBody(m, expects, "")), 409, api.PermitReplayed)
	var hold api.Hold
	r.want(t, 200, "GET", "/v1/holds/"+string(m.HoldID), "", &hold)
	if hold.State != "fenced" {
		t.Fatalf("%+v", hold)
	}
	complete := "/v1/operations/" + string(b.Operation.ID) + "/complete"
	token := `{"token":"` + string(b.Operation.Token) + `","receipt":{"status":200}`
	wantProblem(t, r.send(t, "POST", complete, token+`,"capture":[{"budget":"nobody","amount":1}]}`), 400, api.Invalid)
	var done api.CompleteAnswer
	r.want(t, 200, "POST", complete, token+`,"capture":[{"budget":"money","amount":45}]}`, &done)
	if !done.Recorded || done.Uncaptured != nil || done.HoldUnsettled {
		t.Fatalf("%+v", done)
	}
	var money api.Budget
	r.want(t, 200, "GET", "/v1/budgets/money", "", &money)
	if money.Spent != 45 || money.Held != 0 {
		t.Fatalf("%+v", money)
	}
}

func TestATokenMayDemandAPermitOrABudgetOfEachBegin(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "money", 100, "")
	roles := []access.Role{access.Operate, access.Spend}
	byPermit := r.token(t, access.Grant{Name: "p", Roles: roles, Require: access.RequirePermit})
	byBudget := r.token(t, access.Grant{Name: "b", Roles: roles, Require: access.RequireBudget})
	plain := r.token(t, access.Grant{Name: "o", Roles: roles[:1], Always: []access.Entry{{Budget: "money", Amount: 3}}})
	m := r.mint(t, "")
	key := func(i int) string { return strings.Replace(order, "order-1", fmt.Sprint("k", i), 1) }
	const spend = `,"spend":[{"budget":"money","amount":1}]}`
	const free = `,"spend":[{"budget":"money","amount":0}]}`
	withPermit := `,"permit":` + string(m.Permit) + `,"expected":` + expects + `}`
	for i, c := range []struct {
		token, body string
		status      int
	}{
		{byPermit, `}`, 403}, {byPermit, spend, 403}, {byPermit, withPermit, 201},
		{byBudget, `}`, 403}, {byBudget, free, 403},
		{byBudget, withPermit, 403}, {byBudget, spend, 201},
		{plain, `}`, 201}, {plain, spend, 403},
	} {
		if a := r.send(t, "POST", "/v1/operations", key(i)+c.body, "Authorization", c.token); a.status != c.status {
			t.Errorf("case %d: %d %s", i, a.status, a.body)
		}
	}
	var money api.Budget
	r.want(t, 200, "GET", "/v1/budgets/money", "", &money)
	if money.Spent != 4 {
		t.Fatalf("%+v", money)
	}
}

func TestOperationsAreListedForTheirOwnerOrForWhoObserves(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	for i, owner := range []string{"alice", "alice", "bob"} {
		r.want(t, 201, "POST", "/v1/operations", strings.Replace(order, "order-1", fmt.Sprint("k", i), 1)+`}`, nil, "Counterfoil-Owner", owner)
	}
	reader := r.token(t, access.Grant{Name: "r", Owner: "alice", Roles: []access.Role{access.Read}})
	observer := r.token(t, access.Grant{Name: "o", Owner: "carol", Roles: []access.Role{access.Observe}})
	for _, c := range []struct {
		token, query string
		n, status    int
	}{
		{reader, "", 2, 200}, {reader, "?owner=alice", 2, 200}, {reader, "?owner=bob", 0, 403}, {observer, "", 3, 200}, {observer, "?owner=bob", 1, 200},
		{observer, "?owner=nobody", 0, 200}, {observer, "?state=in_flight", 3, 200}, {observer, "?state=settled", 0, 200}, {observer, "?state=none", 0, 400},
		{observer, "?limit=501", 0, 400}, {observer, "?limit=0", 0, 400}, {observer, "?cursor=%21", 0, 400},
	} {
		var list api.OperationList
		a := r.send(t, "GET", "/v1/operations"+c.query, "", "Authorization", c.token)
		if a.status != c.status {
			t.Fatalf("%s: %d %s", c.query, a.status, a.body)
		}
		if c.status == 200 {
			r.want(t, 200, "GET", "/v1/operations"+c.query, "", &list, "Authorization", c.token)
			if len(list.Items) != c.n {
				t.Errorf("%s: %s", c.query, a.body)
			}
		}
	}
	var page, rest api.OperationList
	r.want(t, 200, "GET", "/v1/operations?limit=2", "", &page)
	r.want(t, 200, "GET", "/v1/operations?limit=2&cursor="+page.NextCursor, "", &rest)
	if len(page.Items) != 2 || len(rest.Items) != 1 || rest.NextCursor != "" {
		t.Fatalf("%+v %+v", page, rest)
	}
}
