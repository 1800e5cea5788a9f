package server

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/canonical"
)

const token32 = "77777777777777777777777777777777"

// examples has a body of every member for each route that takes one. `{permit}` stands for a permit of the call.
var examples = map[string]string{ //nolint:gosec // no secret
	"POST /v1/permits":         `{` + call + `,"arguments":{"to":"bob"},"ttl_seconds":30,"hold":{"entries":[{"budget":"money","amount":1}]}}`,
	"POST /v1/permits/consume": `{"permit":{permit},"expected":` + expects + `,"token":"` + token32 + `"}`,
	"POST /v1/permits/check":   `{"permit":{permit},"expected":` + expects + `,"token":"` + token32 + `"}`,
	"POST /v1/revocations":     `{"subject":"nobody","capability":"none"}`,
	"POST /v1/operations": `{"key":"k","request":{"a":1},"lease_seconds":30,"permit":{permit},"expected":` + expects + `,"hold_id":"` + someID +
		`","spend":[{"budget":"money","amount":1}],"metadata":{"a":1},"token":"` + token32 + `"}`,
	"POST /v1/operations/{id}/complete":    `{"token":"` + token32 + `","receipt":{"status":200,"headers":{"A":"b"},"content_type":"text/plain","body":"x"},"capture":[{"budget":"money","amount":1}]}`,
	"POST /v1/operations/{id}/renew":       `{"token":"` + token32 + `","lease_seconds":30}`,
	"POST /v1/operations/{id}/abort":       `{"token":"` + token32 + `","reason":"x"}`,
	"POST /v1/operations/{id}/resolve":     `{"outcome":"happened","receipt":{"status":200},"capture":[{"budget":"money","amount":1}],"note":"x"}`,
	"POST /v1/challenges":                  `{"job_id":"` + job + `","ttl_seconds":60,"supersede":true,"token":"` + token32 + `"}`,
	"POST /v1/challenges/{job_id}/consume": `{"nonce":"` + job + `","epoch":1,"token":"` + token32 + `"}`,
	"POST /v1/epoch/advance":               `{"from":1,"token":"` + token32 + `"}`,
	"PUT /v1/budgets/{name}":               `{"unit":"calls","limit":5,"window":{"kind":"calendar","period":"day","zone":"UTC"},"parent":"money"}`,
	"POST /v1/budgets/close":               `{"prefix":"none"}`,
	"POST /v1/spends":                      `{"request_id":"r","entries":[{"budget":"money","amount":1}]}`,
	"POST /v1/holds":                       `{"request_id":"r","entries":[{"budget":"money","amount":1}],"ttl_seconds":60}`,
	"POST /v1/holds/{id}/capture":          `{"entries":[{"budget":"money","amount":1}],"token":"` + token32 + `"}`,
	"POST /v1/holds/{id}/extend":           `{"ttl_seconds":60}`,
	"POST /v1/approvals":                   `{` + call + `,"arguments":{"to":"bob"},"ttl_seconds":60}`,
	"POST /v1/approvals/{id}/grant":        `{"ttl_seconds":60,"note":"x"}`,
	"POST /v1/approvals/{id}/deny":         `{"note":"x"}`,
	"POST /v1/tokens":                      `{"name":"n","scope":"default","owner":"o","roles":["read"],"budgets":["money"],"always":[{"budget":"money","amount":1}],"require":"permit"}`,
	"POST /v1/scopes":                      `{"name":"n"}`,
	"POST /v1/keys/trust":                  `{"public":"` + someID + `"}`,
	"POST /v1/keys/retire":                 `{"public":"` + someID + `"}`,
	"POST /v1/backup":                      `{"directory":"/nonexistent/copy"}`,
	"POST /v1/spends/{id}/refund":          `{}`,
	"POST /v1/holds/{id}/void":             `{}`,
	"POST /v1/keys/rotate":                 `{}`,
}

// pathOf fills the parts of a route's path.
func pathOf(path string) string {
	return strings.NewReplacer("{id}", someID, "{job_id}", job, "{name}", "some", "{code}", "invalid").Replace(path)
}

// example is the example body of a route, with a permit in it.
func (r *rig) example(t testing.TB, route *Route) string {
	t.Helper()
	body, ok := examples[route.Pattern()]
	if !ok {
		t.Fatalf("no example of %s", route.Pattern())
	}
	return body
}

// withPermit serves with a budget, and returns a permit of the call.
func withPermit(t *testing.T) (r *rig, permit string) {
	t.Helper()
	r = serve(t, Limits{}, nil)
	r.budget(t, "money", 1000, "")
	return r, string(r.mint(t, "").Permit)
}

// Every member of every body is looked at: left out, null, of another type, of another name, twice.
func TestEveryMemberOfEveryBodyIsJudged(t *testing.T) { //nolint:tparallel // what comes after the cases needs their end
	t.Parallel()
	r, permit := withPermit(t)
	for _, route := range r.server.Routes() {
		if route.Body == NoBody {
			continue
		}
		t.Run(route.Pattern(), func(t *testing.T) {
			body := strings.ReplaceAll(r.example(t, &route), "{permit}", permit)
			path := pathOf(route.Path)
			if a := r.send(t, route.Method, path, body); a.status == 400 && route.Path != "/v1/backup" && route.Path != "/v1/keys/trust" {
				t.Fatalf("the example is refused: %s", a.body)
			}
			var whole map[string]any
			must(t, json.Unmarshal([]byte(body), &whole))
			fields := map[string]field{}
			for _, f := range route.form.fields {
				if f.place == inBody {
					fields[f.name] = f
					if _, ok := whole[f.name]; !ok && f.name != "parameter_hash" && f.name != "fingerprint" {
						t.Errorf("the example lacks %s", f.name)
					}
				}
			}
			bad := map[string]string{
				"an unknown member":  strings.TrimSuffix(body, "}") + `,"unknown_member":1}`,
				"no object":          `[]`,
				"a string":           `"x"`,
				"data after it":      body + `1`,
				"invalid UTF-8":      strings.TrimSuffix(body, "}") + ",\"unknown\":\"\xff\"}",
				"an unfinished body": strings.TrimSuffix(body, "}"),
			}
			if len(whole) == 0 {
				bad["an unknown member"] = `{"unknown_member":1}`
				bad["invalid UTF-8"] = "{\"a\":\"\xff\"}"
			}
			for name := range whole {
				for what, value := range map[string]any{"null": nil, "another type": []any{map[string]any{}}, "a fraction": 1.5, "true": true} {
					isJSON := fields[name].raw(route.Request)
					if isJSON || what == "true" && name == "supersede" {
						continue
					}
					changed := map[string]any{}
					for k, v := range whole {
						changed[k] = v
					}
					changed[name] = value
					text, err := json.Marshal(changed)
					must(t, err)
					bad[name+" as "+what] = string(text)
				}
				bad[name+" twice"] = strings.TrimSuffix(body, "}") + `,"` + name + `":` + text(t, whole[name]) + `}`
				if fields[name].required {
					bad[name+" left out"] = without(t, whole, name)
				}
			}
			for what, body := range bad {
				a := r.send(t, route.Method, path, body)
				if a.status != http.StatusBadRequest {
					t.Errorf("%s: %d %s\n%s", what, a.status, a.body, body)
				}
			}
			for name := range whole {
				if fields[name].required || fields[name].raw(route.Request) || name == "expected" {
					continue
				}
				// What may be left out may be left out.
				if a := r.send(t, route.Method, path, without(t, whole, name)); a.status == 400 && route.Path != "/v1/backup" {
					t.Errorf("without %s: %s", name, a.body)
				}
			}
		})
	}
}

// raw reports whether any JSON is taken.
func (fd field) raw(of reflect.Type) bool {
	return fd.index != nil && of.FieldByIndex(fd.index).Type == reflect.TypeFor[json.RawMessage]()
}

func text(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	must(t, err)
	return string(out)
}

func without(t *testing.T, whole map[string]any, name string) string {
	t.Helper()
	rest := map[string]any{}
	for k, v := range whole {
		if k != name {
			rest[k] = v
		}
	}
	return text(t, rest)
}

// Whatever a body holds, the server answers, says what it did not like, and never fails.
func FuzzBodies(f *testing.F) {
	r := prepared(f, Limits{})
	routes := slices.DeleteFunc(r.server.Routes(), func(route Route) bool { return route.Body == NoBody })
	f.Add(byte(0), []byte(`{}`))
	i := byte(0)
	for _, pattern := range slices.Sorted(maps.Keys(examples)) {
		f.Add(i, []byte(strings.ReplaceAll(examples[pattern], "{permit}", `{"nonce":{},"signature":""}`)))
		i++
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		route := &routes[int(which)%len(routes)]
		req := httptest.NewRequestWithContext(t.Context(), route.Method, pathOf(route.Path), bytes.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+r.admin)
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		r.server.ServeHTTP(w, req)
		code := api.Code(w.Header().Get("Counterfoil-Outcome"))
		if code == api.Internal || code == api.RecordCorrupt || code == "" || !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s: %d %s", route.Pattern(), w.Code, w.Body)
		}
		if w.Code >= 400 && !slices.Contains(route.AllCodes(), code) {
			t.Fatalf("%s: the document does not name %s", route.Pattern(), code)
		}
		if len(body) > 0 && canonical.Check(body, len(body)) != nil && w.Code < 400 && !numbersOnly(body) {
			t.Fatalf("%s: taken, though it is no strict JSON: %d", route.Pattern(), w.Code)
		}
	})
}

// numbersOnly reports whether all that is wrong with src is the size of its numbers, which matters only where they are
// hashed.
func numbersOnly(src []byte) bool {
	var whole json.RawMessage
	return canonical.Decode(src, &whole) == nil
}
