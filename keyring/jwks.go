package keyring

import (
	"crypto/sha256"
	"encoding/base64"
)

// JWKS is a JSON Web Key Set (RFC 7517).
type JWKS struct {
	Keys []JWK `json:"keys"`
}

// JWK is a public Ed25519 key as a JSON Web Key (RFC 8037).
type JWK struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Kid string `json:"kid"` // the thumbprint (RFC 7638)
	Use string `json:"use"`
	Alg string `json:"alg"`
}

// JWKS returns the public keys that this keyring generated for a scope and that the scope still accepts, the one that
// signs next or now first: what somebody needs who verifies the scope's permits. Keys of other issuers are theirs to
// publish. A scope without keys has an empty set.
func (k *Keyring) JWKS(scope string) JWKS {
	at := k.current.Load()
	set := JWKS{Keys: []JWK{}}
	s, ready := at.doc.scopes[scope], at.scopes[scope]
	if s == nil {
		return set
	}
	for _, key := range ready.accepted {
		pub := public(key)
		if s.accepted[s.find(pub)].own {
			set.Keys = append(set.Keys, JWK{Kty: "OKP", Crv: "Ed25519", X: base64url(pub[:]), Kid: thumbprint(pub), Use: "sig", Alg: "EdDSA"})
		}
	}
	return set
}

// thumbprint is the SHA-256 of the key's required members in their order (RFC 7638, RFC 8037 appendix A.3).
func thumbprint(pub public) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64url(pub[:]) + `"}`))
	return base64url(sum[:])
}

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
