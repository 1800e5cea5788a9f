package server

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"path/filepath"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/store"
)

// adminRoutes are for operators.
func (s *Server) adminRoutes() []Route {
	keys := []api.Code{api.NotFound, api.StoreUnavailable, api.CommitUnknown, api.StoreFull}
	return []Route{
		handle(Route{
			Method: http.MethodPost, Path: "/v1/tokens", Doc: "Creates a credential. Its token is shown in this answer and never again.",
			Statuses: []int{http.StatusCreated}, Codes: with(begins, api.RequestIDReused),
		}, s.createToken),
		handle(Route{Method: http.MethodGet, Path: "/v1/tokens", Doc: "Lists the credentials of the scope by name."}, s.listTokens),
		handle(Route{
			Method: http.MethodDelete, Path: "/v1/tokens/{name}", Doc: "Revokes a credential: every server refuses its token within 5 s.",
			Codes: with(writes, api.NotFound),
		}, s.revokeToken),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/scopes", Doc: "Creates a scope and its signing key. One that exists stays as it is.",
			Statuses: []int{http.StatusCreated, http.StatusOK}, Codes: with(begins),
		}, s.createScope),
		handle(Route{Method: http.MethodGet, Path: "/v1/scopes", Doc: "Lists the scopes that the token can act in."}, s.listScopes),
		handle(Route{Method: http.MethodGet, Path: "/v1/keys", Doc: "Lists the public keys whose permits the scope accepts."}, s.listKeys),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/keys/rotate", Doc: "Makes a new signing key, which signs once every server knows it.",
			Statuses: []int{http.StatusCreated}, Codes: keys,
		}, s.rotateKey),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/keys/trust", Doc: "Accepts permits that another issuer signed.",
			Codes: keys,
		}, s.trustKey),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/keys/retire", Doc: "Refuses permits that the key signed from now on.",
			Codes: keys,
		}, s.retireKey),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/backup", Doc: "Copies the embedded store into a new directory on the server, while it runs.",
			Statuses: []int{http.StatusCreated},
		}, s.backup),
		handle(Route{Method: http.MethodGet, Path: "/.well-known/jwks.json", Doc: "The public keys that sign the permits of a scope, as a JWK set. An unknown scope has none."}, s.keySet),
	}
}

func (s *Server) createToken(ctx context.Context, who *access.Principal, req *api.CreateTokenRequest) (int, *api.CreateTokenAnswer, error) {
	grant := access.Grant{
		Name: string(req.Name), Scope: string(req.Scope), Owner: string(req.Owner),
		Roles: as[access.Role](req.Roles), Budgets: as[string](req.Budgets), Require: access.Requirement(req.Require),
	}
	for _, e := range req.Always {
		grant.Always = append(grant.Always, access.Entry{Budget: string(e.Budget), Amount: e.Amount})
	}
	created, token, err := s.access.Create(ctx, *who, grant)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, &api.CreateTokenAnswer{Credential: *credential(&created), Secret: token.Reveal()}, nil
}

func credential(c *access.Credential) *api.Credential {
	out := &api.Credential{
		Name: api.Name(c.Name), Scope: api.Name(c.Scope), Owner: api.Name(c.Owner), Roles: as[api.Name](c.Roles),
		Budgets: as[api.BudgetPrefix](c.Budgets), Require: string(c.Require), Damaged: c.Damaged,
	}
	for _, e := range c.Always {
		out.Always = append(out.Always, api.Entry{Budget: api.BudgetName(e.Budget), Amount: e.Amount})
	}
	if !c.Created.IsZero() {
		out.CreatedAt = timeOf(c.Created)
	}
	return out
}

func (s *Server) listTokens(ctx context.Context, who *access.Principal, req *api.PageRequest) (int, *api.List[api.Credential], error) {
	found, next, err := s.access.List(ctx, *who, req.Cursor, req.Limit)
	if err != nil {
		return 0, nil, err
	}
	out := &api.List[api.Credential]{Items: make([]api.Credential, 0, len(found)), NextCursor: next}
	for i := range found {
		out.Items = append(out.Items, *credential(&found[i]))
	}
	return http.StatusOK, out, nil
}

func (s *Server) revokeToken(ctx context.Context, who *access.Principal, req *api.RevokeTokenRequest) (int, *api.RevokeTokenAnswer, error) {
	if err := s.access.Revoke(ctx, *who, string(req.Name)); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.RevokeTokenAnswer{Revoked: true}, nil
}

func (s *Server) createScope(ctx context.Context, who *access.Principal, req *api.CreateScopeRequest) (int, *api.Scope, error) {
	created, err := s.access.CreateScope(ctx, *who, string(req.Name))
	if errors.Is(err, store.ErrScopeExists) {
		there, err := s.scopes.Scope(ctx, string(req.Name))
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, scope(&access.Scope{Name: string(req.Name), Scope: there}), nil
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, scope(&created), nil
}

func scope(s *access.Scope) *api.Scope {
	return &api.Scope{Name: api.Name(s.Name), Generation: s.Generation, Epoch: api.Epoch(s.Epoch), Quarantine: s.Quarantine}
}

func (s *Server) listScopes(ctx context.Context, who *access.Principal, req *api.PageRequest) (int, *api.List[api.Scope], error) {
	found, next, err := s.access.Scopes(ctx, *who, req.Cursor, req.Limit)
	if err != nil {
		return 0, nil, err
	}
	out := &api.List[api.Scope]{Items: make([]api.Scope, 0, len(found)), NextCursor: next}
	for i := range found {
		out.Items = append(out.Items, *scope(&found[i]))
	}
	return http.StatusOK, out, nil
}

func (s *Server) listKeys(_ context.Context, who *access.Principal, _ *api.None) (int, *api.List[api.SigningKey], error) {
	found := s.keys.List(who.Scope)
	out := &api.List[api.SigningKey]{Items: make([]api.SigningKey, 0, len(found))}
	for i := range found {
		out.Items = append(out.Items, signingKey(&found[i]))
	}
	return http.StatusOK, out, nil
}

func signingKey(k *keyring.PublicKey) api.SigningKey {
	state := api.KeyTrusted
	switch {
	case k.Signs:
		state = api.KeySigning
	case k.Own:
		state = api.KeyAccepted
	}
	out := api.SigningKey{Public: api.DigestOf([32]byte(k.Key)), KID: k.Thumbprint, State: state, AddedAt: timeOf(k.Added)}
	if !k.SignsFrom.IsZero() {
		out.SignsFrom = timeOf(k.SignsFrom)
	}
	return out
}

func (s *Server) rotateKey(ctx context.Context, who *access.Principal, _ *api.None) (int, *api.KeyAnswer, error) {
	// A key for a scope that does not exist would be one that nobody can see.
	if _, err := s.scopes.Scope(ctx, who.Scope); err != nil {
		return 0, nil, err
	}
	added, err := s.keys.RotateSigning(ctx, who.Scope)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, &api.KeyAnswer{Key: signingKey(&added)}, nil
}

func (s *Server) trustKey(ctx context.Context, who *access.Principal, req *api.KeyRequest) (int, *api.KeyAnswer, error) {
	if _, err := s.scopes.Scope(ctx, who.Scope); err != nil {
		return 0, nil, err
	}
	public := bytes32(req.Public)
	added, err := s.keys.Trust(ctx, who.Scope, ed25519.PublicKey(public[:]))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.KeyAnswer{Key: signingKey(&added)}, nil
}

func (s *Server) retireKey(ctx context.Context, who *access.Principal, req *api.KeyRequest) (int, *api.RetireAnswer, error) {
	public := bytes32(req.Public)
	if err := s.keys.Retire(ctx, who.Scope, ed25519.PublicKey(public[:])); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.RetireAnswer{Retired: true}, nil
}

func (s *Server) backup(ctx context.Context, who *access.Principal, req *api.BackupRequest) (int, *api.BackupAnswer, error) {
	if !who.EveryScope {
		return 0, nil, api.NewProblem(api.Forbidden, "only admin of scope * copies the whole store")
	}
	copies, ok := s.engine.(engine.Checkpointer)
	if !ok {
		return 0, nil, api.NewProblem(api.Invalid, "this engine is backed up by its own means, not through the server")
	}
	if !filepath.IsAbs(req.Directory) || filepath.Clean(req.Directory) != req.Directory {
		p := api.NewProblem(api.Invalid, "want an absolute path without . and .. and double slashes")
		p.Pointer = "/directory"
		return 0, nil, p
	}
	if err := copies.Checkpoint(ctx, req.Directory); err != nil {
		s.log.Error("the backup failed", "error", err)
		return 0, nil, api.NewProblem(api.StoreUnavailable, "the copy was not made; the server's log says why")
	}
	return http.StatusCreated, &api.BackupAnswer{Directory: req.Directory}, nil
}

func (s *Server) keySet(_ context.Context, _ *access.Principal, req *api.KeysRequest) (int, *api.KeySet, error) {
	found := s.keys.JWKS(string(req.Scope))
	out := &api.KeySet{Keys: make([]api.JWK, 0, len(found.Keys))}
	for _, k := range found.Keys {
		out.Keys = append(out.Keys, api.JWK{KTY: k.Kty, CRV: k.Crv, X: k.X, KID: k.Kid, Alg: k.Alg, Use: k.Use})
	}
	return http.StatusOK, out, nil
}

// as converts a list of words from one kind to another. nil stays nil.
func as[To, From ~string](words []From) []To {
	if words == nil {
		return nil
	}
	out := make([]To, len(words))
	for i, w := range words {
		out[i] = To(w)
	}
	return out
}
