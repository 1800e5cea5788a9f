package httpguard_test

import (
	"encoding/json"
	"testing"

	"github.com/counterfoil/counterfoil/guard/httpguard"
)

// TestRefusalHasAMemberErrorForClientsThatLookForIt keeps SDKs that do not look at the status from taking a refusal for
// the object that they asked for.
func TestRefusalHasAMemberErrorForClientsThatLookForIt(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{}, paid)
	r.want(r.post("k1", "a"), 201, "execute", 1)
	var p struct {
		Code, Title, Detail string
		Status              int
		Error               struct{ Type, Code, Message string }
	}
	answer := r.post("k1", "b")
	if err := json.Unmarshal([]byte(answer.body), &p); err != nil {
		t.Fatal(err)
	}
	if p.Status != 422 || p.Code != "key_reused" || p.Error.Code != p.Code || p.Error.Type != "idempotency_error" || p.Error.Message != p.Title+": "+p.Detail {
		t.Errorf("the refusal is %s", answer.body)
	}
}
