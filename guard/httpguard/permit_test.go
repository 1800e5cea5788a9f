package httpguard_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/permit"
)

func TestPermitOfARouteIsBoundToTheRequest(t *testing.T) {
	each(t, httpguard.Options{Default: httpguard.Policy{Capability: "pay", Server: "api.example"}}, paid, func(r *rig) {
		owner, err := httpguard.Header("X-Api-Key")(request("k1", ""))
		if err != nil {
			r.t.Fatal(err)
		}
		hash, err := httpguard.ParameterHash([]byte("a"), "currency=eur")
		if err != nil {
			r.t.Fatal(err)
		}
		granted, err := r.core.As(storetest.Scope, owner).Authorize(r.t.Context(), counterfoil.AuthorizeParams{TTL: time.Minute, Call: permit.Expected{
			Subject: owner, Capability: "pay", Server: "api.example", Tool: "POST /v1/payments", RequestID: "k1", ParameterHash: hash,
		}})
		if err != nil {
			r.t.Fatal(err)
		}
		header := base64.RawURLEncoding.EncodeToString(granted.Permit)
		r.problem(r.post("k1", "a"), 400, "permit_malformed", 0)
		r.problem(r.post("k1", "a", "Counterfoil-Permit", "not base64!"), 400, "permit_malformed", 0)
		r.problem(r.post("k1", "b", "Counterfoil-Permit", header), 403, "permit_binding_mismatch", 0)
		r.problem(r.post("k2", "a", "Counterfoil-Permit", header), 403, "permit_binding_mismatch", 0)
		r.want(r.post("k1", "a", "Counterfoil-Permit", header), 201, "execute", 1)
		r.want(r.post("k1", "a", "Counterfoil-Permit", header), 201, "replay", 1)
	})
}
