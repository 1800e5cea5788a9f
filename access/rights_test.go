package access_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/access"
)

func TestARoleGivesItselfObserveReadAndAdminEverything(t *testing.T) {
	t.Parallel()
	for _, has := range access.Roles() {
		p := access.Principal{Roles: []access.Role{has}}
		for _, asked := range access.Roles() {
			want := has == asked || has == access.Admin || has == access.Observe && asked == access.Read
			if p.Allows(asked) != want {
				t.Errorf("%s allows %s: %v", has, asked, !want)
			}
		}
		if p.Allows("") || p.Allows() || p.Allows("root") {
			t.Errorf("%s allows what is no role", has)
		}
	}
	if (access.Principal{}).Allows(access.Roles()...) {
		t.Error("nobody has rights")
	}
}

func TestBudgetsAreMatchedByWholeSegments(t *testing.T) {
	t.Parallel()
	p := access.Principal{Budgets: []string{"acme/s1", "tools"}}
	for budget, want := range map[string]bool{
		"acme/s1": true, "acme/s1/x": true, "tools": true, "tools/a/b": true,
		"acme/s10": false, "acme": false, "acme/s2": false, "tool": false, "toolsx": false, "": false, "x/tools": false,
	} {
		if p.MayUse(budget) != want {
			t.Errorf("%q: %v", budget, !want)
		}
	}
	if !(access.Principal{}).MayUse("anything") {
		t.Error("no prefixes must mean every budget")
	}
}

func TestOnlyAdminActsForOthers(t *testing.T) {
	t.Parallel()
	agent := access.Principal{Scope: "acme", Owner: "alice", Roles: []access.Role{access.Observe, access.Resolve}}
	boss := access.Principal{Scope: "acme", Owner: "alice", Roles: []access.Role{access.Admin}}
	root := access.Principal{Scope: "default", Owner: "default", Roles: []access.Role{access.Admin}, EveryScope: true}
	values := func(v ...string) []string { return v }
	for _, c := range []struct {
		name         string
		who          access.Principal
		owner, scope []string
		wantOwner    string
		wantScope    string
		want         error
	}{
		{"agent as itself", agent, nil, nil, "alice", "acme", nil},
		{"agent naming itself", agent, values("alice"), nil, "", "", access.ErrForbidden},
		{"agent as another", agent, values("bob"), nil, "", "", access.ErrForbidden},
		{"agent naming its scope", agent, nil, values("acme"), "", "", access.ErrForbidden},
		{"agent with a bad name learns nothing", agent, values(""), nil, "", "", access.ErrForbidden},
		{"boss as another", boss, values("bob"), nil, "bob", "acme", nil},
		{"boss in another scope", boss, nil, values("other"), "", "", access.ErrForbidden},
		{"boss naming its scope", boss, nil, values("acme"), "", "", access.ErrForbidden},
		{"boss as another in another scope", boss, values("bob"), values("other"), "", "", access.ErrForbidden},
		{"root as itself", root, nil, nil, "default", "default", nil},
		{"root as another in another scope", root, values("bob"), values("acme"), "bob", "acme", nil},
		{"root in every scope", root, nil, values("*"), "default", "*", nil},
		{"owner twice", root, values("a", "b"), nil, "", "", access.ErrInvalid},
		{"scope twice", root, nil, values("a", "a"), "", "", access.ErrInvalid},
		{"an empty owner", root, values(""), nil, "", "", access.ErrInvalid},
		{"an empty scope", root, nil, values(""), "", "", access.ErrInvalid},
		{"the store's own scope", root, nil, values("_store"), "", "", access.ErrInvalid},
		{"an owner with control", root, values("a\tb"), nil, "", "", access.ErrInvalid},
		{"a long owner", root, values(strings.Repeat("x", 257)), nil, "", "", access.ErrInvalid},
	} {
		got, err := c.who.As(c.owner, c.scope)
		if !errors.Is(err, c.want) || got.Owner != c.wantOwner || got.Scope != c.wantScope {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	if _, err := access.Operator("_store", "default"); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("operator in the store's own scope: %v", err)
	}
}

func TestEveryRouteOfTheInterfaceAsksForARole(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	used := map[access.Role]bool{}
	for _, r := range access.Routes {
		name := r.Method + " " + r.Path
		if seen[name] {
			t.Errorf("%s stands twice", name)
		}
		seen[name] = true
		if strings.HasPrefix(r.Path, "/v1/") != (len(r.Roles) > 0) {
			t.Errorf("%s: /v1 asks for a role, and nothing else does", name)
		}
		for _, role := range r.Roles {
			used[role] = true
		}
		for _, also := range r.Also {
			used[also.Role] = true
		}
		if roles, known := access.RolesOf(r.Method, r.Path); !known || !slices.Equal(roles, r.Roles) {
			t.Errorf("%s: RolesOf says %v, %v", name, roles, known)
		}
	}
	for _, role := range access.Roles() {
		if !used[role] {
			t.Errorf("no route asks for %s", role)
		}
	}
	if len(used) != len(access.Roles()) {
		t.Errorf("a route asks for a role that does not exist: %v", used)
	}
	if _, known := access.RolesOf("GET", "/v1/unknown"); known {
		t.Error("an unknown route is known")
	}
	if roles, known := access.RolesOf("DELETE", "/v1/permits"); known || roles != nil {
		t.Error("another method is known")
	}
}

func TestBearerIsReadStrictly(t *testing.T) {
	t.Parallel()
	token := "cf_" + strings.Repeat("a", 42) + "A"
	for _, c := range []struct {
		header []string
		ok     bool
	}{
		{[]string{"Bearer " + token}, true},
		{[]string{"bearer " + token}, true},
		{[]string{"BEARER " + token}, true},
		{nil, false},
		{[]string{""}, false},
		{[]string{"Bearer"}, false},
		{[]string{"Bearer "}, false},
		{[]string{token}, false},
		{[]string{"Basic " + token}, false},
		{[]string{"Bearer  " + token}, false},
		{[]string{"Bearer\t" + token}, false},
		{[]string{"Bearer " + token + " "}, false},
		{[]string{"Bearer " + token + "\n"}, false},
		{[]string{"Bearer " + token + "," + token}, false},
		{[]string{"Bearer " + token, "Bearer " + token}, false},
		{[]string{"Bearer " + token[:45]}, false},
		{[]string{"Bearer " + token + "A"}, false},
		{[]string{"Bearer CF_" + token[3:]}, false},
		{[]string{"Bearer cf_" + strings.Repeat("a", 43)}, false}, // bits beyond the 32 bytes
		{[]string{"Bearer cf_" + strings.Repeat("+", 43)}, false},
		{[]string{"Bearer cf_" + strings.Repeat("a", 41) + "\r\n"}, false},
		{[]string{"Bearer cf_" + strings.Repeat("a", 41) + "A="}, false},
	} {
		got, err := access.ParseBearer(c.header)
		if c.ok && (err != nil || got.Reveal() != token) {
			t.Errorf("%q: %v", c.header, err)
		}
		if !c.ok && !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("%q: %v, want ErrUnauthenticated", c.header, err)
		}
		if err != nil && len(c.header) > 0 && len(c.header[0]) > 20 && strings.Contains(err.Error(), c.header[0][12:]) {
			t.Errorf("the error repeats the token: %v", err)
		}
	}
}

// FuzzParseToken: what is read as a token is written as the same text, and as no other.
func FuzzParseToken(f *testing.F) {
	f.Add("cf_" + strings.Repeat("a", 42) + "A")
	f.Add("cf_" + strings.Repeat("a", 43))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := access.ParseToken(text)
		if err != nil {
			if !errors.Is(err, access.ErrUnauthenticated) {
				t.Fatal(err)
			}
			return
		}
		if token.Reveal() != text || len(text) != access.TokenLength {
			t.Fatalf("%q read as %q", text, token.Reveal())
		}
	})
}

func TestATokenShowsNothingUnlessRevealed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	token := f.token("default", grant("agent", access.Read))
	text := token.Reveal()
	if len(text) != access.TokenLength || !strings.HasPrefix(text, "cf_") {
		t.Fatalf("a token of %d characters", len(text))
	}
	type answer struct {
		Token  access.Token
		hidden access.Token
	}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+" ", token)
		fmt.Fprintf(&out, verb+" ", &token)
		fmt.Fprintf(&out, verb+" ", answer{token, token})
		fmt.Fprintf(&out, verb+"\n", []access.Token{token})
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "token", token, "answer", answer{token, token})
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "token", token, "answer", answer{token, token})
	check(t, json.NewEncoder(&out).Encode(answer{token, token}))
	_, err := f.Authenticate(t.Context(), parse(t, "cf_"+strings.Repeat("A", 43)))
	fmt.Fprintf(&out, "%v %+v", err, f.who(token))
	for _, part := range []string{text, text[3:], text[3:23], fmt.Sprintf("%x", text)} {
		if strings.Contains(out.String(), part) {
			t.Fatalf("shown: %s\nin %s", part, out.String())
		}
	}
	if strings.Count(out.String(), "cf_[secret]") < 20 {
		t.Fatalf("tokens are not shown as such:\n%s", out.String())
	}
}
