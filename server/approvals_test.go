package server

import (
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
)

func TestACallIsAskedForGrantedAndMadeOnce(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	agent := r.token(t, access.Grant{Name: "agent", Owner: "agent", Roles: []access.Role{access.Operate}})
	operator := r.token(t, access.Grant{Name: "ops", Owner: "ops", Roles: []access.Role{access.Resolve, access.Observe}})
	ask := expects
	var asked api.ApprovalAnswer
	a := r.want(t, 201, "POST", "/v1/approvals", ask, &asked, "Authorization", agent)
	if asked.State != api.StatePending || a.header.Get("Counterfoil-Outcome") != "pending" || asked.Permit != nil {
		t.Fatalf("asked: %+v, outcome %s", asked, a.header.Get("Counterfoil-Outcome"))
	}
	r.want(t, 200, "POST", "/v1/approvals", ask, &asked, "Authorization", agent)

	// The agent can neither see nor decide it; an operator who sees the whole scope can.
	r.want(t, 403, "POST", "/v1/approvals/"+string(asked.ID)+"/grant", `{}`, nil, "Authorization", agent)
	r.want(t, 403, "GET", "/v1/approvals", "", nil, "Authorization", agent)
	var list api.ApprovalList
	r.want(t, 200, "GET", "/v1/approvals?state=pending", "", &list, "Authorization", operator)
	if len(list.Items) != 1 || list.Items[0].Owner != "agent" || string(list.Items[0].Arguments) != `{"amount":5,"to":"bob"}` {
		t.Fatalf("listed: %+v", list.Items)
	}
	var done api.DecisionAnswer
	g := r.want(t, 200, "POST", "/v1/approvals/"+string(asked.ID)+"/grant", `{"note":"fine"}`, &done, "Authorization", operator)
	if done.State != api.StateGranted || done.Decided == nil || done.Decided.By != "ops" || strings.Contains(g.body, "signature") {
		t.Errorf("granted: %s", g.body)
	}
	again := r.want(t, 200, "POST", "/v1/approvals/"+string(asked.ID)+"/grant", ``, &done, "Authorization", operator)
	if !done.Repeated || strings.Contains(again.body, "signature") {
		t.Errorf("granted again: %s", again.body)
	}
	r.want(t, 409, "POST", "/v1/approvals/"+string(asked.ID)+"/deny", `{}`, nil, "Authorization", operator)

	r.want(t, 200, "POST", "/v1/approvals", ask, &asked, "Authorization", agent)
	begin := `{"key":"k","request":1,"permit":` + string(asked.Permit) + `,"expected":` + expects + `}`
	r.want(t, 201, "POST", "/v1/operations", begin, nil, "Authorization", agent)
	r.want(t, 409, "POST", "/v1/operations", strings.Replace(begin, `"k"`, `"other"`, 1), nil, "Authorization", agent)
}

func TestAnOperatorOfOneOwnerDecidesForThatOwnerAlone(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	var asked api.ApprovalAnswer
	r.want(t, 201, "POST", "/v1/approvals", `{`+call+`,"arguments":{"to":"bob"}}`, &asked)
	theirs := r.token(t, access.Grant{Name: "theirs", Owner: "somebody", Roles: []access.Role{access.Resolve}})
	for _, path := range []string{"/grant", "/deny"} {
		r.want(t, 404, "POST", "/v1/approvals/"+string(asked.ID)+path, `{}`, nil, "Authorization", theirs)
	}
	var list api.ApprovalList
	r.want(t, 200, "GET", "/v1/approvals", "", &list, "Authorization", theirs)
	if len(list.Items) != 0 {
		t.Errorf("listed: %+v", list.Items)
	}
}

func TestARevokedCallIsNotGranted(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	var asked api.ApprovalAnswer
	r.want(t, 201, "POST", "/v1/approvals", `{`+call+`,"arguments":{"to":"bob"}}`, &asked)
	r.want(t, 200, "POST", "/v1/revocations", `{"subject":"agent-1"}`, nil)
	a := r.send(t, "POST", "/v1/approvals/"+string(asked.ID)+"/grant", `{}`)
	if a.status != 403 || !strings.Contains(a.body, "permit_revoked") {
		t.Errorf("granted right after the revocation: %d %s", a.status, a.body)
	}
}
