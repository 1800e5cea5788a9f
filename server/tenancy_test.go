package server

import (
	"regexp"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
)

// things are what one owner has in a scope, by the names that the requests below use.
func (r *rig) things(t *testing.T) map[string]string {
	t.Helper()
	r.budget(t, "money", 1000, "")
	b := r.begin(t, order+`}`)
	var spent api.SpendAnswer
	r.want(t, 201, "POST", "/v1/spends", `{"request_id":"s","entries":[{"budget":"money","amount":1}]}`, &spent)
	var held api.HoldAnswer
	r.want(t, 201, "POST", "/v1/holds", `{"request_id":"h","entries":[{"budget":"money","amount":1}],"ttl_seconds":600}`, &held)
	var issued api.IssueAnswer
	r.want(t, 201, "POST", "/v1/challenges", `{"job_id":"`+job+`"}`, &issued)
	var asked api.ApprovalAnswer
	r.want(t, 201, "POST", "/v1/approvals", `{`+call+`,"arguments":{"to":"bob"}}`, &asked)
	r.token(t, access.Grant{Name: "theirs", Roles: []access.Role{access.Read}})
	var keys api.List[api.SigningKey]
	r.want(t, 200, "GET", "/v1/keys", "", &keys)
	return map[string]string{
		"{operation}": string(b.Operation.ID), "{operation_token}": string(b.Operation.Token), "{spend}": string(spent.SpendID), "{hold}": string(held.HoldID),
		"{job}": job, "{nonce}": string(issued.Nonce), "{budget}": "money", "{credential}": "theirs", "{key}": string(keys.Items[0].Public),
		"{approval}": string(asked.ID),
	}
}

// absent are names of the same form that name nothing.
var absent = map[string]string{
	"{operation}": strings.Repeat("1", 64), "{operation_token}": strings.Repeat("1", 32), "{spend}": strings.Repeat("2", 64), "{hold}": strings.Repeat("3", 64),
	"{job}": strings.Repeat("4", 64), "{nonce}": strings.Repeat("5", 64), "{budget}": "none", "{credential}": "nobody",
	"{approval}": strings.Repeat("6", 64),
	"{key}":      "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
}

// tenancy has for each route the requests that name something. A route without any names nothing that can be another's.
var tenancy = map[string][]struct {
	path, body string
	scopeOnly  bool // owners of a scope share it
}{
	"POST /v1/permits":                     nil,
	"POST /v1/permits/consume":             nil, // a permit is its bearer's
	"POST /v1/permits/check":               nil,
	"POST /v1/revocations":                 nil,
	"POST /v1/operations":                  {{"/v1/operations", `{"key":"other","request":1,"hold_id":"{hold}"}`, false}, {"/v1/operations", `{"key":"another","request":1,"spend":[{"budget":"{budget}","amount":1}]}`, true}},
	"GET /v1/operations":                   {{"/v1/operations", "", false}, {"/v1/operations?state=in_flight", "", false}},
	"GET /v1/operations/{id}":              {{"/v1/operations/{operation}", "", false}},
	"POST /v1/operations/{id}/complete":    {{"/v1/operations/{operation}/complete", `{"token":"{operation_token}","receipt":{}}`, false}},
	"POST /v1/operations/{id}/renew":       {{"/v1/operations/{operation}/renew", `{"token":"{operation_token}","lease_seconds":9}`, false}},
	"POST /v1/operations/{id}/abort":       {{"/v1/operations/{operation}/abort", `{"token":"{operation_token}","reason":"x"}`, false}},
	"POST /v1/operations/{id}/resolve":     {{"/v1/operations/{operation}/resolve", `{"outcome":"happened","note":"x"}`, false}, {"/v1/operations/{operation}/resolve", `{"outcome":"did_not_happen","note":"x"}`, false}},
	"POST /v1/challenges":                  {{"/v1/challenges", `{"job_id":"{job}"}`, true}}, // a job belongs to the scope
	"GET /v1/challenges/{job_id}":          {{"/v1/challenges/{job}", "", false}},
	"POST /v1/challenges/{job_id}/consume": {{"/v1/challenges/{job}/consume", `{"nonce":"{nonce}","epoch":1}`, false}},
	"GET /v1/epoch":                        nil,
	"POST /v1/epoch/advance":               nil,
	"PUT /v1/budgets/{name}":               {{"/v1/budgets/child", `{"unit":"calls","limit":1,"window":{"kind":"lifetime"},"parent":"{budget}"}`, true}},
	"GET /v1/budgets/{name}":               {{"/v1/budgets/{budget}", "", true}},
	"GET /v1/budgets":                      {{"/v1/budgets", "", true}, {"/v1/budgets?prefix={budget}", "", true}},
	"POST /v1/budgets/close":               {{"/v1/budgets/close", `{"prefix":"{budget}"}`, true}},
	"POST /v1/spends":                      {{"/v1/spends", `{"request_id":"s","entries":[{"budget":"{budget}","amount":1}]}`, true}},
	"POST /v1/spends/{id}/refund":          {{"/v1/spends/{spend}/refund", "", false}},
	"POST /v1/holds":                       {{"/v1/holds", `{"request_id":"h","entries":[{"budget":"{budget}","amount":1}],"ttl_seconds":9}`, true}},
	"GET /v1/holds/{id}":                   {{"/v1/holds/{hold}", "", false}},
	"POST /v1/holds/{id}/capture":          {{"/v1/holds/{hold}/capture", `{"entries":[]}`, false}, {"/v1/holds/{hold}/capture", `{"entries":[],"token":"` + token32 + `"}`, false}},
	"POST /v1/holds/{id}/void":             {{"/v1/holds/{hold}/void", "", false}},
	"POST /v1/holds/{id}/extend":           {{"/v1/holds/{hold}/extend", `{"ttl_seconds":9}`, false}},
	"POST /v1/approvals":                   nil, // the same call of another owner is another request
	"GET /v1/approvals":                    {{"/v1/approvals", "", false}, {"/v1/approvals?state=pending", "", false}},
	"GET /v1/approvals/{id}":               {{"/v1/approvals/{approval}", "", false}},
	"POST /v1/approvals/{id}/grant":        {{"/v1/approvals/{approval}/grant", `{}`, false}},
	"POST /v1/approvals/{id}/deny":         {{"/v1/approvals/{approval}/deny", `{}`, false}},
	"POST /v1/tokens":                      nil,
	"GET /v1/tokens":                       {{"/v1/tokens", "", true}},
	"DELETE /v1/tokens/{name}":             {{"/v1/tokens/{credential}", "", true}},
	"POST /v1/scopes":                      nil,
	"GET /v1/scopes":                       {{"/v1/scopes", "", true}},
	"GET /v1/keys":                         {{"/v1/keys", "", true}},
	"POST /v1/keys/rotate":                 nil,
	"POST /v1/keys/trust":                  nil,
	"POST /v1/keys/retire":                 {{"/v1/keys/retire", `{"public":"{key}"}`, true}},
	"POST /v1/backup":                      nil,
}

var varying = regexp.MustCompile(`"instance":"[^"]*"`)

func fill(text string, names map[string]string) string {
	for name, value := range names {
		text = strings.ReplaceAll(text, name, value)
	}
	return text
}

// Another owner's and another scope's things answer exactly as if they did not exist, in status, body and headers.
func TestWhatIsAnothersAnswersAsIfItDidNotExist(t *testing.T) {
	t.Parallel()
	// One server where another has things, one where nobody has.
	full, empty := serve(t, Limits{}, nil), serve(t, Limits{}, nil)
	theirs := full.things(t)
	everything := []access.Role{access.Mint, access.Consume, access.Operate, access.Spend, access.Refund, access.Challenge, access.Read, access.Resolve}
	intruders := map[string]func(*rig) string{
		"another owner": func(r *rig) string {
			return r.token(t, access.Grant{Name: "intruder", Owner: "intruder", Roles: everything})
		},
		"another scope": func(r *rig) string {
			r.want(t, 201, "POST", "/v1/scopes", `{"name":"elsewhere"}`, nil)
			// The same owner, with every right in its own scope.
			return r.token(t, access.Grant{Name: "intruder", Scope: "elsewhere", Owner: "default", Roles: []access.Role{access.Admin}})
		},
	}
	for who, token := range intruders {
		inFull, inEmpty := token(full), token(empty)
		for _, route := range full.server.Routes() {
			cases, ok := tenancy[route.Pattern()]
			if !ok && !route.Public() {
				t.Errorf("%s is not in the table of tenancy", route.Pattern())
			}
			for _, c := range cases {
				if c.scopeOnly && who == "another owner" {
					continue
				}
				path, body := fill(c.path, theirs), fill(c.body, theirs)
				was := empty.send(t, route.Method, path, body, "Authorization", inEmpty)
				is := full.send(t, route.Method, path, body, "Authorization", inFull)
				shape := func(a reply) string {
					return scrub(varying.ReplaceAllString(a.body, ""), a)
				}
				if is.status != was.status || shape(is) != shape(was) {
					t.Errorf("%s: %s %s: %d %s\nif it did not exist: %d %s", who, route.Method, path, is.status, is.body, was.status, was.body)
				}
				// And as something of the same form that exists nowhere.
				none := full.send(t, route.Method, fill(c.path, absent), fill(c.body, absent), "Authorization", inFull)
				if is.status >= 400 && (is.status != none.status || shape(is) != shape(none)) {
					t.Errorf("%s: %s %s: %d %s\nfor what exists nowhere: %d %s", who, route.Method, path, is.status, is.body, none.status, none.body)
				}
			}
		}
	}
	// Nothing of it has changed anything.
	full.want(t, 200, "POST", "/v1/holds/"+theirs["{hold}"]+"/void", "", nil)
	full.want(t, 200, "POST", "/v1/spends/"+theirs["{spend}"]+"/refund", "", nil)
	full.want(t, 200, "POST", "/v1/challenges/"+job+"/consume", `{"nonce":"`+theirs["{nonce}"]+`","epoch":1}`, nil)
	full.want(t, 200, "POST", "/v1/operations/"+theirs["{operation}"]+"/complete", `{"token":"`+theirs["{operation_token}"]+`","receipt":{}}`, nil)
}

func TestAScopeThatDoesNotExistIsAnErrorNotAnEmptyOne(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	for _, c := range [][3]string{
		{"POST", "/v1/operations", `{"key":"k","request":1}`},
		{"GET", "/v1/operations", ""},
		{"GET", "/v1/operations?state=outcome_unknown", ""},
		{"GET", "/v1/operations/" + absent["{operation}"], ""},
		{"GET", "/v1/budgets", ""},
		{"GET", "/v1/budgets?prefix=acme", ""},
		{"GET", "/v1/holds/" + absent["{hold}"], ""},
		{"GET", "/v1/epoch", ""},
		{"POST", "/v1/challenges", `{"job_id":"` + job + `"}`},
		{"POST", "/v1/permits", withArgs + `}`},
		{"POST", "/v1/permits", withArgs + `,"hold":{"entries":[{"budget":"acme","amount":1}]}}`},
	} {
		wantProblem(t, r.send(t, c[0], c[1], c[2], "Counterfoil-Scope", "nowhere"), 404, api.NotFound)
	}
}

var drawn = regexp.MustCompile(`"(nonce|aad_base64|token|public|kid|fence)":("[^"]*"|[0-9]+)`)

// scrub takes out what is drawn at random, from successes only.
func scrub(body string, a reply) string {
	if a.status >= 400 {
		return body
	}
	return drawn.ReplaceAllString(body, `"$1":…`)
}
