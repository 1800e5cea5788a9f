package server

import (
	"testing"

	"github.com/counterfoil/counterfoil/access"
)

// The table of access and the table of routes must name the same routes: one more in either is a mistake.
func TestEveryRouteOfTheAccessTableIsServed(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	served := map[string]bool{}
	for _, route := range r.server.Routes() {
		served[route.Pattern()] = true
	}
	for _, a := range access.Routes {
		if !served[a.Method+" "+a.Path] {
			t.Errorf("%s %s is not served", a.Method, a.Path)
		}
		delete(served, a.Method+" "+a.Path)
	}
	for pattern := range served {
		t.Errorf("%s is not in the table of access", pattern)
	}
}
