package httpguard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/operation"
)

func TestSameRequestIsPerformedOnceAndReplayed(t *testing.T) {
	each(t, httpguard.Options{}, paid, func(r *rig) {
		first := r.want(r.post("k1", `{"a":1}`), 201, "execute", 1)
		if first.Header.Get("Set-Cookie") == "" {
			r.t.Error("the first answer lost a header of the handler")
		}
		again := r.want(r.post(`"k1"`, `{"a":1}`), 201, "replay", 1)
		if a, b := first.body, again.body; a != b || a != `paid {"a":1}` {
			r.t.Errorf("the replay is %q, the first answer %q", b, a)
		}
		h := again.Header
		if h.Get(httpguard.HeaderReplayed) != "true" || h.Get("Location") != "/v1/payments/1" || h.Get("Content-Type") != "application/json" {
			r.t.Errorf("headers of the replay: %v", h)
		}
		if h.Get("Set-Cookie") != "" || first.Header.Get(httpguard.HeaderReplayed) != "" {
			r.t.Error("a cookie is replayed, or the first answer is marked as a replay")
		}
		if !strings.Contains(h.Get("Access-Control-Expose-Headers"), httpguard.HeaderReplayed) {
			r.t.Error("the mark of a replay is hidden from scripts of other origins")
		}
	})
}

func TestKeyReusedForAnotherRequestRevealsNothing(t *testing.T) {
	each(t, httpguard.Options{}, paid, func(r *rig) {
		r.want(r.post("k1", "secret body"), 201, "execute", 1)
		for name, other := range map[string]*http.Request{
			"body":  request("k1", "other"),
			"type":  request("k1", "secret body", "Content-Type", "text/plain"),
			"query": func() *http.Request { q := request("k1", "secret body"); q.URL.RawQuery = "currency=usd"; return q }(),
			"path":  func() *http.Request { q := request("k1", "secret body"); q.URL.Path = "/v1/other"; return q }(),
		} {
			answer := r.send(other)
			if text := answer.Header.Get("Location"); text != "" {
				r.t.Errorf("%s: reveals %q", name, text)
			}
			r.problem(answer, 422, "key_reused", 1)
		}
		r.want(r.post("k1", "secret body", "Content-Type", "application/json; charset=utf-8"), 201, "replay", 1)
	})
}

func TestKeysOfTwoOwnersAreTwoOperations(t *testing.T) {
	each(t, httpguard.Options{}, paid, func(r *rig) {
		r.want(r.post("k1", "a"), 201, "execute", 1)
		r.want(r.post("k1", "b", "X-Api-Key", "bob's secret"), 201, "execute", 2)
	})
}

func TestUnidentifiedRequestIsRefused(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{}, paid)
	none := request("k1", "a")
	none.Header.Del("X-Api-Key")
	r.problem(r.send(none), 401, "unauthenticated", 0)
	twice := request("k1", "a")
	twice.Header.Add("X-Api-Key", "another")
	r.problem(r.send(twice), 401, "unauthenticated", 0)
	for _, owner := range []string{"", "anonymous", " ", "a\nb", strings.Repeat("x", 300)} {
		r.guarded = r.guard(httpguard.Options{Identify: func(*http.Request) (string, error) { return owner, nil }}).Handler(r.handler)
		r.problem(r.post("k1", "a"), 401, "unauthenticated", 0)
	}
}

func TestBadKeyIsRefused(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{}, paid)
	r.problem(r.post("", "a"), 400, "malformed", 0)
	for _, key := range []string{"a b", "a,b", `a"`, "a;b", `"a`, `"a"b`, `"a";p=1`, `"a\b"`, `""`, "é", "\"é\"", strings.Repeat("x", 256), `"a", "b"`} {
		r.problem(r.post(key, "a"), 400, "malformed", 0)
	}
	listed := request("k1", "a")
	listed.Header["Idempotency-Key"] = []string{"k1", "k1"}
	r.problem(r.send(listed), 400, "malformed", 0)
	empty := request("k1", "a")
	empty.Header["Idempotency-Key"] = []string{""}
	r.problem(r.send(empty), 400, "malformed", 0)
	r.want(r.post(`"a \"b\" \\,;"`, "a"), 201, "execute", 1)
}

func TestSafeMethodIsNotGuarded(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{}, paid)
	for n := range 2 {
		req := httptest.NewRequest(http.MethodGet, "/v1/payments", nil)
		req.Header.Set("Idempotency-Key", "not, a key")
		r.want(r.send(req), 201, "", int64(n+1))
	}
}

func TestMethodOverrideAndPathWithTwoReadingsAreRefused(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{Routes: []httpguard.Route{{Pattern: "POST /v1/payments"}}}, paid)
	r.problem(r.post("k1", "a", "X-HTTP-Method-Override", "DELETE"), 400, "malformed", 0)
	for _, path := range []string{"//v1/payments", "/v1/./payments", "/v1%2Fpayments", "/v1/x/../payments", "/v1/%2e%2e/v1/payments"} {
		req := httptest.NewRequest(http.MethodPost, path, strings.NewReader("a"))
		req.Header = request("k1", "a").Header
		r.problem(r.send(req), 400, "malformed", 0)
	}
}

func TestLargeRequestIsRefused(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{MaxBody: 10}, paid)
	r.problem(r.post("k1", "12345678901"), 413, "too_large", 0)
	unsized := request("k1", "12345678901")
	unsized.ContentLength = -1
	r.problem(r.send(unsized), 413, "too_large", 0)
	r.want(r.post("k1", "1234567890"), 201, "execute", 1)
}

func TestPresetsSayWhatBecomesAReceipt(t *testing.T) {
	t.Parallel()
	recorded := map[httpguard.Preset][]int{
		httpguard.Strict:      {200, 204, 302, 400, 401, 404, 429},
		httpguard.Stripe:      {200, 204, 302, 400, 401, 404, 429, 500, 503},
		httpguard.SuccessOnly: {200, 204},
	}
	for preset, want := range recorded {
		for _, status := range []int{200, 204, 302, 400, 401, 404, 429, 500, 503} {
			r := inMemory(t, httpguard.Options{Default: httpguard.Policy{Record: preset}}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			first := r.post("k1", "a")
			if !slices.Contains(want, status) {
				r.want(first, status, "outcome_unknown", 1)
				r.lapse()
				r.problem(r.post("k1", "a"), 409, "outcome_unknown", 1)
				continue
			}
			r.want(first, status, "execute", 1)
			r.want(r.post("k1", "a"), status, "replay", 1)
		}
	}
}

func TestRouteOverridesThePreset(t *testing.T) {
	t.Parallel()
	status := 500
	r := inMemory(t, httpguard.Options{Routes: []httpguard.Route{
		{Pattern: "POST /v1/payments", Policy: httpguard.Policy{Also: []int{500}, Never: []int{404}}},
	}}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	r.want(r.post("k1", "a"), 500, "execute", 1)
	status = 404
	r.want(r.post("k2", "a"), 404, "outcome_unknown", 2)
}

func TestHandlerReleasesByItsWordAlone(t *testing.T) {
	each(t, httpguard.Options{}, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Refuse") != "" {
			httpguard.NotPerformed(req.Context())
			http.Error(w, "no", http.StatusForbidden)
		}
	}, func(r *rig) {
		r.want(r.post("k1", "a", "Refuse", "1"), 403, "not_performed", 1)
		r.want(r.post("k1", "b"), 200, "execute", 2)
	})
}

func TestPanicLeavesTheOutcomeUnknown(t *testing.T) {
	each(t, httpguard.Options{}, func(http.ResponseWriter, *http.Request) { panic("broken") }, func(r *rig) {
		func() {
			defer func() {
				if recover() == nil {
					r.t.Error("the panic was swallowed")
				}
			}()
			r.post("k1", "a")
		}()
		answer := r.post("k1", "a")
		if answer.Header.Get("Retry-After") == "" {
			r.t.Error("no Retry-After")
		}
		r.problem(answer, 409, "in_flight", 1)
		r.Clock.Advance(2 * time.Second) // not the 30 s of the lease: nobody holds it
		answer = r.post("k1", "a")
		if answer.Header.Get("Retry-After") != "" {
			r.t.Error("outcome_unknown has a Retry-After")
		}
		r.problem(answer, 409, "outcome_unknown", 1)
	})
}

func TestStreamsAreRefusedUnlessTheFinalAnswerIsRecorded(t *testing.T) {
	t.Parallel()
	stream := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = fmt.Fprint(w, "data: x\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
	r := inMemory(t, httpguard.Options{}, stream)
	r.problem(r.post("k1", "a", "Accept", "text/event-stream"), 400, "invalid", 0)
	r.problem(r.post("k1", "a", "Upgrade", "websocket"), 400, "invalid", 0)
	r.problem(r.post("k1", "a"), 409, "outcome_unknown", 1)

	r = inMemory(t, httpguard.Options{Default: httpguard.Policy{RecordFinal: true}}, stream)
	for n, outcome := range []string{"execute", "replay"} {
		answer := r.want(r.post("k1", "a", "Accept", "text/event-stream"), 200, outcome, 1)
		if got := answer.body; got != strings.Repeat("data: x\n\n", 3) {
			t.Errorf("answer %d is %q", n, got)
		}
	}
}

func TestBodiesReplayExactly(t *testing.T) {
	binary := make([]byte, 5<<20)
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	bodies := map[string][]byte{
		"none": nil, "empty": {}, "zero": {0}, "gzip": {0x1f, 0x8b, 8, 0, 0xff}, "json": []byte(`{"n": 1.00}`), "no UTF-8": {0xff, 0xfe}, "5 MB": binary,
	}
	each(t, httpguard.Options{}, func(w http.ResponseWriter, req *http.Request) {
		name := strings.Trim(req.Header.Get("Idempotency-Key"), `"`)
		if name == "none" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bodies[name])
	}, func(r *rig) {
		calls := int64(0)
		for name, body := range bodies {
			calls++
			key := `"` + name + `"`
			status, encoding := 200, "gzip"
			if name == "none" {
				status, encoding = 204, ""
			}
			first := r.want(r.post(key, "a"), status, "execute", calls)
			again := r.want(r.post(key, "a"), status, "replay", calls)
			if again.body != string(body) || again.Header.Get("Content-Encoding") != encoding {
				r.t.Errorf("%s: the replay has other bytes, or another encoding", name)
			}
			for _, header := range []string{"Content-Length", "Content-Type"} {
				if a, b := first.Header[header], again.Header[header]; !slices.Equal(a, b) {
					r.t.Errorf("%s: the replay has %s %q, the first answer %q", name, header, b, a)
				}
			}
		}
	})
}

func TestClientThatLeavesStopsNothing(t *testing.T) {
	each(t, httpguard.Options{}, nil, func(r *rig) {
		ctx, leave := context.WithCancel(context.Background())
		r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.calls.Add(1)
			leave()
			if err := req.Context().Err(); err != nil {
				r.t.Errorf("the handler's context ended: %v", err)
			}
			w.WriteHeader(http.StatusCreated)
		})
		r.guarded = r.guard(httpguard.Options{}).Handler(r.handler)
		r.send(request("k1", "a").WithContext(ctx))
		r.want(r.post("k1", "a"), 201, "replay", 1)
	})
}

func TestManyAtOnceHaveOneWinner(t *testing.T) {
	each(t, httpguard.Options{Default: httpguard.Policy{Wait: time.Minute}}, paid, func(r *rig) {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if answer := r.post("k1", "a"); answer.StatusCode != http.StatusCreated {
					r.t.Errorf("answer %d: %s", answer.StatusCode, answer.body)
				}
			})
		}
		wg.Wait()
		if n := r.calls.Load(); n != 1 {
			r.t.Errorf("the handler was called %d times", n)
		}
	})
}

// failing is a caller whose steps fail.
type failing struct {
	counterfoil.Caller
	begin, complete error
}

func (f failing) Begin(ctx context.Context, p counterfoil.BeginParams) (counterfoil.Begun, error) {
	if f.begin != nil {
		return counterfoil.Begun{}, f.begin
	}
	return f.Caller.Begin(ctx, p)
}

func (f failing) Complete(ctx context.Context, p counterfoil.CompleteParams) (counterfoil.Completed, error) {
	if f.complete != nil {
		return counterfoil.Completed{}, f.complete
	}
	return f.Caller.Complete(ctx, p)
}

func TestStoreThatFailsNeverCallsTheHandler(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{counterfoil.ErrUnavailable, 503, "store_unavailable"},
		{counterfoil.ErrUnknown, 503, "commit_unknown"},
		{counterfoil.ErrLatched, 503, "latched"},
		{counterfoil.ErrClock, 503, "clock_refused"},
		{counterfoil.ErrCorrupt, 500, "record_corrupt"},
		{counterfoil.ErrFull, 503, "store_full"},
		{counterfoil.ErrOwnerFull, 429, "owner_quota"},
		{counterfoil.ErrRecovering, 503, "recovering"},
		{operation.ErrKeyExpired, 410, "key_expired"},
		{&operation.NotRetainedError{}, 410, "receipt_not_retained"},
		{errors.New("what nobody foresaw"), 500, "internal"},
	} {
		r := inMemory(t, httpguard.Options{}, paid)
		r.guarded = r.guard(httpguard.Options{As: func(string) counterfoil.Caller { return failing{begin: fmt.Errorf("wrapped: %w", c.err)} }}).Handler(r.handler)
		r.problem(r.post("k1", "a"), c.status, c.code, 0)
	}
}

func TestReceiptThatIsNotRecordedIsNeverRunAgain(t *testing.T) {
	each(t, httpguard.Options{}, paid, func(r *rig) {
		own := r.guarded
		r.guarded = r.guard(httpguard.Options{As: func(owner string) counterfoil.Caller {
			return failing{Caller: r.core.As("default", owner), complete: counterfoil.ErrUnavailable}
		}}).Handler(r.handler)
		r.want(r.post("k1", "a"), 201, "not_recorded", 1)
		r.guarded = own
		r.lapse()
		r.problem(r.post("k1", "a"), 409, "outcome_unknown", 1)
	})
}

func TestKeyIsOptionalOrDerivedWhereTheRouteSaysSo(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{Default: httpguard.Policy{Keys: httpguard.Optional}}, paid)
	r.want(r.post("", "a"), 201, "", 1)
	r.want(r.post("", "a"), 201, "", 2)
	r.problem(r.post("a b", "a"), 400, "malformed", 2)
	r = inMemory(t, httpguard.Options{Default: httpguard.Policy{Keys: httpguard.Derived}}, paid)
	r.want(r.post("", "a"), 201, "execute", 1)
	r.want(r.post("", "a"), 201, "replay", 1)
	r.want(r.post("", "b"), 201, "execute", 2)
}

func TestFingerprintOfFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		print          httpguard.Fingerprint
		a, same, else_ string
	}{
		"canonical": {httpguard.Fingerprint{JSON: true}, `{"a":1,"b":2}`, `{ "b": 2.0, "a": 1 }`, `{"a":1,"b":3}`},
		"only":      {httpguard.Fingerprint{Only: []string{"/a", "/l/0"}}, `{"a":1,"b":2,"l":[1,2]}`, `{"a":1,"b":3,"l":[1]}`, `{"a":1,"l":[2]}`},
		"absent":    {httpguard.Fingerprint{Only: []string{"/a"}}, `{}`, `{"b":1}`, `{"a":null}`},
		"except":    {httpguard.Fingerprint{Except: []string{"/t~1x/at"}}, `{"a":1,"t/x":{"at":1}}`, `{"a":1,"t/x":{"at":2}}`, `{"a":1,"t/x":{"at":1,"b":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := inMemory(t, httpguard.Options{Default: httpguard.Policy{Fingerprint: &c.print}}, paid)
			r.want(r.post("k1", c.a), 201, "execute", 1)
			r.want(r.post("k1", c.same), 201, "replay", 1)
			r.problem(r.post("k1", c.else_), 422, "key_reused", 1)
			r.problem(r.post("k2", `{"a":1,"a":2}`), 400, "malformed", 1)
		})
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	as := func(string) counterfoil.Caller { return nil }
	route := func(pattern string, p httpguard.Policy) httpguard.Options {
		return httpguard.Options{Routes: []httpguard.Route{{Pattern: pattern, Policy: p}}}
	}
	for name, o := range map[string]httpguard.Options{
		"safe method":       route("/a", httpguard.Policy{Methods: []string{"GET"}}),
		"pattern":           route("a b c", httpguard.Policy{}),
		"optional budget":   route("/a", httpguard.Policy{Keys: httpguard.Optional, Spend: []counterfoil.Entry{{Budget: "a", Amount: 1}}}),
		"capability alone":  route("/a", httpguard.Policy{Capability: "pay"}),
		"pointer":           route("/a", httpguard.Policy{Fingerprint: &httpguard.Fingerprint{Only: []string{"a"}}}),
		"lease":             {Default: httpguard.Policy{Lease: time.Millisecond}},
		"preset":            {Default: httpguard.Policy{Record: "all"}},
		"replayed cookie":   {ReplayHeaders: []string{"set-cookie"}},
		"header of the key": {KeyHeader: "a b"},
	} {
		o.As, o.Identify = as, httpguard.Bearer()
		if _, err := httpguard.New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestBudgetOfARouteIsSpentOnce(t *testing.T) {
	each(t, httpguard.Options{Default: httpguard.Policy{Spend: []counterfoil.Entry{{Budget: "acme", Amount: 1}}}}, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Refuse") != "" {
			httpguard.NotPerformed(req.Context())
		}
	}, func(r *rig) {
		r.problem(r.post("k0", "a"), 404, "budget_unknown", 0)
		r.define("acme", 2)
		r.want(r.post("k1", "a"), 200, "execute", 1)
		r.want(r.post("k1", "a"), 200, "replay", 1)
		r.want(r.post("k2", "a", "Refuse", "1"), 200, "not_performed", 2) // given back
		r.want(r.post("k3", "a"), 200, "execute", 3)
		r.problem(r.post("k4", "a"), 402, "budget_exceeded", 3)
		r.want(r.post("k1", "a"), 200, "replay", 3)
	})
}

func TestRefusalOfABudgetShowsItsFiguresIfTheOptionsSaySo(t *testing.T) {
	t.Parallel()
	for _, show := range []bool{false, true} {
		for _, window := range []budget.Window{{Kind: budget.Lifetime}, {Kind: budget.Day, Zone: "UTC"}} {
			o := httpguard.Options{ShowFigures: show, Default: httpguard.Policy{Spend: []counterfoil.Entry{{Budget: "acme", Amount: 3}}}}
			r := inMemory(t, o, paid)
			if _, err := r.core.Budgets.Define(t.Context(), budget.DefineParams{
				Scope: storetest.Scope, Definition: budget.Definition{Name: "acme", Unit: "calls", Limit: 5, Window: window},
			}); err != nil {
				t.Fatal(err)
			}
			r.want(r.post("k1", "a"), 201, "execute", 1)
			answer := r.post("k2", "a")
			status := 429
			if window.Kind == budget.Lifetime {
				status = 402
			}
			r.problem(answer, status, "budget_exceeded", 1)
			if waits := answer.Header.Get("Retry-After") != ""; waits != (status == 429) {
				t.Errorf("%d has Retry-After %q", status, answer.Header.Get("Retry-After"))
			}
			if shown := strings.Contains(answer.body, `"limit":5,"spent":3,"held":0,"remaining":2,"amount":3`); shown != show {
				t.Errorf("figures shown: %v, want %v: %s", shown, show, answer.body)
			}
			limit, policy := answer.Header.Get("RateLimit"), answer.Header.Get("RateLimit-Policy")
			if want := show && status == 429; strings.HasPrefix(limit, `"acme";r=2;t=`) != want || (policy == `"acme";q=5;w=86400`) != want || !want && limit+policy != "" {
				t.Errorf("%d, shown %v: RateLimit %q, RateLimit-Policy %q", status, show, limit, policy)
			}
		}
	}
}

func TestRequestThatNoRouteMatchesIsRefusedIfTheOptionsSaySo(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{RefuseUnmatched: true, Routes: []httpguard.Route{{Pattern: "POST /v1/payments"}, {Pattern: "/v1/refunds/{id}"}}}, paid)
	at := func(method, path string) *http.Request {
		req := httptest.NewRequest(method, path, strings.NewReader("a"))
		req.Header = request("k1", "a").Header
		return req
	}
	r.problem(r.send(at("POST", "/v1/other")), 404, "not_found", 0)
	answer := r.send(at("PATCH", "/v1/payments"))
	r.problem(answer, 405, "method_not_allowed", 0)
	if got := answer.Header.Get("Allow"); got != "POST" {
		t.Errorf("Allow is %q", got)
	}
	r.problem(r.send(at("POST", "/v1/x/../other")), 400, "malformed", 0)
	r.want(r.send(at("GET", "/v1/other")), 201, "", 1) // nothing is guarded there
	r.want(r.send(at("POST", "/v1/payments")), 201, "execute", 2)
	r.problem(r.send(at("PATCH", "/v1/refunds/1")), 422, "key_reused", 2)

	if _, err := httpguard.New(httpguard.Options{RefuseUnmatched: true, Identify: httpguard.Bearer(), As: func(string) counterfoil.Caller { return nil }}); err == nil {
		t.Error("everything is refused")
	}
}

func TestFirstOfSeveralFaultsIsAnswered(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{MaxBody: 3, Default: httpguard.Policy{Fingerprint: &httpguard.Fingerprint{JSON: true}, Spend: []counterfoil.Entry{{Budget: "none", Amount: 1}}}}, paid)
	faults := func(key, body, secret string) *http.Request {
		req := request(key, body)
		req.Header.Set("X-Api-Key", secret)
		return req
	}
	r.problem(r.send(faults("not, a key", "4444", "")), 413, "too_large", 0)
	r.problem(r.send(faults("not, a key", "{", "")), 401, "unauthenticated", 0)
	r.problem(r.send(faults("not, a key", "{", "ann")), 400, "malformed", 0)
	r.problem(r.send(faults("k1", "{", "ann")), 400, "malformed", 0)
	r.problem(r.send(faults("k1", "{}", "ann")), 404, "budget_unknown", 0)
}

func TestSecretsAreNoPartOfWhatMakesARequestTheSame(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{}, paid)
	r.want(r.post("k1", "a", "Authorization", "Bearer one", "Cookie", "session=1", "X-Trace", "1"), 201, "execute", 1)
	r.want(r.post("k1", "a", "Authorization", "Bearer two", "Cookie", "session=2", "X-Trace", "2"), 201, "replay", 1)
}

func TestKeyComesFromTheHeaderThatTheOptionsName(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{KeyHeader: "x-request-key"}, paid)
	r.problem(r.post("k1", "a"), 400, "malformed", 0)
	r.want(r.post("k1", "a", "X-Request-Key", "k2"), 201, "execute", 1)
	r.want(r.post("k3", "a", "X-Request-Key", "k2"), 201, "replay", 1)
}

func TestKeyIsRefusedAfterItsReceiptHasExpired(t *testing.T) {
	each(t, httpguard.Options{}, paid, func(r *rig) {
		r.want(r.post("k1", "a"), 201, "execute", 1)
		r.Clock.Advance(25 * time.Hour)
		r.problem(r.post("k1", "a"), 410, "key_expired", 1)
	})
}

func TestInFlightRequestSaysWhenToAskAgain(t *testing.T) {
	each(t, httpguard.Options{}, nil, func(r *rig) {
		r.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			r.calls.Add(1)
			again := r.post("k1", "a")
			r.problem(again, 409, "in_flight", 1)
			if again.Header.Get("Retry-After") == "" {
				r.t.Error("no Retry-After")
			}
			w.WriteHeader(http.StatusCreated)
		})
		r.guarded = r.guard(httpguard.Options{}).Handler(r.handler)
		r.want(r.post("k1", "a"), 201, "execute", 1)
	})
}
