package server

import (
	"context"
	"net/http"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/permit"
)

// permitRefusals are the codes by which a permit is refused.
var permitRefusals = []api.Code{
	api.PermitMalformed, api.PermitUnsupportedSchema, api.PermitExpired, api.PermitNotYetValid, api.PermitBindingMismatch,
	api.PermitSignatureInvalid, api.PermitReplayed, api.PermitRevoked, api.HoldSettled, api.HoldExpired, api.HoldFenced,
}

// permitRoutes are about whether an exact call is authorised.
func (s *Server) permitRoutes() []Route {
	return []Route{
		handle(Route{
			Method: http.MethodPost, Path: "/v1/permits", Doc: "Mints a permit for one exact call, and holds amounts for it if asked.",
			Statuses: []int{http.StatusCreated, http.StatusOK}, MaxBody: s.limits.Arguments,
			Codes: with(begins, api.PermitRevoked, api.BudgetUnknown, api.BudgetExceeded, api.RequestIDReused, api.HoldSettled),
		}, s.mint),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/permits/consume", Doc: "Uses a permit up for the expected call: exactly one caller ever gets the answer.",
			MaxBody: s.limits.Arguments, Codes: with(begins, permitRefusals...),
		}, s.consume),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/permits/check", Doc: "Says whether a permit could be used now for the expected call, and uses nothing up.",
			MaxBody: s.limits.Arguments, Codes: permitRefusals,
		}, s.check),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/revocations", Doc: "Refuses every permit issued up to now: of a subject, of a capability, of both together, or of the whole scope.",
			Codes: begins,
		}, s.revoke),
	}
}

// caller gives the guarded call on behalf of who.
func (s *Server) caller(who *access.Principal) counterfoil.Caller {
	id := counterfoil.Identity{Scope: who.Scope, Owner: who.Owner, Name: who.Token, AnyOwner: who.Allows(access.Observe)}
	for _, e := range who.Always {
		id.Always = append(id.Always, counterfoil.Entry{Budget: e.Budget, Amount: e.Amount})
	}
	return s.core.Acting(id)
}

func (s *Server) mint(ctx context.Context, who *access.Principal, req *api.MintRequest) (int, *api.MintAnswer, error) {
	hash, err := parameterHash(req.Arguments, req.ParameterHash, "/arguments")
	if err != nil {
		return 0, nil, err
	}
	params := counterfoil.AuthorizeParams{
		Call: permit.Expected{
			Subject: string(req.Subject), Capability: string(req.Capability), Server: string(req.Server), Tool: string(req.Tool),
			RequestID: string(req.RequestID), ParameterHash: string(hash),
		},
		TTL: req.TTL.Duration(),
	}
	var entries []api.Entry
	if req.Hold != nil {
		entries = req.Hold.Entries
		if !who.Allows(access.Spend) {
			return 0, nil, api.NewProblem(api.Forbidden, "a mint with a hold also needs the role spend")
		}
		if params.Hold, err = entriesOf(who, entries); err != nil {
			return 0, nil, err
		}
	}
	done, err := s.caller(who).Authorize(ctx, params)
	if err != nil {
		return 0, nil, inEntries(err, "/hold/entries", entries)
	}
	answer := &api.MintAnswer{
		Permit: done.Permit, ParameterHash: hash, ExpiresAt: timeOf(done.ExpiresAt), HoldID: api.Digest(done.HoldID), Repeated: done.Repeated,
	}
	if req.Hold != nil {
		answer.Budgets = figuresOf(who, done.Budgets)
	}
	return created(done.Repeated), answer, nil
}

// parameterHash is the one given, or that of the arguments. A refusal of the arguments names the place in the body.
func parameterHash(arguments []byte, given api.Digest, pointer string) (api.Digest, error) {
	if given != "" {
		return given, nil
	}
	sum, err := canonical.Hash(arguments)
	if err != nil {
		return "", underPointer(pointer, err)
	}
	return api.DigestOf(sum), nil
}

func expected(e *api.Expected) (permit.Expected, error) {
	hash, err := parameterHash(e.Arguments, e.ParameterHash, "/expected/arguments")
	if err != nil {
		return permit.Expected{}, err
	}
	return permit.Expected{
		Subject: string(e.Subject), Capability: string(e.Capability), Server: string(e.Server), Tool: string(e.Tool),
		RequestID: string(e.RequestID), ParameterHash: string(hash),
	}, nil
}

func (s *Server) consume(ctx context.Context, who *access.Principal, req *api.ConsumeRequest) (int, *api.ConsumeAnswer, error) {
	call, err := expected(&req.Expected)
	if err != nil {
		return 0, nil, err
	}
	done, err := s.caller(who).Consume(ctx, counterfoil.ConsumeParams{Permit: req.Permit, Expected: call, Token: tokenOf(req.Token)})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.ConsumeAnswer{
		Consumed: true, NonceID: done.NonceID, HoldID: api.Digest(done.HoldID), Token: api.TokenFrom(done.Token), Repeated: done.Repeated,
	}, nil
}

func (s *Server) check(ctx context.Context, who *access.Principal, req *api.CheckRequest) (int, *api.CheckAnswer, error) {
	call, err := expected(&req.Expected)
	if err != nil {
		return 0, nil, err
	}
	if _, err := s.caller(who).Check(ctx, counterfoil.CheckParams{Permit: req.Permit, Expected: call}); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.CheckAnswer{Valid: true}, nil
}

func (s *Server) revoke(ctx context.Context, who *access.Principal, req *api.RevokeRequest) (int, *api.RevokeAnswer, error) {
	done, err := s.core.Permits.Revoke(ctx, permit.RevokeParams{Scope: who.Scope, Subject: string(req.Subject), Capability: string(req.Capability)})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.RevokeAnswer{Floor: timeOf(done.Floor)}, nil
}
