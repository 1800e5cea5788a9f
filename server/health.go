package server

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/store"
)

// Health says whether the store grants anything. [store.Store] does.
type Health interface {
	// Ping asks the store whether it answers and its clock can be trusted.
	Ping(ctx context.Context) error
	// Health reports the state of the store without asking the engine.
	Health() store.Health
}

// pingTime is how long a probe waits for the store.
const pingTime = 2 * time.Second

func (s *Server) healthz(x *exchange) error {
	return s.writeJSON(x, http.StatusOK, &api.Health{Status: "ok", Version: s.version})
}

// notReady is the problem of a server that grants nothing, with what a probe wants to know.
type notReady struct { //nolint:errname // a problem on the wire, no error
	api.Problem
	api.Readiness
}

// readyz answers 200 if the store is open, not latched, and its clock sane, and 503 with the reason if not.
func (s *Server) readyz(x *exchange) error {
	err := s.ready(x.r.Context())
	h := s.health.Health()
	answer := api.Readiness{
		Ready: err == nil, Engine: h.Guarantee.Engine, Guarantee: string(h.Guarantee.Level), Generation: h.Generation, Unsafe: h.Guarantee.Unsafe,
	}
	if err == nil {
		return s.writeJSON(x, http.StatusOK, &answer)
	}
	p := x.problemOf(err, s.clock.Now())
	if p.Status != http.StatusServiceUnavailable {
		p = api.NewProblem(api.StoreUnavailable, "the store does not answer as it should")
	}
	s.label(x, p)
	body, err := json.Marshal(notReady{Problem: *p, Readiness: answer})
	if err != nil {
		return err
	}
	x.send(p.Status, api.ProblemType, body)
	return nil
}

// ready returns why nothing would be granted now, nil if nothing stands against it.
func (s *Server) ready(ctx context.Context) error {
	if s.draining.Load() {
		return api.NewProblem(api.Draining, "the server is stopping")
	}
	if _, err := s.keys.Reload(); err != nil {
		return api.NewProblem(api.StoreUnavailable, "the keys cannot be read anew: one that was retired meanwhile would still be accepted")
	}
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	err := s.health.Ping(ctx)
	switch h := s.health.Health(); {
	case h.Latched != nil:
		return h.Latched
	case h.Clock != nil:
		return h.Clock
	}
	return err
}
