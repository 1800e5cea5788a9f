package mcpguard_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/mcpguard"
)

func TestCallHappensOnceAndIsReplayed(t *testing.T) {
	onEach(t, mcpguard.Options{}, func(r *rig, s *mcp.ClientSession) {
		r.wants(call(r.t, s, tool("pay", "k1", payment{"a", 1})), "paid a", "", false, 1)
		again := call(r.t, s, tool("pay", "k1", payment{"a", 1}))
		r.wants(again, "paid a", "", true, 1)
		r.wants(again, "was made before", "", true, 1)
		r.wants(call(r.t, s, tool("pay", "k1", payment{"b", 1})), "new key", "key_reused", false, 1)
		r.wants(call(r.t, s, tool("look", "k1", payment{"a", 1})), "new key", "key_reused", false, 1)
		r.wants(call(r.t, s, tool("pay", "k2", payment{"b", 1})), "paid b", "", false, 2)
	})
}

func TestCallWithoutKeyIsRefused(t *testing.T) {
	onEach(t, mcpguard.Options{}, func(r *rig, s *mcp.ClientSession) {
		r.wants(call(r.t, s, tool("pay", "", payment{"a", 1})), "the call has no key", "invalid", false, 0)
	})
}

func TestReadOnlyToolPasses(t *testing.T) {
	onEach(t, mcpguard.Options{Tools: map[string]mcpguard.Policy{"look": {ReadOnly: true}}}, func(r *rig, s *mcp.ClientSession) {
		r.wants(call(r.t, s, tool("look", "", payment{"a", 1})), "seen a", "", false, 1)
		r.wants(call(r.t, s, tool("look", "", payment{"a", 1})), "seen a", "", false, 2)
	})
}

func TestDerivedKeyIsOfRunToolAndArguments(t *testing.T) {
	onEach(t, mcpguard.Options{Default: mcpguard.Policy{Keys: mcpguard.Derived}}, func(r *rig, s *mcp.ClientSession) {
		of := func(run, name string, p payment) *mcp.CallToolParams {
			return &mcp.CallToolParams{Name: name, Arguments: p, Meta: mcp.Meta{mcpguard.MetaRun: run}}
		}
		r.wants(call(r.t, s, of("r1", "pay", payment{"a", 1})), "paid a", "", false, 1)
		r.wants(call(r.t, s, of("r1", "pay", payment{"a", 1})), "paid a", "", true, 1)
		r.wants(call(r.t, s, of("r1", "pay", payment{"a", 2})), "paid a", "", false, 2)
		r.wants(call(r.t, s, of("r2", "pay", payment{"a", 1})), "paid a", "", false, 3)
		r.wants(call(r.t, s, of("r1", "look", payment{"a", 1})), "seen a", "", false, 4)
		r.wants(call(r.t, s, tool("pay", "", payment{"a", 1})), "neither a key nor a run", "invalid", false, 4)
	})
}

func TestKeyCanBeAnArgument(t *testing.T) {
	onEach(t, mcpguard.Options{Default: mcpguard.Policy{KeyArgument: "order"}}, func(r *rig, s *mcp.ClientSession) {
		r.wants(call(r.t, s, tool("pay", "", payment{"a", 1})), "paid a", "", false, 1)
		r.wants(call(r.t, s, tool("pay", "", payment{"a", 1})), "paid a", "", true, 1)
		r.wants(call(r.t, s, tool("pay", "", payment{"a", 2})), "new key", "key_reused", false, 1)
		r.wants(call(r.t, s, tool("pay", "other", payment{"b", 2})), "two different keys", "invalid", false, 1)
	})
}

func TestResultThatSaysErrorIsRecorded(t *testing.T) {
	onEach(t, mcpguard.Options{}, func(r *rig, s *mcp.ClientSession) {
		r.wants(call(r.t, s, tool("fail", "k", payment{"a", 1})), "no money", "", false, 1)
		again := call(r.t, s, tool("fail", "k", payment{"a", 1}))
		if r.wants(again, "no money", "", true, 1); !again.isError {
			r.t.Error("the replay is no error")
		}
	})
}

func TestResultThatSaysErrorLeavesTheOutcomeOpenIfConfigured(t *testing.T) {
	onEach(t, mcpguard.Options{Default: mcpguard.Policy{Record: mcpguard.SuccessOnly}}, func(r *rig, s *mcp.ClientSession) {
		r.wants(call(r.t, s, tool("fail", "k", payment{"a", 1})), "no money", "", false, 1)
		r.wants(call(r.t, s, tool("fail", "k", payment{"a", 1})), "at work", "in_flight", false, 1)
		r.lapse()
		got := call(r.t, s, tool("fail", "k", payment{"a", 1}))
		if r.wants(got, "Do not try it again", "outcome_unknown", false, 1); got.refusal.Operation == "" || got.refusal.Retryable {
			r.t.Errorf("got %+v, want the operation to resolve, not retryable", got.refusal)
		}
	})
}

func TestErrorOfTheServerLeavesTheOutcomeOpen(t *testing.T) {
	onEach(t, mcpguard.Options{}, func(r *rig, s *mcp.ClientSession) {
		if _, err := s.CallTool(r.t.Context(), tool("nothing", "k", payment{"a", 1})); err == nil || !strings.Contains(err.Error(), "unknown tool") {
			r.t.Errorf("got %v, want the server's own error", err)
		}
		r.lapse()
		r.wants(call(r.t, s, tool("nothing", "k", payment{"a", 1})), "", "outcome_unknown", false, 0)
	})
}

func TestErrorThatProvesThatTheToolHasNotRunFreesTheKey(t *testing.T) {
	onEach(t, mcpguard.Options{Default: mcpguard.Policy{NotPerformed: []int{-32602}}}, func(r *rig, s *mcp.ClientSession) {
		for range 2 {
			if _, err := s.CallTool(r.t.Context(), tool("nothing", "k", payment{"a", 1})); err == nil || !strings.Contains(err.Error(), "unknown tool") {
				r.t.Errorf("got %v, want the server's own error", err)
			}
		}
		r.wants(call(r.t, s, tool("pay", "k", payment{"a", 1})), "paid a", "", false, 1)
	})
}

func TestDuplicatesAtTheSameTimeHaveOneEffect(t *testing.T) {
	onEach(t, mcpguard.Options{Default: mcpguard.Policy{Wait: mcpguard.MaxWait}}, func(r *rig, s *mcp.ClientSession) {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				result, err := s.CallTool(r.t.Context(), tool("slow", "k", payment{"a", 1}))
				if err != nil {
					r.t.Error(err)
				} else if got := read(r.t, result, nil); !strings.Contains(got.text, "paid slowly a") {
					r.t.Errorf("got %+v", got)
				}
			})
		}
		<-r.begun
		close(r.free)
		wg.Wait()
		if n := r.calls.Load(); n != 1 {
			r.t.Errorf("the server was called %d times", n)
		}
	})
}

func TestDuplicateIsRefusedWhileTheFirstIsAtWork(t *testing.T) {
	onEach(t, mcpguard.Options{}, func(r *rig, s *mcp.ClientSession) {
		first := make(chan result, 1)
		go func() {
			got, err := s.CallTool(r.t.Context(), tool("slow", "k", payment{"a", 1}))
			if err != nil {
				r.t.Error(err)
				close(first)
				return
			}
			first <- read(r.t, got, nil)
		}()
		<-r.begun
		got := call(r.t, s, tool("slow", "k", payment{"a", 1}))
		if r.wants(got, "Try again in", "in_flight", false, 1); !got.refusal.Retryable || got.refusal.RetryAfter < 1 {
			r.t.Errorf("got %+v, want it retryable after a while", got.refusal)
		}
		close(r.free)
		r.wants(<-first, "paid slowly a", "", false, 1)
	})
}

func TestBudgetIsChargedOnceForEachCall(t *testing.T) {
	o := mcpguard.Options{Run: "r1", Default: mcpguard.Policy{Spend: []counterfoil.Entry{
		{Budget: "agents/{agent}/{session}", Amount: 1}, {Budget: "tools/{tool}", Amount: 5},
	}}}
	onEach(t, o, func(r *rig, s *mcp.ClientSession) {
		r.wants(call(r.t, s, tool("pay", "k1", payment{"a", 1})), "not defined", "budget_unknown", false, 0)
		r.define("agents/ann/r1", 100)
		r.define("tools/pay", 9)
		r.wants(call(r.t, s, tool("pay", "k1", payment{"a", 1})), "paid a", "", false, 1)
		r.wants(call(r.t, s, tool("pay", "k1", payment{"a", 1})), "paid a", "", true, 1)
		got := call(r.t, s, tool("pay", "k2", payment{"b", 1}))
		r.wants(got, "Budget tools/pay: limit 9 calls, used 5, this call needs 5; it never begins anew", "budget_exceeded", false, 1)
		if b := got.refusal.Budgets; len(b) != 1 || b[0].Limit != 9 || b[0].Used != 5 || got.refusal.Retryable {
			r.t.Errorf("got %+v", got.refusal)
		}
		got = call(r.t, s, tool("look", "k3", payment{"b", 1}))
		r.wants(got, "not defined", "budget_unknown", false, 1)
	})
}

func TestBudgetOfAnIdentityThatIsMissingRefuses(t *testing.T) {
	o := mcpguard.Options{Default: mcpguard.Policy{Spend: []counterfoil.Entry{{Budget: "runs/{session}", Amount: 1}}}}
	onEach(t, o, func(r *rig, s *mcp.ClientSession) {
		p := tool("pay", "k1", payment{"a", 1})
		p.Meta[mcpguard.MetaRun] = "made up by the client"
		r.wants(call(r.t, s, p), "{session}", "invalid", false, 0)
	})
}

func TestOtherMethodsPass(t *testing.T) {
	onEach(t, mcpguard.Options{}, func(r *rig, s *mcp.ClientSession) {
		tools, err := s.ListTools(r.t.Context(), nil)
		if err != nil || len(tools.Tools) != 4 {
			r.t.Errorf("got %v, %v", tools, err)
		}
		if prompts, err := s.ListPrompts(r.t.Context(), nil); err != nil || len(prompts.Prompts) != 0 {
			r.t.Errorf("got %v, %v", prompts, err)
		}
	})
}

func TestOptionsThatGuardNothingAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	good := mcpguard.Options{As: func(owner string) counterfoil.Caller { return r.core.As("default", owner) }, Server: "s", Owner: "ann"}
	if _, err := mcpguard.New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*mcpguard.Options){
		"no caller":            func(o *mcpguard.Options) { o.As = nil },
		"no server":            func(o *mcpguard.Options) { o.Server = "" },
		"no owner":             func(o *mcpguard.Options) { o.Owner = "" },
		"anonymous":            func(o *mcpguard.Options) { o.Owner = "anonymous" },
		"read-only by default": func(o *mcpguard.Options) { o.Default.ReadOnly = true },
		"unknown keys":         func(o *mcpguard.Options) { o.Default.Keys = "optional" },
		"unknown record":       func(o *mcpguard.Options) { o.Default.Record = "some" },
		"lease too short":      func(o *mcpguard.Options) { o.Default.Lease = 1 },
		"no name of a budget":  func(o *mcpguard.Options) { o.Default.Spend = []counterfoil.Entry{{Budget: "a//b", Amount: 1}} },
		"unknown placeholder":  func(o *mcpguard.Options) { o.Default.Spend = []counterfoil.Entry{{Budget: "a/{user}", Amount: 1}} },
		"read-only tool that spends": func(o *mcpguard.Options) {
			o.Tools = map[string]mcpguard.Policy{"x": {ReadOnly: true, Spend: []counterfoil.Entry{{Budget: "a", Amount: 1}}}}
		},
		"status that is no refusal":    func(o *mcpguard.Options) { o.Default.NotPerformedStatuses = []int{200} },
		"origin with a path":           func(o *mcpguard.Options) { o.Origins = []string{"https://example.com/"} },
		"approval that waits too long": func(o *mcpguard.Options) { o.Default.ApprovalTTL = 25 * time.Hour },
		"approval of half a second":    func(o *mcpguard.Options) { o.Default.ApprovalTTL = time.Hour + time.Second/2 },
	} {
		o := good
		change(&o)
		if _, err := mcpguard.New(o); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}
