package server

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
)

// The groups of routes, in the order in which documents show them.
const (
	groupPermits    = "Permits"
	groupOperations = "Operations"
	groupChallenges = "Challenges"
	groupBudgets    = "Budgets"
	groupAdmin      = "Administration"
	groupServer     = "The server itself"
)

var headings = []string{groupPermits, groupOperations, groupChallenges, groupBudgets, groupAdmin, groupServer}

var groups = map[string]string{
	"permits": groupPermits, "revocations": groupPermits, "operations": groupOperations, "challenges": groupChallenges, "epoch": groupChallenges,
	"budgets": groupBudgets, "spends": groupBudgets, "holds": groupBudgets,
	"tokens": groupAdmin, "scopes": groupAdmin, "keys": groupAdmin, "backup": groupAdmin,
}

// Codes that routes share.
var (
	// writes may come too late.
	writes = []api.Code{api.Stale}
	// begins make new records.
	begins = []api.Code{api.Stale, api.Recovering, api.StoreFull, api.OwnerQuota, api.CommitUnknown}
)

// with returns a list of codes and some more.
func with(codes []api.Code, more ...api.Code) []api.Code {
	return slices.Concat(codes, more)
}

// Routes returns the table of routes. The caller may keep and change it.
func (s *Server) Routes() []Route { return slices.Clone(s.routes) }

// addRoutes builds the table and what derives from it.
func (s *Server) addRoutes() error {
	s.routes = slices.Concat(s.permitRoutes(), s.operationRoutes(), s.challengeRoutes(), s.budgetRoutes(), s.holdRoutes(), s.approvalRoutes(), s.adminRoutes(), s.serverRoutes())
	if err := addRoles(s.routes); err != nil {
		return err
	}
	setGroups(s.routes)
	// Made when first asked for: a server that serves its own process alone is asked for neither.
	s.openapi, s.docs = sync.OnceValues(s.document), sync.OnceValues(s.docsPage)
	s.mux = s.multiplexer()
	return nil
}

// addRoles puts into each route what package access asks of it. A route that access does not know is a fault of this
// program: nobody may use it.
func addRoles(routes []Route) error {
	for i := range routes {
		r := &routes[i]
		at := slices.IndexFunc(access.Routes, func(a access.Route) bool { return a.Method == r.Method && a.Path == r.Path })
		if at < 0 {
			return fmt.Errorf("server: nobody may use %s: it is not in the table of access", r.Pattern())
		}
		r.Roles, r.Also, r.Note = access.Routes[at].Roles, access.Routes[at].Also, access.Routes[at].Note
	}
	return nil
}

// setGroups sorts routes under headings by the second part of their paths.
func setGroups(routes []Route) {
	for i := range routes {
		first, rest, _ := strings.Cut(strings.TrimPrefix(routes[i].Path, "/"), "/")
		part, _, _ := strings.Cut(rest, "/")
		routes[i].Group = groupServer
		if first == "v1" {
			routes[i].Group = groups[part]
		}
	}
	slices.SortStableFunc(routes, func(a, b Route) int {
		return cmp.Compare(slices.Index(headings, a.Group), slices.Index(headings, b.Group))
	})
}

// serverRoutes are about the server itself. They need no token.
func (s *Server) serverRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: "/healthz", Doc: "Says that the process answers.", Media: mediaJSON,
			Answer: reflect.TypeFor[api.Health](), page: s.healthz, always: true,
		},
		{
			Method: http.MethodGet, Path: "/readyz", Doc: "Says whether the server grants anything: the store is open, not latched, and its clock sane.",
			Media: mediaJSON, Answer: reflect.TypeFor[api.Readiness](), page: s.readyz, always: true,
			Codes: []api.Code{api.StoreUnavailable, api.Latched, api.ClockRefused, api.CommitUnknown, api.KeyUnknown, api.Draining},
		},
		{Method: http.MethodGet, Path: "/metrics", Doc: "Metrics in the text format of Prometheus.", Media: "text/plain", page: s.metrics.page, always: true},
		{Method: http.MethodGet, Path: "/docs", Doc: "This interface, readable.", Media: mediaHTML, page: s.docsHandler},
		{Method: http.MethodGet, Path: "/openapi.json", Doc: "This interface as OpenAPI 3.1.", Media: mediaJSON, page: s.openapiHandler},
		{Method: http.MethodGet, Path: "/problems/{code}", Doc: "What a code means and what to do about it.", Media: mediaHTML, page: s.problemHandler, Codes: []api.Code{api.NotFound}},
	}
}

// multiplexer finds the route for a request, and refuses what has none.
func (s *Server) multiplexer() *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string]bool{}
	for i := range s.routes {
		route := &s.routes[i]
		methods[route.Method] = true
		mux.HandleFunc(route.Pattern(), func(w http.ResponseWriter, _ *http.Request) {
			x := w.(*exchange)
			x.route = route
			s.serve(x)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w.(*exchange), noRoute(mux, methods, r))
	})
	return mux
}

// noRoute is the problem of a request without a route: of the path, or of the method alone.
func noRoute(mux *http.ServeMux, methods map[string]bool, r *http.Request) error {
	var allowed []string
	for method := range methods {
		other := *r
		other.Method = method
		if _, pattern := mux.Handler(&other); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return api.NewProblem(api.NotFound, "no such path")
	}
	slices.Sort(allowed)
	p := api.NewProblem(api.MethodNotAllowed, "the header Allow lists the methods of this path")
	p.Allow = allowed
	return p
}
