package server

import (
	"context"
	"net/http"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
)

// holdRoutes are about amounts that are reserved before it is known what they will be.
func (s *Server) holdRoutes() []Route {
	settles := with(writes, api.HoldSettled, api.HoldExpired, api.HoldFenced, api.Recovering)
	return []Route{
		handle(Route{
			Method: http.MethodPost, Path: "/v1/holds", Doc: "Reserves amounts in all budgets that are named, ancestors too, or in none.",
			Statuses: []int{http.StatusCreated, http.StatusOK}, Codes: with(begins, api.BudgetUnknown, api.BudgetExceeded, api.RequestIDReused, api.HoldSettled),
		}, s.hold),
		handle(Route{Method: http.MethodGet, Path: "/v1/holds/{id}", Doc: "Shows how a hold stands."}, s.readHold),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/holds/{id}/capture", Doc: "Charges a hold and returns the rest.", Codes: with(settles, api.NotHolder),
		}, s.capture),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/holds/{id}/void", Doc: "Returns all that an open hold holds.", Codes: settles,
		}, s.void),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/holds/{id}/extend", Doc: "Prolongs an open hold, from now on.", Codes: settles,
		}, s.extend),
	}
}

func (s *Server) hold(ctx context.Context, who *access.Principal, req *api.HoldRequest) (int, *api.HoldAnswer, error) {
	entries, err := entriesOf(who, req.Entries)
	if err != nil {
		return 0, nil, err
	}
	held, err := s.core.Budgets.Hold(ctx, budget.HoldParams{
		Scope: who.Scope, Owner: who.Owner, RequestID: string(req.RequestID), Entries: entries, TTL: req.TTL.Duration(),
	})
	if err != nil {
		return 0, nil, inEntries(err, "/entries", req.Entries)
	}
	return created(held.Repeated), &api.HoldAnswer{
		HoldID: api.Digest(held.ID), ExpiresAt: timeOf(held.ExpiresAt), Budgets: figuresOf(who, held.Budgets), Repeated: held.Repeated,
	}, nil
}

func (s *Server) readHold(ctx context.Context, who *access.Principal, req *api.ReadHoldRequest) (int, *api.Hold, error) {
	h, err := s.core.Budgets.GetHold(ctx, budget.GetHoldParams{Scope: who.Scope, Owner: who.Owner, AnyOwner: who.Allows(access.Observe), HoldID: string(req.ID)})
	if err != nil {
		return 0, nil, err
	}
	out := &api.Hold{HoldID: api.Digest(h.ID), State: string(h.State), Entries: entriesView(h.Entries)}
	if !h.ExpiresAt.IsZero() {
		out.ExpiresAt = timeOf(h.ExpiresAt)
	}
	return http.StatusOK, out, nil
}

// entriesView shows entries. nil stays nil.
func entriesView(entries []budget.Entry) []api.Entry {
	if entries == nil {
		return nil
	}
	out := make([]api.Entry, len(entries))
	for i, e := range entries {
		out[i] = api.Entry{Budget: api.BudgetName(e.Budget), Amount: e.Amount}
	}
	return out
}

// capture settles a hold for its owner, or for whoever has the token that using its permit gave.
func (s *Server) capture(ctx context.Context, who *access.Principal, req *api.CaptureRequest) (int, *api.CaptureAnswer, error) {
	if req.Token == "" && !who.Allows(access.Spend) {
		return 0, nil, api.NewProblem(api.Forbidden, "without the token of a consume the role spend is needed")
	}
	entries, err := entriesOf(who, req.Entries)
	if err != nil {
		return 0, nil, err
	}
	if req.Token == "" {
		if err := s.mayUseHold(ctx, who, req.ID); err != nil {
			return 0, nil, err
		}
	}
	done, err := s.core.Budgets.Capture(ctx, budget.CaptureParams{
		Scope: who.Scope, Owner: who.Owner, HoldID: string(req.ID), Capture: &entries, Token: tokenOf(req.Token),
	})
	if err != nil {
		return 0, nil, err
	}
	captured := entriesView(done.Captured)
	if captured == nil {
		captured = []api.Entry{}
	}
	return http.StatusOK, &api.CaptureAnswer{
		Captured: captured, Uncaptured: entriesView(done.Uncaptured), Budgets: figuresOf(who, done.Budgets),
	}, nil
}

func (s *Server) void(ctx context.Context, who *access.Principal, req *api.VoidRequest) (int, *api.VoidAnswer, error) {
	if err := s.mayUseHold(ctx, who, req.ID); err != nil {
		return 0, nil, err
	}
	if _, err := s.core.Budgets.Void(ctx, budget.VoidParams{Scope: who.Scope, Owner: who.Owner, HoldID: string(req.ID)}); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.VoidAnswer{Voided: true}, nil
}

func (s *Server) extend(ctx context.Context, who *access.Principal, req *api.ExtendRequest) (int, *api.ExtendAnswer, error) {
	if err := s.mayUseHold(ctx, who, req.ID); err != nil {
		return 0, nil, err
	}
	done, err := s.core.Budgets.Extend(ctx, budget.ExtendParams{Scope: who.Scope, Owner: who.Owner, HoldID: string(req.ID), TTL: req.TTL.Duration()})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.ExtendAnswer{ExpiresAt: timeOf(done.ExpiresAt)}, nil
}
