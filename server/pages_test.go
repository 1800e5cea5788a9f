package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

func TestHealthNeedsNoTokenAndIgnoresOne(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	for _, token := range []string{"", "Bearer wrong", "Bearer " + r.admin} {
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/problems/invalid"} {
			if a := r.send(t, http.MethodGet, path, "", "Authorization", token); a.status != http.StatusOK || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s with %q: %d %s", path, token, a.status, a.body)
			}
		}
	}
	if a := r.send(t, http.MethodHead, "/healthz", ""); a.status != http.StatusOK || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
	var ready api.Readiness
	must(t, json.Unmarshal([]byte(r.send(t, http.MethodGet, "/readyz", "").body), &ready))
	if !ready.Ready || ready.Engine != "memory" || ready.Guarantee != "process" || ready.Generation == 0 {
		t.Errorf("%+v", ready)
	}
}

// troubled is the health of a store in trouble.
type troubled struct {
	ping   error
	health store.Health
}

func (t troubled) Ping(context.Context) error { return t.ping }
func (t troubled) Health() store.Health       { return t.health }

func TestNotReadySaysWhy(t *testing.T) {
	t.Parallel()
	base := store.Health{Guarantee: engine.Guarantee{Engine: "pebble", Level: engine.Node}, Generation: 3}
	with := func(change func(*store.Health)) store.Health {
		h := base
		change(&h)
		return h
	}
	for name, c := range map[string]struct {
		health troubled
		code   api.Code
	}{
		"latched":      {troubled{health: with(func(h *store.Health) { h.Latched = fmt.Errorf("%w: no space", state.ErrLatched) })}, api.Latched},
		"clock":        {troubled{health: with(func(h *store.Health) { h.Clock = fmt.Errorf("%w: back", state.ErrClock) })}, api.ClockRefused},
		"out of reach": {troubled{ping: state.ErrUnavailable, health: base}, api.StoreUnavailable},
		"slow":         {troubled{ping: context.DeadlineExceeded, health: base}, api.CommitUnknown},
		"damaged":      {troubled{ping: state.ErrCorrupt, health: base}, api.StoreUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serve(t, Limits{}, func(s *Server) { s.health = c.health })
			a := r.send(t, http.MethodGet, "/readyz", "")
			wantProblem(t, a, http.StatusServiceUnavailable, c.code)
			var ready api.Readiness
			must(t, json.Unmarshal([]byte(a.body), &ready))
			if ready.Ready || ready.Engine != "pebble" || ready.Generation != 3 {
				t.Errorf("%s", a.body)
			}
		})
	}
}

func TestPagesLoadNothingFromAnotherHost(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	for _, path := range []string{"/docs", "/problems/in_flight"} {
		a := r.send(t, http.MethodGet, path, "")
		if a.header.Get("Content-Type") != "text/html; charset=utf-8" || a.header.Get("Content-Security-Policy") != pagePolicy {
			t.Errorf("%s: %v", path, a.header)
		}
		if m := style.FindStringSubmatch(a.body); m == nil || m[1] != styleCSS {
			t.Errorf("%s: the style is not the one that the policy allows", path)
		}
		if bad := regexp.MustCompile(`(?i)(src|href|url|@import)\s*[=(]\s*["']?\s*(https?:)?//|<script|<link|<img|<iframe`).FindString(a.body); bad != "" {
			t.Errorf("%s has %s", path, bad)
		}
	}
}

func TestDocsShowEveryRouteAndCode(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	page := r.send(t, http.MethodGet, "/docs", "").body
	for _, route := range r.server.Routes() {
		if !strings.Contains(page, route.Method+" "+route.Path) || !strings.Contains(page, operationID(&route)) {
			t.Errorf("/docs lacks %s", route.Pattern())
		}
	}
	for _, row := range api.Codes() {
		if !strings.Contains(page, `href="/problems/`+string(row.Code)) {
			t.Errorf("/docs lacks %s", row.Code)
		}
		a := r.send(t, http.MethodGet, "/problems/"+string(row.Code), "")
		if a.status != http.StatusOK || !strings.Contains(a.body, string(row.Code)) || !strings.Contains(a.body, fmt.Sprint(row.Status())) {
			t.Errorf("/problems/%s: %d", row.Code, a.status)
		}
	}
	if strings.Contains(page, "%!") || strings.Contains(page, "ZgotmplZ") {
		t.Error("the page has a mistake of its template")
	}
}

func TestOpenAPIHasEveryRouteWithItsRolesAndCodes(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Roles       []access.Role `json:"x-roles"`
			Responses   map[string]struct{ Description string }
			Security    []map[string][]string
		}
		Components struct{ Schemas map[string]any }
	}
	text := r.send(t, http.MethodGet, "/openapi.json", "").body
	must(t, json.Unmarshal([]byte(text), &doc))
	if strings.Contains(text, `"null"`) {
		t.Error("the document allows null, which the server never takes nor gives")
	}
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("version %s", doc.OpenAPI)
	}
	n := 0
	seen := map[string]bool{}
	for _, route := range r.server.Routes() {
		op, ok := doc.Paths[route.Path][strings.ToLower(route.Method)]
		if !ok {
			t.Errorf("no %s", route.Pattern())
			continue
		}
		n++
		if seen[op.OperationID] || op.OperationID == "" {
			t.Errorf("%s: operationId %q", route.Pattern(), op.OperationID)
		}
		seen[op.OperationID] = true
		if !slices.Equal(op.Roles, route.Roles) || (len(op.Security) == 0) != route.Public() {
			t.Errorf("%s: roles %v", route.Pattern(), op.Roles)
		}
		for _, code := range route.AllCodes() {
			row, _ := code.Info()
			for _, status := range row.Statuses {
				if !strings.Contains(op.Responses[fmt.Sprint(status)].Description, string(code)) {
					t.Errorf("%s: no %d %s", route.Pattern(), status, code)
				}
			}
		}
		for _, status := range route.statuses() {
			if _, ok := op.Responses[fmt.Sprint(status)]; !ok {
				t.Errorf("%s: no %d", route.Pattern(), status)
			}
		}
	}
	for path, item := range doc.Paths {
		n -= len(item)
		if n < 0 {
			t.Errorf("%s: more operations than routes", path)
		}
	}
	if _, ok := doc.Components.Schemas["Problem"]; !ok {
		t.Error("no schema of a problem")
	}
}

func TestMetricsNameRoutesAndOutcomesOnly(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, echoing(nil))
	r.send(t, http.MethodPost, "/v1/echo/"+someID, `{"name":"x"}`, "Counterfoil-Owner", "owner-"+marker)
	r.send(t, http.MethodGet, "/"+marker, "")
	r.send(t, marker, "/healthz", "")
	a := r.send(t, http.MethodGet, "/metrics", "")
	for _, want := range []string{
		`counterfoil_http_requests_total{outcome="ok",route="POST /v1/echo/{id}"} 1`,
		`counterfoil_http_requests_total{outcome="not_found",route="none"} 1`,
		`counterfoil_http_requests_total{outcome="method_not_allowed",route="none"} 1`,
		`counterfoil_http_request_seconds_count{route="POST /v1/echo/{id}"} 1`,
		"counterfoil_store_latched 0", "counterfoil_draining 0", "counterfoil_http_requests_in_progress 0", "go_goroutines",
	} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(a.body, marker) || strings.Contains(a.body, someID) {
		t.Error("the metrics show what a client sent")
	}
}
