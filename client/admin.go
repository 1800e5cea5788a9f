package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/permit"
)

// once sends a POST that must not take effect twice: if its answer is lost the error wraps state.ErrUnknown.
func (c *Caller) once(ctx context.Context, what about, path string, body, answer any) error {
	return c.do(ctx, Request{Method: http.MethodPost, Path: path, Body: body}, what, answer)
}

// Revoke refuses permits that were issued until now; see [permit.Permits.Revoke].
func (c *Caller) Revoke(ctx context.Context, p permit.RevokeParams) (permit.Revoked, error) {
	var a api.RevokeAnswer
	if err := c.post(ctx, aboutPermit, "/v1/revocations", &api.RevokeRequest{Subject: api.Name(p.Subject), Capability: api.Name(p.Capability)}, &a); err != nil {
		return permit.Revoked{}, err
	}
	if a.Floor == (api.Time{}) {
		return permit.Revoked{}, strange(aboutPermit)
	}
	return permit.Revoked{Floor: a.Floor.Time()}, nil
}

// CreateToken makes a credential and its token, which nothing shows again. If the answer is lost the error wraps
// state.ErrUnknown: revoke the name and begin anew.
func (c *Caller) CreateToken(ctx context.Context, g access.Grant) (access.Credential, access.Token, error) {
	req := api.CreateTokenRequest{
		Name: api.Name(g.Name), Scope: api.Name(g.Scope), Owner: api.Name(g.Owner), Roles: words[api.Name](g.Roles),
		Budgets: words[api.BudgetPrefix](g.Budgets), Require: string(g.Require),
	}
	for _, e := range g.Always {
		req.Always = append(req.Always, api.Entry{Budget: api.BudgetName(e.Budget), Amount: e.Amount})
	}
	var a api.CreateTokenAnswer
	if err := c.once(ctx, aboutToken, "/v1/tokens", &req, &a); err != nil {
		return access.Credential{}, access.Token{}, err
	}
	token, err := access.ParseToken(a.Secret)
	if err != nil {
		return access.Credential{}, access.Token{}, strange(aboutToken)
	}
	return credential(&a.Credential), token, nil
}

// Tokens lists the credentials of the scope by name, from cursor on.
func (c *Caller) Tokens(ctx context.Context, cursor string, limit int) ([]access.Credential, string, error) {
	var a api.List[api.Credential]
	if err := c.get(ctx, aboutToken, "/v1/tokens", page(cursor, limit), &a); err != nil {
		return nil, "", err
	}
	out := make([]access.Credential, len(a.Items))
	for i := range a.Items {
		out[i] = credential(&a.Items[i])
	}
	return out, a.NextCursor, nil
}

// RevokeToken ends a credential: every server refuses its token within 5 s.
func (c *Caller) RevokeToken(ctx context.Context, name string) error {
	var a api.RevokeTokenAnswer
	err := c.do(ctx, Request{Method: http.MethodDelete, Path: "/v1/tokens/" + url.PathEscape(name), Again: true}, aboutToken, &a)
	if err == nil && !a.Revoked {
		return strange(aboutToken)
	}
	return err
}

// CreateScope creates a scope and its signing key. One that exists stays as it is.
func (c *Caller) CreateScope(ctx context.Context, name string) (api.Scope, error) {
	var a api.Scope
	err := c.post(ctx, aboutScope, "/v1/scopes", &api.CreateScopeRequest{Name: api.Name(name)}, &a)
	return a, err
}

// Scopes lists the scopes that the token can act in.
func (c *Caller) Scopes(ctx context.Context, cursor string, limit int) ([]api.Scope, string, error) {
	var a api.List[api.Scope]
	err := c.get(ctx, aboutScope, "/v1/scopes", page(cursor, limit), &a)
	return a.Items, a.NextCursor, err
}

// Keys lists the public keys whose permits the scope accepts.
func (c *Caller) Keys(ctx context.Context) ([]api.SigningKey, error) {
	var a api.List[api.SigningKey]
	err := c.get(ctx, aboutScope, "/v1/keys", nil, &a)
	return a.Items, err
}

// RotateKey makes a new signing key, which signs once every server knows it.
func (c *Caller) RotateKey(ctx context.Context) (api.SigningKey, error) {
	var a api.KeyAnswer
	err := c.once(ctx, aboutScope, "/v1/keys/rotate", struct{}{}, &a)
	return a.Key, err
}

// TrustKey accepts permits that another issuer signed.
func (c *Caller) TrustKey(ctx context.Context, public permit.PublicKey) (api.SigningKey, error) {
	var a api.KeyAnswer
	err := c.once(ctx, aboutScope, "/v1/keys/trust", &api.KeyRequest{Public: api.Digest(public.String())}, &a)
	return a.Key, err
}

// RetireKey refuses permits that the key signed from now on.
func (c *Caller) RetireKey(ctx context.Context, public permit.PublicKey) error {
	return c.once(ctx, aboutScope, "/v1/keys/retire", &api.KeyRequest{Public: api.Digest(public.String())}, nil)
}

// Backup copies the embedded store into a new directory on the server, while it runs.
func (c *Caller) Backup(ctx context.Context, directory string) error {
	return c.once(ctx, aboutAnything, "/v1/backup", &api.BackupRequest{Directory: directory}, nil)
}

// Ready tells whether the server grants anything. If it does not, the error says why.
func (c *Caller) Ready(ctx context.Context) (api.Readiness, error) {
	var a api.Readiness
	err := c.get(ctx, aboutAnything, "/readyz", nil, &a)
	return a, err
}

func credential(a *api.Credential) access.Credential {
	out := access.Credential{
		Grant: access.Grant{
			Name: string(a.Name), Scope: string(a.Scope), Owner: string(a.Owner), Roles: words[access.Role](a.Roles),
			Budgets: words[string](a.Budgets), Require: access.Requirement(a.Require),
		},
		Created: a.CreatedAt.Time(), Damaged: a.Damaged,
	}
	for _, e := range a.Always {
		out.Always = append(out.Always, access.Entry{Budget: string(e.Budget), Amount: e.Amount})
	}
	return out
}

// words converts a list of words from one kind to another. nil stays nil.
func words[To, From ~string](list []From) []To {
	if list == nil {
		return nil
	}
	out := make([]To, len(list))
	for i, w := range list {
		out[i] = To(w)
	}
	return out
}
