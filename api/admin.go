package api

import "github.com/counterfoil/counterfoil/internal/canonical"

// Page is a part of a list.
type Page struct {
	Limit  int    `json:"-" query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `json:"-" query:"cursor" maxLength:"2048" doc:"next_cursor of the part before."`
}

// PageRequest reads a part of a list: GET /v1/tokens, GET /v1/scopes.
type PageRequest struct{ Page }

// List is a part of a list, and where the next part starts.
type List[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitzero" doc:"Absent at the end."`
}

// None is the request of a route without any input.
type None struct{}

// The values of a token's require.
const (
	RequirePermit = "permit"
	RequireBudget = "budget"
)

// CreateTokenRequest creates a credential: POST /v1/tokens.
type CreateTokenRequest struct {
	Name    Name           `json:"name"`
	Scope   Name           `json:"scope,omitzero" doc:"The scope that it is for; absent: the caller's. * is for all, and only a token of scope * may give it."`
	Owner   Name           `json:"owner" doc:"The owner that it acts as."`
	Roles   []Name         `json:"roles" minItems:"1" maxItems:"16" doc:"mint, consume, operate, spend, refund, challenge, read, observe, resolve, admin"`
	Budgets []BudgetPrefix `json:"budgets,omitzero" maxItems:"16" doc:"The budgets that it may use; absent: all."`
	Always  []Entry        `json:"always,omitzero" maxItems:"16" doc:"Added to each of its begins and spends."`
	Require string         `json:"require,omitzero" enum:"permit,budget" doc:"What each of its begins must carry."`
}

// Check refuses an empty list of budgets, which would allow none.
func (r *CreateTokenRequest) Check() error {
	if r.Budgets != nil && len(r.Budgets) == 0 {
		return &canonical.Error{Kind: canonical.ErrInvalid, Pointer: "/budgets", Reason: "leave the member out to allow every budget"}
	}
	return nil
}

// Credential is a credential without its token.
type Credential struct {
	Name      Name           `json:"name"`
	Scope     Name           `json:"scope"`
	Owner     Name           `json:"owner"`
	Roles     []Name         `json:"roles"`
	Budgets   []BudgetPrefix `json:"budgets,omitzero"`
	Always    []Entry        `json:"always,omitzero"`
	Require   string         `json:"require,omitzero"`
	CreatedAt Time           `json:"created_at,omitzero"`
	Damaged   bool           `json:"damaged,omitzero" doc:"Its record cannot be read, so that the token is refused with an error."`
}

// CreateTokenAnswer is a credential with its token, which no other answer gives and the store does not keep.
type CreateTokenAnswer struct {
	Credential
	Secret string `json:"token" doc:"cf_ and 43 characters base64url of 32 random bytes. It cannot be shown again."`
}

// RevokeTokenRequest revokes a credential: DELETE /v1/tokens/{name}.
type RevokeTokenRequest struct {
	Name Name `json:"-" path:"name"`
}

// RevokeTokenAnswer says that the token is refused, by this server now and by every other within 5 s.
type RevokeTokenAnswer struct {
	Revoked bool `json:"revoked"`
}

// CreateScopeRequest creates a scope: POST /v1/scopes.
type CreateScopeRequest struct {
	Name Name `json:"name"`
}

// Scope is a unit of isolation.
type Scope struct {
	Name       Name   `json:"name"`
	Generation uint64 `json:"generation" doc:"Rises with each recovery."`
	Epoch      Epoch  `json:"epoch"`
	Quarantine string `json:"quarantine,omitzero" doc:"Why it is in quarantine; absent: it is not."`
}

// The states of a scope's keys.
const (
	KeySigning  = "signing"
	KeyAccepted = "accepted"
	KeyTrusted  = "trusted"
)

// SigningKey is a public key of a scope.
type SigningKey struct {
	Public    Digest `json:"public" doc:"Ed25519, 32 bytes as hex."`
	KID       string `json:"kid" doc:"Its RFC 7638 thumbprint."`
	State     string `json:"state" enum:"signing,accepted,trusted" doc:"signing: signs now; accepted: signed before, or will sign; trusted: another issuer's."`
	AddedAt   Time   `json:"added_at"`
	SignsFrom Time   `json:"signs_from,omitzero" doc:"When a new key starts to sign."`
}

// KeyRequest trusts or retires a public key: POST /v1/keys/trust, POST /v1/keys/retire.
type KeyRequest struct {
	Public Digest `json:"public" doc:"Ed25519, 32 bytes as hex."`
}

// KeyAnswer is the key as it stands.
type KeyAnswer struct {
	Key SigningKey `json:"key"`
}

// RetireAnswer says that permits of the key are refused from now on.
type RetireAnswer struct {
	Retired bool `json:"retired"`
}

// BackupRequest copies the store while it runs: POST /v1/backup.
type BackupRequest struct {
	Directory string `json:"directory" maxLength:"1024" doc:"An absolute path on the server that does not exist yet."`
}

// BackupAnswer says where the copy is.
type BackupAnswer struct {
	Directory string `json:"directory"`
}

// KeysRequest reads the public keys of a scope as a JWK set (RFC 7517): GET /.well-known/jwks.json.
type KeysRequest struct {
	Scope Name `json:"-" query:"scope" default:"default"`
}

// KeySet is a JWK set; an unknown scope has none.
type KeySet struct {
	Keys []JWK `json:"keys"`
}

// JWK is an Ed25519 public key (RFC 8037).
type JWK struct {
	KTY string `json:"kty" enum:"OKP"`
	CRV string `json:"crv" enum:"Ed25519"`
	X   string `json:"x" doc:"The key in base64url."`
	KID string `json:"kid" doc:"Its RFC 7638 thumbprint."`
	Alg string `json:"alg" enum:"EdDSA"`
	Use string `json:"use" enum:"sig"`
}

// Health says that the process answers: GET /healthz.
type Health struct {
	Status  string `json:"status" enum:"ok"`
	Version string `json:"version"`
}

// Readiness says whether the server grants anything: GET /readyz. If it does not, the answer is a problem with the same
// members.
type Readiness struct {
	Ready      bool     `json:"ready"`
	Engine     string   `json:"engine" doc:"memory, pebble, redis, postgres"`
	Guarantee  string   `json:"guarantee" doc:"What survives: process (nothing), node (a crash), replicated (loss of a node)."`
	Generation uint64   `json:"generation" doc:"Rises with each recovery."`
	Unsafe     []string `json:"unsafe_durability,omitzero" doc:"Settings that are weaker than the guarantee needs, and were accepted explicitly."`
}
