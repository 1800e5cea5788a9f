package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/counterfoil/counterfoil/api"
)

// documented asserts that an answer is one that the OpenAPI document promises of its route: status, code, and every member
// of the body. Every request of this package's tests passes through it.
func (r *rig) documented(t *testing.T, req *http.Request, a reply) {
	t.Helper()
	_, pattern := r.server.mux.Handler(req)
	at := slices.IndexFunc(r.server.routes, func(route Route) bool {
		return route.Pattern() == pattern
	})
	if at < 0 {
		return
	}
	route := &r.server.routes[at]
	if req.Method == http.MethodHead {
		return
	}
	if a.status < 400 {
		if !slices.Contains(route.statuses(), a.status) {
			t.Errorf("%s: the document does not promise %d", pattern, a.status)
		}
		if route.Answer != nil {
			conforms(t, pattern, newRegistry(), func(g huma.Registry) *huma.Schema { return g.Schema(route.Answer, true, "") }, a.body)
		}
		return
	}
	code := api.Code(a.header.Get("Counterfoil-Outcome"))
	if !slices.Contains(route.AllCodes(), code) {
		t.Errorf("%s: the document does not promise %s", pattern, code)
	}
	if row, ok := code.Info(); !ok || !slices.Contains(row.Statuses, a.status) {
		t.Errorf("%s: %s with status %d", pattern, code, a.status)
	}
	if route.Path != "/readyz" {
		conforms(t, pattern, newRegistry(), func(g huma.Registry) *huma.Schema {
			return refusal([]api.Code{code}, g).Content[api.ProblemType].Schema
		}, a.body)
	}
}

// conforms asserts that a body has the schema.
func conforms(t *testing.T, what string, registry huma.Registry, schema func(huma.Registry) *huma.Schema, body string) {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Errorf("%s: %v: %s", what, err, body)
		return
	}
	s := schema(registry)
	precompute(s)
	var found huma.ValidateResult
	huma.Validate(registry, s, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, value, &found)
	for _, err := range found.Errors {
		t.Errorf("%s: the answer is not as the document says: %v\n%s", what, err, body)
	}
}

// precompute readies the schemas that were put together by hand.
func precompute(s *huma.Schema) {
	s.PrecomputeMessages()
	for _, part := range s.AllOf {
		precompute(part)
	}
	for _, part := range s.Properties {
		precompute(part)
	}
}

// The examples are what the document says of requests, and the other way round.
func TestTheDocumentTakesWhatTheServerTakes(t *testing.T) {
	t.Parallel()
	r := prepared(t, Limits{})
	n := 0
	for _, route := range r.server.Routes() {
		if route.Body == NoBody {
			continue
		}
		n++
		body := strings.ReplaceAll(r.example(t, &route), "{permit}", `{}`)
		conforms(t, route.Pattern(), newRegistry(), func(g huma.Registry) *huma.Schema { return g.Schema(route.Request, true, "") }, body)
	}
	if n != len(examples) {
		t.Errorf("%d examples, %d routes with a body", len(examples), n)
	}
}
