package mcpguard_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/guard/mcpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/permit"
)

var askFirst = mcpguard.Options{Tools: map[string]mcpguard.Policy{"pay": {Capability: "payments"}, "nothing": {Capability: "payments"}}}

// decide grants or denies the only request that waits.
func (r *rig) decide(id string, grant bool) {
	r.t.Helper()
	p := approval.DecideParams{Scope: storetest.Scope, ID: id, By: "olga", Note: "because"}
	var err error
	if grant {
		_, err = r.core.Grant(r.t.Context(), counterfoil.GrantParams{DecideParams: p})
	} else {
		_, err = r.core.Approvals.Deny(r.t.Context(), p)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestApprovedCallRunsOnce(t *testing.T) {
	onEach(t, askFirst, func(r *rig, s *mcp.ClientSession) {
		pay := tool("pay", "k1", payment{"a", 1})
		waits := call(r.t, s, pay)
		r.wants(waits, "A person has to approve", "approval_pending", false, 0)
		if again := call(r.t, s, pay); again.refusal.Approval != waits.refusal.Approval || !again.refusal.Retryable {
			r.t.Errorf("asked again: %+v, want the same request", again.refusal)
		}
		asked, err := r.core.Approvals.Get(r.t.Context(), approval.GetParams{Scope: storetest.Scope, ID: waits.refusal.Approval})
		if err != nil || asked.Call.Subject != "ann" || asked.Call.Server != "bank" || asked.Call.Capability != "payments" ||
			!strings.HasPrefix(asked.Call.Tool, "pay@") || len(asked.Call.Tool) != len("pay@")+16 || asked.Call.RequestID != "k1" ||
			string(asked.Arguments) != `{"amount":1,"order":"a"}` {
			r.t.Errorf("the operator is shown %+v, %v", asked, err)
		}
		r.decide(waits.refusal.Approval, true)
		r.wants(call(r.t, s, pay), "paid a", "", false, 1)
		r.wants(call(r.t, s, pay), "paid a", "", true, 1)
		for _, other := range []*mcp.CallToolParams{tool("pay", "k2", payment{"a", 1}), tool("pay", "k3", payment{"a", 2})} {
			r.wants(call(r.t, s, other), "approve", "approval_pending", false, 1)
		}
		r.wants(call(r.t, s, tool("look", "k4", payment{"a", 1})), "seen a", "", false, 2)
	})
}

func TestDeniedCallStaysDenied(t *testing.T) {
	onEach(t, askFirst, func(r *rig, s *mcp.ClientSession) {
		pay := tool("pay", "k1", payment{"a", 1})
		r.decide(call(r.t, s, pay).refusal.Approval, false)
		for range 2 {
			got := call(r.t, s, pay)
			if r.wants(got, "The person said: because", "approval_denied", false, 0); got.refusal.Retryable {
				r.t.Error("want it not retryable")
			}
		}
	})
}

func TestApprovalThatNobodyDecidesIsAskedForAnew(t *testing.T) {
	onEach(t, askFirst, func(r *rig, s *mcp.ClientSession) {
		pay := tool("pay", "k1", payment{"a", 1})
		call(r.t, s, pay)
		r.Clock.Advance(2 * time.Hour)
		id := call(r.t, s, pay).refusal.Approval
		r.decide(id, true)
		r.wants(call(r.t, s, pay), "paid a", "", false, 1)
	})
}

func TestUnknownToolAsksForNoApproval(t *testing.T) {
	onEach(t, askFirst, func(r *rig, s *mcp.ClientSession) {
		r.wants(call(r.t, s, tool("nothing", "k1", payment{"a", 1})), "no such tool", "not_found", false, 0)
		if page, err := r.core.Approvals.List(r.t.Context(), approval.ListParams{Scope: storetest.Scope, Limit: 10}); err != nil || len(page.Requests) != 0 {
			r.t.Errorf("got %+v, %v", page, err)
		}
	})
}

func TestPermitThatComesWithTheCallIsUsedOnce(t *testing.T) {
	onEach(t, askFirst, func(r *rig, s *mcp.ClientSession) {
		hash, err := permit.ParameterHash([]byte(`{"amount":1,"order":"a"}`))
		if err != nil {
			r.t.Fatal(err)
		}
		tools, err := s.ListTools(r.t.Context(), nil)
		if err != nil {
			r.t.Fatal(err)
		}
		at := slices.IndexFunc(tools.Tools, func(t *mcp.Tool) bool { return t.Name == "pay" })
		schema, err := json.Marshal(tools.Tools[at].InputSchema)
		if err != nil {
			r.t.Fatal(err)
		}
		name, err := mcpguard.ToolName("pay", schema)
		if err != nil {
			r.t.Fatal(err)
		}
		minted, err := r.core.As(storetest.Scope, "issuer").Authorize(r.t.Context(), counterfoil.AuthorizeParams{Call: permit.Expected{
			Subject: "ann", Capability: "payments", Server: "bank", Tool: name, RequestID: "k1", ParameterHash: hash,
		}})
		if err != nil {
			r.t.Fatal(err)
		}
		with := func(key string, p payment) *mcp.CallToolParams {
			params := tool("pay", key, p)
			params.Meta[mcpguard.MetaPermit] = json.RawMessage(minted.Permit)
			return params
		}
		r.wants(call(r.t, s, with("k1", payment{"a", 2})), "bound to another parameter_hash", "permit_binding_mismatch", false, 0)
		r.wants(call(r.t, s, with("k2", payment{"a", 1})), "request_id", "permit_binding_mismatch", false, 0)
		r.wants(call(r.t, s, with("k1", payment{"a", 1})), "paid a", "", false, 1)
		r.wants(call(r.t, s, with("k1", payment{"a", 1})), "paid a", "", true, 1)
		look := tool("look", "k5", payment{"a", 1})
		look.Meta[mcpguard.MetaPermit] = "e30"
		r.wants(call(r.t, s, look), "asks for none", "invalid", false, 1)
		bad := tool("pay", "k6", payment{"a", 1})
		bad.Meta[mcpguard.MetaPermit] = "e30x"
		r.wants(call(r.t, s, bad), "", "permit_malformed", false, 1)
	})
}

// TestChangedSchemaNeedsANewApproval has a server whose list of tools has pages, and changes.
func TestChangedSchemaNeedsANewApproval(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, _ := r.raw(askFirst)
	asks := func(id, schema string) string {
		t.Helper()
		client.send(callFrame(id, "k"))
		for _, page := range []string{`{"tools":[{"name":"look","inputSchema":{}}],"nextCursor":"2"}`, `{"tools":[{"name":"pay","inputSchema":` + schema + `}]}`} {
			asked := server.recv()
			if !strings.Contains(asked, `"method":"tools/list"`) {
				t.Fatalf("the server got %s", asked)
			}
			server.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, idIn(asked), page))
		}
		return id
	}
	approved := func(message string) string {
		t.Helper()
		if got := coded(t, message); got != "approval_pending" {
			t.Fatalf("got %s", message)
		}
		_, rest, _ := strings.Cut(message, `"approval_id":"`)
		return rest[:64]
	}
	asks("1", `{"type":"object","required":["a"]}`)
	first := approved(client.recv())
	r.decide(first, true)
	asks("2", `{"type":"object"}`)
	if second := approved(client.recv()); second == first {
		t.Error("the approval of another schema counts")
	}
	asks("3", `{ "required":["a"], "type":"object"}`)
	if got := server.recv(); got != callFrame("3", "k") {
		t.Errorf("the server got %s", got)
	}
	server.send(fmt.Sprintf(paid, "3"))
	if got := client.recv(); coded(t, got) != "" {
		t.Errorf("got %s", got)
	}
	client.send(callFrame("4", "l"))
	asked := server.recv()
	server.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"pay","inputSchema":{}},{"name":"pay","inputSchema":{}}]}}`, idIn(asked)))
	if got := client.recv(); coded(t, got) != "upstream_unreachable" {
		t.Errorf("a tool that is there twice: got %s", got)
	}
}
