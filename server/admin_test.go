package server

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/api"
)

func TestATokenIsShownOnceAndRevoked(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	var made api.CreateTokenAnswer
	body := `{"name":"agent","owner":"bob","roles":["challenge","read"],"budgets":["acme/"],"always":[{"budget":"acme","amount":0}],"require":"permit"}`
	r.want(t, 201, "POST", "/v1/tokens", body, &made)
	if made.Name != "agent" || made.Scope != "default" || made.Owner != "bob" || len(made.Roles) != 2 || made.Budgets[0] != "acme" || made.Require != "permit" || len(made.Secret) != 46 {
		t.Fatalf("%+v", made)
	}
	wantProblem(t, r.send(t, "POST", "/v1/tokens", body), 409, api.RequestIDReused)
	auth := []string{"Authorization", "Bearer " + made.Secret}
	r.want(t, 200, "GET", "/v1/epoch", "", nil, auth...)
	wantProblem(t, r.send(t, "GET", "/v1/tokens", "", auth...), 403, api.Forbidden)

	var list api.List[api.Credential]
	a := r.want(t, 200, "GET", "/v1/tokens", "", &list)
	if strings.Contains(a.body, made.Secret) || len(list.Items) == 0 || list.Items[0].Name != "agent" || list.Items[0].CreatedAt == (api.Time{}) {
		t.Fatalf("%s", a.body)
	}
	var gone api.RevokeTokenAnswer
	r.want(t, 200, "DELETE", "/v1/tokens/agent", "", &gone)
	wantProblem(t, r.send(t, "GET", "/v1/epoch", "", auth...), 401, api.Unauthenticated)
	wantProblem(t, r.send(t, "DELETE", "/v1/tokens/nobody", ""), 404, api.NotFound)
	if strings.Contains(r.logged.String(), made.Secret) {
		t.Error("the log has the token")
	}
	for name, body := range map[string]string{
		"unknown role":   `{"name":"a","owner":"b","roles":["` + marker + `"]}`,
		"no role":        `{"name":"a","owner":"b","roles":[]}`,
		"no owner":       `{"name":"a","roles":["read"]}`,
		"empty budgets":  `{"name":"a","owner":"b","roles":["read"],"budgets":[]}`,
		"unknown":        `{"name":"a","owner":"b","roles":["read"],"require":"` + marker + `"}`,
		"everywhere":     `{"name":"a","owner":"b","scope":"*","roles":["read"]}`,
		"reserved scope": `{"name":"a","owner":"b","scope":"_store","roles":["read"]}`,
	} {
		a := r.send(t, "POST", "/v1/tokens", body)
		if a.status != 400 || strings.Contains(a.body, marker) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

func TestAScopeIsCreatedAndActedInByItsHeader(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	wantProblem(t, r.send(t, "GET", "/v1/epoch", "", "Counterfoil-Scope", "other"), 404, api.NotFound)
	var made api.Scope
	r.want(t, 201, "POST", "/v1/scopes", `{"name":"other"}`, &made)
	if made.Name != "other" || made.Epoch != 1 || made.Generation == 0 {
		t.Fatalf("%+v", made)
	}
	r.want(t, 200, "POST", "/v1/scopes", `{"name":"other"}`, &made)
	var e api.EpochAnswer
	r.want(t, 200, "POST", "/v1/epoch/advance", `{"from":1}`, &e, "Counterfoil-Scope", "other")
	r.want(t, 200, "GET", "/v1/epoch", "", &e)
	if e.Epoch != 1 {
		t.Fatal("the epoch of another scope advanced")
	}
	var list api.List[api.Scope]
	r.want(t, 200, "GET", "/v1/scopes", "", &list)
	if len(list.Items) != 2 || list.Items[1].Epoch != 2 {
		t.Fatalf("%+v", list)
	}
	for _, name := range []string{"_store", "*", ""} {
		if a := r.send(t, "POST", "/v1/scopes", `{"name":"`+name+`"}`); a.status != 400 {
			t.Errorf("%q: %d %s", name, a.status, a.body)
		}
	}
}

func TestKeysAreRotatedTrustedAndRetired(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	var before, after api.List[api.SigningKey]
	r.want(t, 200, "GET", "/v1/keys", "", &before)
	if len(before.Items) != 1 || before.Items[0].State != "signing" {
		t.Fatalf("%+v", before)
	}
	var set api.KeySet
	r.want(t, 200, "GET", "/.well-known/jwks.json", "", &set, "Authorization", "")
	x, err := base64.RawURLEncoding.DecodeString(set.Keys[0].X)
	if err != nil || hex.EncodeToString(x) != string(before.Items[0].Public) || set.Keys[0].KID != before.Items[0].KID || set.Keys[0].CRV != "Ed25519" {
		t.Fatalf("%+v", set)
	}
	r.want(t, 200, "GET", "/.well-known/jwks.json?scope=nobody", "", &set)
	if len(set.Keys) != 0 {
		t.Fatalf("%+v", set)
	}
	var rotated api.KeyAnswer
	r.want(t, 201, "POST", "/v1/keys/rotate", "", &rotated)
	if rotated.Key.State != "accepted" || rotated.Key.SignsFrom == (api.Time{}) {
		t.Fatalf("%+v", rotated)
	}
	// The key of RFC 8032 7.1 test 1.
	const foreign = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
	var trusted api.KeyAnswer
	r.want(t, 200, "POST", "/v1/keys/trust", `{"public":"`+foreign+`"}`, &trusted)
	if trusted.Key.State != "trusted" {
		t.Fatalf("%+v", trusted)
	}
	if a := r.send(t, "POST", "/v1/keys/trust", `{"public":"`+foreign+`"}`); a.status != 400 {
		t.Errorf("trusted twice: %d %s", a.status, a.body)
	}
	small := strings.Repeat("0", 64)
	wantProblem(t, r.send(t, "POST", "/v1/keys/trust", `{"public":"`+small+`"}`), 400, api.Invalid)
	r.want(t, 200, "GET", "/v1/keys", "", &after)
	if len(after.Items) != 3 {
		t.Fatalf("%+v", after)
	}
	r.want(t, 200, "POST", "/v1/keys/retire", `{"public":"`+foreign+`"}`, nil)
	wantProblem(t, r.send(t, "POST", "/v1/keys/retire", `{"public":"`+foreign+`"}`), 404, api.NotFound)
	wantProblem(t, r.send(t, "POST", "/v1/keys/rotate", "", "Counterfoil-Scope", "nobody"), 404, api.NotFound)
}

func TestABackupIsOfAnEmbeddedEngineOnly(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	wantProblem(t, r.send(t, "POST", "/v1/backup", `{"directory":"`+t.TempDir()+`/copy"}`), 400, api.Invalid)
}
