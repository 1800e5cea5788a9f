package server

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
)

const (
	call     = `"subject":"agent-1","capability":"pay","server":"bank","tool":"transfer","request_id":"req-1"`
	withArgs = `{` + call + `,"arguments":{"to":"bob","amount":5}`
	expects  = withArgs + `}`
)

// mint mints a permit for the call and returns it as it goes over the wire.
func (r *rig) mint(t *testing.T, more string) api.MintAnswer {
	t.Helper()
	var m api.MintAnswer
	r.want(t, 201, "POST", "/v1/permits", withArgs+more+`}`, &m)
	return m
}

func consumeBody(m api.MintAnswer, expected, more string) string {
	return `{"permit":` + string(m.Permit) + `,"expected":` + expected + more + `}`
}

func TestAPermitIsConsumedOnce(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	m := r.mint(t, "")
	if hash, err := api.Fingerprint([]byte(`{"amount":5,"to":"bob"}`)); err != nil || m.ParameterHash != hash {
		t.Fatalf("%+v", m)
	}
	if left := m.ExpiresAt.Time().Sub(r.Clock.Now()); left < 30*time.Second || left > 31*time.Second {
		t.Errorf("expires in %v", left)
	}
	var ok api.CheckAnswer
	for range 2 {
		r.want(t, 200, "POST", "/v1/permits/check", consumeBody(m, expects, ""), &ok)
		if !ok.Valid {
			t.Fatal("not valid")
		}
	}
	token := `,"token":"33333333333333333333333333333333"`
	var c api.ConsumeAnswer
	r.want(t, 200, "POST", "/v1/permits/consume", consumeBody(m, expects, token), &c)
	if !c.Consumed || c.NonceID == "" || c.HoldID != "" || c.Repeated || c.Token != "33333333333333333333333333333333" {
		t.Fatalf("%+v", c)
	}
	r.want(t, 200, "POST", "/v1/permits/consume", consumeBody(m, expects, token), &c)
	if !c.Repeated {
		t.Fatalf("%+v", c)
	}
	wantProblem(t, r.send(t, "POST", "/v1/permits/consume", consumeBody(m, expects, "")), 409, api.PermitReplayed)
	wantProblem(t, r.send(t, "POST", "/v1/permits/check", consumeBody(m, expects, "")), 409, api.PermitReplayed)
	// The hash instead of the arguments is the same call.
	again := r.mint(t, "")
	r.want(t, 200, "POST", "/v1/permits/consume", consumeBody(again, `{`+call+`,"parameter_hash":"`+string(m.ParameterHash)+`"}`, ""), nil)
}

func TestEachFaultOfAPermitHasItsCode(t *testing.T) { //nolint:tparallel // what comes after the cases needs their end
	t.Parallel()
	r := serve(t, Limits{}, nil)
	m := r.mint(t, "")
	permit := string(m.Permit)
	for name, c := range map[string]struct {
		permit, expected string
		status           int
		code             api.Code
		field            string
	}{
		"no permit":         {`"x"`, expects, 400, api.PermitMalformed, ""},
		"null":              {`null`, expects, 400, api.PermitMalformed, ""},
		"unknown member":    {strings.Replace(permit, `"signature"`, `"extra":1,"signature"`, 1), expects, 400, api.PermitMalformed, ""},
		"a float":           {strings.Replace(permit, `,"issued_at":`, `,"issued_at":1.`, 1), expects, 400, api.PermitMalformed, ""},
		"upper-case":        {strings.Replace(permit, `"signature":"`, `"signature":"A`, 1), expects, 400, api.PermitMalformed, ""},
		"a duplicate":       {strings.Replace(permit, `"nonce":`, `"nonce":{},"nonce":`, 1), expects, 400, api.Malformed, ""},
		"another schema":    {strings.Replace(permit, "execution_nonce.v1", "execution_nonce.v2", 1), expects, 400, api.PermitUnsupportedSchema, ""},
		"tampered":          {strings.Replace(permit, `"tool_server":"bank"`, `"tool_server":"shop"`, 1), strings.Replace(expects, "bank", "shop", 1), 403, api.PermitSignatureInvalid, ""},
		"other subject":     {permit, strings.Replace(expects, "agent-1", "agent-2", 1), 403, api.PermitBindingMismatch, "subject"},
		"other capability":  {permit, strings.Replace(expects, `"pay"`, `"get"`, 1), 403, api.PermitBindingMismatch, "capability"},
		"other server":      {permit, strings.Replace(expects, "bank", "shop", 1), 403, api.PermitBindingMismatch, "server"},
		"other tool":        {permit, strings.Replace(expects, "transfer", "refund", 1), 403, api.PermitBindingMismatch, "tool"},
		"other request":     {permit, strings.Replace(expects, "req-1", "req-2", 1), 403, api.PermitBindingMismatch, "request_id"},
		"other arguments":   {permit, strings.Replace(expects, `"amount":5`, `"amount":6`, 1), 403, api.PermitBindingMismatch, "parameter_hash"},
		"huge number":       {permit, strings.Replace(expects, `"amount":5`, `"amount":9007199254740993`, 1), 400, api.Invalid, ""},
		"arguments of 2^53": {permit, `{` + call + `,"arguments":9007199254740992}`, 400, api.Invalid, ""},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"permit":` + c.permit + `,"expected":` + c.expected + `}`
			for _, path := range []string{"/v1/permits/consume", "/v1/permits/check"} {
				p := wantProblem(t, r.send(t, "POST", path, body), c.status, c.code)
				if p.Field != c.field {
					t.Errorf("field %q, want %q", p.Field, c.field)
				}
			}
		})
	}
	if p := wantProblem(t, r.send(t, "POST", "/v1/permits", `{`+call+`,"arguments":{"a":[1,9007199254740993]}}`), 400, api.Invalid); p.Pointer != "/arguments/a/1" {
		t.Errorf("pointer %q", p.Pointer)
	}
	// Nothing of that used the permit up.
	r.want(t, 200, "POST", "/v1/permits/consume", consumeBody(m, expects, ""), nil)
	late := r.mint(t, "")
	r.Clock.Advance(32 * time.Second)
	wantProblem(t, r.send(t, "POST", "/v1/permits/consume", consumeBody(late, expects, "")), 410, api.PermitExpired)
}

func TestARevocationRefusesPermitsUpToNow(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	for body, covered := range map[string]bool{
		`{"subject":"agent-1"}`: true, `{"capability":"pay"}`: true, `{"subject":"agent-1","capability":"pay"}`: true, `{}`: true, "": true,
		`{"subject":"agent-2"}`: false, `{"capability":"get"}`: false,
	} {
		r.Clock.Advance(10 * time.Second)
		m := r.mint(t, "")
		var floor api.RevokeAnswer
		r.want(t, 200, "POST", "/v1/revocations", body, &floor)
		if d := floor.Floor.Time().Sub(r.Clock.Now()); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("floor %v ahead", d)
		}
		a := r.send(t, "POST", "/v1/permits/consume", consumeBody(m, expects, ""))
		if !covered {
			if a.status != 200 {
				t.Errorf("%s: %d %s", body, a.status, a.body)
			}
			continue
		}
		p := wantProblem(t, a, 403, api.PermitRevoked)
		if p.Retryable || a.header.Get("Retry-After") != "" {
			t.Errorf("%s: a revoked permit may be sent again: %s", body, a.body)
		}
		a = r.send(t, "POST", "/v1/permits", expects)
		if p := wantProblem(t, a, 403, api.PermitRevoked); !p.Retryable || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: a mint may be sent again, and the answer does not say so: %v %s", body, a.header, a.body)
		}
	}
}

func TestAMintWithAHoldIsRepeatedByItsRequestID(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "money", 100, "")
	const hold = `,"hold":{"entries":[{"budget":"money","amount":60}]}`
	m := r.mint(t, hold)
	if m.HoldID != api.HoldID("default", "req-1") || len(m.Budgets) != 1 || m.Budgets[0].Held != 60 || m.Repeated {
		t.Fatalf("%+v", m)
	}
	var again api.MintAnswer
	r.want(t, 200, "POST", "/v1/permits", withArgs+hold+`}`, &again)
	if !again.Repeated || string(again.Permit) != string(m.Permit) {
		t.Fatalf("%+v", again)
	}
	wantProblem(t, r.send(t, "POST", "/v1/permits", withArgs+strings.Replace(hold, "60", "61", 1)+`}`), 409, api.RequestIDReused)
	wantProblem(t, r.send(t, "POST", "/v1/permits", strings.Replace(withArgs, "req-1", "req-2", 1)+hold+`}`), 402, api.BudgetExceeded)

	var c api.ConsumeAnswer
	r.want(t, 200, "POST", "/v1/permits/consume", consumeBody(m, expects, ""), &c)
	if c.HoldID != m.HoldID {
		t.Fatalf("%+v", c)
	}
	wantProblem(t, r.send(t, "POST", "/v1/permits", withArgs+hold+`}`), 409, api.HoldSettled)
	capture := "/v1/holds/" + string(c.HoldID) + "/capture"
	wantProblem(t, r.send(t, "POST", capture, `{"entries":[]}`), 409, api.HoldFenced)
	wantProblem(t, r.send(t, "POST", capture, `{"entries":[],"token":"44444444444444444444444444444444"}`), 409, api.NotHolder)
	// Whoever has the token captures, as another owner and with the role consume alone.
	other := r.token(t, access.Grant{Name: "other", Owner: "other", Roles: []access.Role{access.Consume}})
	wantProblem(t, r.send(t, "POST", capture, `{"entries":[]}`, "Authorization", other), 403, api.Forbidden)
	wantProblem(t, r.send(t, "POST", capture, `{"entries":[],"token":"44444444444444444444444444444444"}`, "Authorization", other), 404, api.NotFound)
	var done api.CaptureAnswer
	r.want(t, 200, "POST", capture, `{"entries":[{"budget":"money","amount":40}],"token":"`+string(c.Token)+`"}`, &done, "Authorization", other)
	if done.Captured[0].Amount != 40 || done.Budgets[0].Spent != 40 {
		t.Fatalf("%+v", done)
	}

	// Expired unused, the request makes a new permit.
	second := strings.Replace(withArgs, "req-1", "req-3", 1) + strings.Replace(hold, "60", "10", 1) + `}`
	var first, fresh api.MintAnswer
	r.want(t, 201, "POST", "/v1/permits", second, &first)
	r.Clock.Advance(40 * time.Second)
	r.want(t, 201, "POST", "/v1/permits", second, &fresh)
	if fresh.Repeated || string(fresh.Permit) == string(first.Permit) {
		t.Fatalf("%+v", fresh)
	}
	minter := r.token(t, access.Grant{Name: "minter", Roles: []access.Role{access.Mint}})
	wantProblem(t, r.send(t, "POST", "/v1/permits", strings.Replace(second, "req-3", "req-4", 1), "Authorization", minter), 403, api.Forbidden)
}

func TestThePermitIsTheExactWireObject(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	var p struct {
		Nonce     map[string]any
		Signature string
	}
	must(t, json.Unmarshal(r.mint(t, "").Permit, &p))
	bound, _ := p.Nonce["bound_to"].(map[string]any)
	if p.Nonce["schema"] != "chio.execution_nonce.v1" || len(p.Signature) != 128 || bound["subject_id"] != "agent-1" || bound["tool_name"] != "transfer" || len(p.Nonce) != 5 {
		t.Fatalf("%+v", p)
	}
}
