package server

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
)

// budget defines a budget that never begins anew.
func (r *rig) budget(t *testing.T, name string, limit int, parent string) {
	t.Helper()
	body := fmt.Sprintf(`{"unit":"calls","limit":%d,"window":{"kind":"lifetime"}}`, limit)
	if parent != "" {
		body = strings.TrimSuffix(body, "}") + `,"parent":"` + parent + `"}`
	}
	r.want(t, http.StatusCreated, "PUT", "/v1/budgets/"+url.PathEscape(name), body, nil)
}

func TestABudgetIsDefinedReadAndListed(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "acme", 100, "")
	r.budget(t, "acme/s1", 10, "acme")
	r.budget(t, "acme/s10", 10, "acme")
	r.budget(t, "close", 5, "") // a name that is a route of another method
	var b api.Budget
	path := "/v1/budgets/acme%2Fs1"
	r.want(t, 200, "GET", path, "", &b)
	if n, ok := b.Limit.Amount(); b.Name != "acme/s1" || b.Unit != "calls" || !ok || n != 10 || b.Parent != "acme" || b.Window.Kind != "lifetime" || b.ResetsAt != (api.Time{}) {
		t.Fatalf("%+v", b)
	}
	r.want(t, 200, "GET", "/v1/budgets/close", "", &b)
	r.want(t, 200, "PUT", path, `{"unit":"calls","limit":"unlimited","window":{"kind":"lifetime"},"parent":"acme"}`, &b)
	if !b.Limit.IsUnlimited() || !b.Remaining.IsUnlimited() {
		t.Fatalf("%+v", b)
	}
	for _, body := range []string{
		`{"unit":"tokens","limit":10,"window":{"kind":"lifetime"},"parent":"acme"}`,
		`{"unit":"calls","limit":10,"window":{"kind":"lifetime"}}`,
		`{"unit":"calls","limit":10,"window":{"kind":"fixed","seconds":60},"parent":"acme"}`,
	} {
		wantProblem(t, r.send(t, "PUT", path, body), 409, api.BudgetDiffers)
	}
	wantProblem(t, r.send(t, "PUT", "/v1/budgets/x", `{"unit":"calls","limit":10,"window":{"kind":"lifetime"},"parent":"nobody"}`), 404, api.BudgetUnknown)
	for name, body := range map[string]string{
		"no limit":           `{"unit":"calls","window":{"kind":"lifetime"}}`,
		"no window":          `{"unit":"calls","limit":1}`,
		"lifetime with zone": `{"unit":"calls","limit":1,"window":{"kind":"lifetime","zone":"UTC"}}`,
		"fixed without":      `{"unit":"calls","limit":1,"window":{"kind":"fixed"}}`,
		"calendar without":   `{"unit":"calls","limit":1,"window":{"kind":"calendar","period":"day"}}`,
		"local zone":         `{"unit":"calls","limit":1,"window":{"kind":"calendar","period":"day","zone":"Local"}}`,
		"unknown zone":       `{"unit":"calls","limit":1,"window":{"kind":"calendar","period":"day","zone":"` + marker + `"}}`,
		"too long":           `{"unit":"calls","limit":1,"window":{"kind":"fixed","seconds":9007199254740991}}`,
		"unit of 65 bytes":   `{"unit":"` + strings.Repeat("u", 65) + `","limit":1,"window":{"kind":"lifetime"}}`,
	} {
		a := r.send(t, "PUT", "/v1/budgets/x", body)
		if a.status != 400 || strings.Contains(a.body, marker) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	wantProblem(t, r.send(t, "GET", "/v1/budgets/x", ""), 404, api.BudgetUnknown)

	var page api.List[api.Budget]
	r.want(t, 200, "GET", "/v1/budgets?limit=2", "", &page)
	if len(page.Items) != 2 || page.Items[0].Name != "acme" || page.NextCursor == "" {
		t.Fatalf("%+v", page)
	}
	var rest api.List[api.Budget]
	r.want(t, 200, "GET", "/v1/budgets?limit=2&cursor="+url.QueryEscape(page.NextCursor), "", &rest)
	if len(rest.Items) != 2 || rest.Items[1].Name != "close" {
		t.Fatalf("%+v", rest)
	}
	var within api.List[api.Budget]
	r.want(t, 200, "GET", "/v1/budgets?prefix=acme%2Fs1%2F", "", &within)
	if len(within.Items) != 1 || within.Items[0].Name != "acme/s1" {
		t.Fatalf("%+v", within)
	}
	wantProblem(t, r.send(t, "GET", "/v1/budgets?cursor=%21", ""), 400, api.Invalid)

	var closed api.CloseAnswer
	r.want(t, 200, "POST", "/v1/budgets/close", `{"prefix":"acme/s1"}`, &closed)
	if closed.BudgetsRemoved != 1 {
		t.Fatalf("%+v", closed)
	}
	r.want(t, 200, "GET", "/v1/budgets/acme%2Fs10", "", &b)
}

func TestASpendFitsEveryBudgetOrNone(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "acme", 100, "")
	r.budget(t, "acme/s1", 10, "acme")
	var done api.SpendAnswer
	body := `{"request_id":"req-1","entries":[{"budget":"acme/s1","amount":4}]}`
	r.want(t, 201, "POST", "/v1/spends", body, &done)
	if done.SpendID != api.SpendID("default", "req-1") || done.Remaining == nil || *done.Remaining != 6 || len(done.Budgets) != 2 || done.Repeated {
		t.Fatalf("%+v", done)
	}
	var again api.SpendAnswer
	r.want(t, 200, "POST", "/v1/spends", body, &again)
	if !again.Repeated || *again.Remaining != 6 {
		t.Fatalf("%+v", again)
	}
	wantProblem(t, r.send(t, "POST", "/v1/spends", `{"request_id":"req-1","entries":[{"budget":"acme/s1","amount":5}]}`), 409, api.RequestIDReused)

	p := wantProblem(t, r.send(t, "POST", "/v1/spends", `{"request_id":"req-2","entries":[{"budget":"acme/s1","amount":7}]}`), 402, api.BudgetExceeded)
	if p.Retryable || len(p.Refused) != 1 || p.Refused[0].Budget != "acme/s1" || p.Refused[0].Amount != 7 || p.Refused[0].Spent != 4 {
		t.Fatalf("%+v", p)
	}
	p = wantProblem(t, r.send(t, "POST", "/v1/spends", `{"request_id":"req-2","entries":[{"budget":"acme","amount":1},{"budget":"nobody","amount":7}]}`), 404, api.BudgetUnknown)
	if p.Pointer != "/entries/1/budget" {
		t.Fatalf("%+v", p)
	}
	var b api.Budget
	r.want(t, 200, "GET", "/v1/budgets/acme", "", &b)
	if b.Spent != 4 {
		t.Fatalf("a refusal spent: %+v", b)
	}
	for range 2 {
		var back api.RefundAnswer
		r.want(t, 200, "POST", "/v1/spends/"+string(done.SpendID)+"/refund", "", &back)
		if !back.Refunded {
			t.Fatal("not refunded")
		}
	}
	r.want(t, 200, "GET", "/v1/budgets/acme", "", &b)
	if b.Spent != 0 {
		t.Fatalf("%+v", b)
	}
	wantProblem(t, r.send(t, "POST", "/v1/spends/"+someID+"/refund", "{}"), 404, api.NotFound)
}

func TestABudgetThatBeginsAnewSaysWhen(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.want(t, 201, "PUT", "/v1/budgets/hourly", `{"unit":"calls","limit":10,"window":{"kind":"fixed","seconds":3600}}`, nil)
	r.want(t, 201, "POST", "/v1/spends", `{"request_id":"a","entries":[{"budget":"hourly","amount":8}]}`, nil)
	a := r.send(t, "POST", "/v1/spends", `{"request_id":"b","entries":[{"budget":"hourly","amount":3}]}`)
	p := wantProblem(t, a, 429, api.BudgetExceeded)
	left := r.Clock.Now().Truncate(time.Hour).Add(time.Hour).Sub(r.Clock.Now())
	if !p.Retryable || a.header.Get("Retry-After") != fmt.Sprint(seconds(left)) {
		t.Errorf("%v %s", a.header, a.body)
	}
	if got, want := a.header.Get("RateLimit"), fmt.Sprintf(`"hourly";r=2;t=%d`, seconds(left)); got != want {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
	if got := a.header.Get("RateLimit-Policy"); got != `"hourly";q=10;w=3600` {
		t.Errorf("RateLimit-Policy: %s", got)
	}
	// More than the limit never fits, however long one waits.
	a = r.send(t, "POST", "/v1/spends", `{"request_id":"c","entries":[{"budget":"hourly","amount":11}]}`)
	if p := wantProblem(t, a, 402, api.BudgetExceeded); p.Retryable || a.header.Get("Retry-After") != "" || a.header.Get("RateLimit") != "" {
		t.Errorf("%v %s", a.header, a.body)
	}
}

func TestATokenForSomeBudgetsUsesAndSeesNoOthers(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "acme", 10, "")
	r.budget(t, "acme/s1", 100, "acme")
	r.budget(t, "acme/s10", 100, "acme")
	token := r.token(t, access.Grant{Name: "s1", Roles: []access.Role{access.Spend, access.Read}, Budgets: []string{"acme/s1"}})
	auth := []string{"Authorization", token}
	for _, name := range []string{"acme", "acme/s10", "nobody"} {
		wantProblem(t, r.send(t, "POST", "/v1/spends", `{"request_id":"x","entries":[{"budget":"`+name+`","amount":1}]}`, auth...), 403, api.Forbidden)
		wantProblem(t, r.send(t, "GET", "/v1/budgets/"+url.PathEscape(name), "", auth...), 403, api.Forbidden)
		wantProblem(t, r.send(t, "GET", "/v1/budgets?prefix="+url.QueryEscape(name), "", auth...), 403, api.Forbidden)
	}
	var page api.List[api.Budget]
	r.want(t, 200, "GET", "/v1/budgets", "", &page, auth...)
	if len(page.Items) != 1 || page.Items[0].Name != "acme/s1" {
		t.Fatalf("%+v", page)
	}
	var done api.SpendAnswer
	r.want(t, 201, "POST", "/v1/spends", `{"request_id":"a","entries":[{"budget":"acme/s1","amount":3}]}`, &done, auth...)
	if len(done.Budgets) != 1 || *done.Remaining != 97 {
		t.Fatalf("figures of others show: %+v", done)
	}
	a := r.send(t, "POST", "/v1/spends", `{"request_id":"b","entries":[{"budget":"acme/s1","amount":8}]}`, auth...)
	p := wantProblem(t, a, 402, api.BudgetExceeded)
	if len(p.Refused) != 1 || p.Refused[0].Budget != "acme" || p.Refused[0].RefusedFigures != nil {
		t.Fatalf("%s", a.body)
	}
}

func TestAListForSomeBudgetsNamesNoOthers(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	for _, name := range []string{"a", "b", "b/x", "b/y", "ba", "c", "d", "d/x", "e"} {
		r.budget(t, name, 1, "")
	}
	auth := []string{"Authorization", r.token(t, access.Grant{Name: "some", Roles: []access.Role{access.Read}, Budgets: []string{"d", "b", "b/x", "none"}})}
	for _, limit := range []string{"1", "2", "3", "50"} {
		var names []string
		for path := "/v1/budgets?limit=" + limit; path != ""; {
			var page api.List[api.Budget]
			r.want(t, 200, "GET", path, "", &page, auth...)
			for _, b := range page.Items {
				names = append(names, string(b.Name))
			}
			if path = ""; page.NextCursor != "" {
				text, err := base64.RawURLEncoding.DecodeString(page.NextCursor)
				if _, after, _ := strings.Cut(string(text), ":"); err != nil || strings.Trim(after, "bdxy/") != "" {
					t.Errorf("limit %s: the cursor shows %q, %v", limit, text, err)
				}
				path = "/v1/budgets?limit=" + limit + "&cursor=" + page.NextCursor
			}
			if len(names) > 9 {
				t.Fatalf("limit %s: no end: %v", limit, names)
			}
		}
		if got := strings.Join(names, " "); got != "b b/x b/y d d/x" {
			t.Errorf("limit %s: %s", limit, got)
		}
	}
	for _, cursor := range []string{"AAAA", base64.RawURLEncoding.EncodeToString([]byte("9:b")), base64.RawURLEncoding.EncodeToString([]byte("-1:b"))} {
		wantProblem(t, r.send(t, "GET", "/v1/budgets?cursor="+cursor, "", auth...), 400, api.Invalid)
	}
}

func TestATokenForSomeBudgetsUsesNoHoldOfItsOwnerInOthers(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "acme/s1", 100, "")
	r.budget(t, "acme/s2", 100, "")
	auth := []string{"Authorization", r.token(t, access.Grant{
		Name: "s1", Roles: []access.Role{access.Operate, access.Spend, access.Read}, Budgets: []string{"acme/s1"},
	})}
	var mine, others api.HoldAnswer
	r.want(t, 201, "POST", "/v1/holds", `{"request_id":"a","entries":[{"budget":"acme/s1","amount":5}],"ttl_seconds":60}`, &mine)
	r.want(t, 201, "POST", "/v1/holds", `{"request_id":"b","entries":[{"budget":"acme/s1","amount":5},{"budget":"acme/s2","amount":5}],"ttl_seconds":60}`, &others)
	id := string(others.HoldID)
	for path, body := range map[string]string{
		"/v1/operations":               `{"key":"k","request":1,"hold_id":"` + id + `"}`,
		"/v1/holds/" + id + "/capture": `{"entries":[]}`,
		"/v1/holds/" + id + "/void":    `{}`,
		"/v1/holds/" + id + "/extend":  `{"ttl_seconds":600}`,
	} {
		wantProblem(t, r.send(t, "POST", path, body, auth...), 403, api.Forbidden)
	}
	var held api.Hold
	r.want(t, 200, "GET", "/v1/holds/"+id, "", &held)
	if held.State != "open" {
		t.Fatalf("%+v", held)
	}
	none := strings.Repeat("a", 64)
	wantProblem(t, r.send(t, "POST", "/v1/holds/"+none+"/void", `{}`, auth...), 404, api.NotFound)
	r.want(t, 201, "POST", "/v1/operations", `{"key":"k","request":1,"hold_id":"`+string(mine.HoldID)+`"}`, nil, auth...)
}

func TestWhatATokenAlwaysTakesIsAddedToEachSpend(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "calls", 3, "")
	r.budget(t, "money", 100, "")
	token := r.token(t, access.Grant{Name: "always", Roles: []access.Role{access.Spend}, Budgets: []string{"money"}, Always: []access.Entry{{Budget: "calls", Amount: 1}, {Budget: "money", Amount: 2}}})
	for i := range 3 {
		r.want(t, 201, "POST", "/v1/spends", fmt.Sprintf(`{"request_id":"r%d","entries":[{"budget":"money","amount":10}]}`, i), nil, "Authorization", token)
	}
	p := wantProblem(t, r.send(t, "POST", "/v1/spends", `{"request_id":"r3","entries":[{"budget":"money","amount":10}]}`, "Authorization", token), 402, api.BudgetExceeded)
	if p.Refused[0].Budget != "calls" {
		t.Fatalf("%+v", p)
	}
	var b api.Budget
	r.want(t, 200, "GET", "/v1/budgets/money", "", &b)
	if b.Spent != 36 {
		t.Fatalf("%+v", b)
	}
}

func TestAHoldIsCapturedVoidedAndExtended(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	r.budget(t, "acme", 100, "")
	r.budget(t, "acme/s1", 50, "acme")
	var held api.HoldAnswer
	body := `{"request_id":"req-1","entries":[{"budget":"acme/s1","amount":20}],"ttl_seconds":600}`
	r.want(t, 201, "POST", "/v1/holds", body, &held)
	if held.HoldID != api.HoldID("default", "req-1") || len(held.Budgets) != 2 || held.Budgets[0].Held != 20 {
		t.Fatalf("%+v", held)
	}
	r.want(t, 200, "POST", "/v1/holds", body, &held)
	if !held.Repeated {
		t.Fatalf("%+v", held)
	}
	wantProblem(t, r.send(t, "POST", "/v1/holds", strings.Replace(body, "20", "21", 1)), 409, api.RequestIDReused)
	path := "/v1/holds/" + string(held.HoldID)
	var shown api.Hold
	r.want(t, 200, "GET", path, "", &shown)
	if shown.State != "open" || shown.ExpiresAt != held.ExpiresAt || len(shown.Entries) != 1 || shown.Entries[0].Amount != 20 {
		t.Fatalf("%+v", shown)
	}
	var longer api.ExtendAnswer
	r.want(t, 200, "POST", path+"/extend", `{"ttl_seconds":1200}`, &longer)
	if longer.ExpiresAt.UnixMilli() <= held.ExpiresAt.UnixMilli() {
		t.Fatalf("%+v", longer)
	}
	wantProblem(t, r.send(t, "POST", path+"/capture", `{"entries":[{"budget":"acme","amount":1}]}`), 400, api.Invalid)
	var done api.CaptureAnswer
	capture := `{"entries":[{"budget":"acme/s1","amount":15}]}`
	r.want(t, 200, "POST", path+"/capture", capture, &done)
	if len(done.Captured) != 1 || done.Captured[0].Amount != 15 || done.Uncaptured != nil || done.Budgets[0].Spent != 15 || done.Budgets[0].Held != 0 {
		t.Fatalf("%+v", done)
	}
	r.want(t, 200, "POST", path+"/capture", capture, &done)
	wantProblem(t, r.send(t, "POST", path+"/capture", `{"entries":[]}`), 409, api.HoldSettled)
	wantProblem(t, r.send(t, "POST", path+"/void", ""), 409, api.HoldSettled)
	wantProblem(t, r.send(t, "POST", path+"/extend", `{"ttl_seconds":10}`), 409, api.HoldSettled)
	r.want(t, 200, "GET", path, "", &shown)
	if shown.State != "captured" {
		t.Fatalf("%+v", shown)
	}

	r.want(t, 201, "POST", "/v1/holds", strings.Replace(body, "req-1", "req-2", 1), &held)
	path = "/v1/holds/" + string(held.HoldID)
	for _, empty := range []string{"", "{}"} {
		r.want(t, 200, "POST", path+"/void", empty, nil)
	}
	r.want(t, 201, "POST", "/v1/holds", strings.Replace(body, "req-1", "req-3", 1), &held)
	r.Clock.Advance(11 * time.Minute)
	wantProblem(t, r.send(t, "POST", "/v1/holds/"+string(held.HoldID)+"/capture", `{"entries":[]}`), 410, api.HoldExpired)
	wantProblem(t, r.send(t, "GET", "/v1/holds/"+someID, ""), 404, api.NotFound)
	p := wantProblem(t, r.send(t, "POST", "/v1/holds", `{"request_id":"req-4","entries":[{"budget":"acme/s1","amount":51}],"ttl_seconds":600}`), 402, api.BudgetExceeded)
	if p.Refused[0].Spent != 15 {
		t.Fatalf("%+v", p)
	}
}
