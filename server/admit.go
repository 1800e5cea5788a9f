package server

import (
	"context"
	"net/http"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
)

// admit says who sends r, and refuses whoever has none of the route's roles.
func (s *Server) admit(ctx context.Context, r *http.Request, route *Route) (*access.Principal, error) {
	holder, err := s.holder(ctx, r)
	if err != nil {
		return nil, err
	}
	who, err := holder.As(r.Header["Counterfoil-Owner"], r.Header["Counterfoil-Scope"])
	if err != nil {
		return nil, err
	}
	if !who.Allows(route.Roles...) {
		return nil, api.NewProblem(api.Forbidden, "the token lacks the role "+route.roleNames())
	}
	return &who, nil
}
