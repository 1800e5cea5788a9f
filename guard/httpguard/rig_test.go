package httpguard_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
)

// rig is a guard on a fresh store, and a handler that counts its calls.
type rig struct {
	*storetest.Fixture
	core    *counterfoil.Counterfoil
	t       *testing.T
	calls   atomic.Int64
	handler http.Handler // what the guard stands before
	guarded http.Handler
}

// each runs test on every engine.
func each(t *testing.T, o httpguard.Options, handler http.HandlerFunc, test func(r *rig)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) { test(newRig(t, f, o, handler)) })
}

// inMemory runs test where the engine does not matter.
func inMemory(t *testing.T, o httpguard.Options, handler http.HandlerFunc) *rig {
	t.Helper()
	return newRig(t, storetest.Memory(t), o, handler)
}

func newRig(t *testing.T, f *storetest.Fixture, o httpguard.Options, handler http.HandlerFunc) *rig {
	t.Helper()
	keys, err := keyring.NewMemory(keyring.Options{Clock: f.Clock, Entropy: f.Entropy}, storetest.Scope)
	if err != nil {
		t.Fatal(err)
	}
	core, err := counterfoil.New(f.Store, keys, counterfoil.Options{Operations: operation.Options{MaxReceipt: operation.MaxReceiptLimit}})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Fixture: f, core: core, t: t}
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.calls.Add(1)
		handler(w, req)
	})
	r.guarded = r.guard(o).Handler(r.handler)
	return r
}

// guard makes a guard on the store of the rig; what o leaves open is the library and X-Api-Key.
func (r *rig) guard(o httpguard.Options) *httpguard.Guard {
	r.t.Helper()
	if o.As == nil {
		o.As = func(owner string) counterfoil.Caller { return r.core.As(storetest.Scope, owner) }
	}
	if o.Identify == nil {
		o.Identify = httpguard.Header("X-Api-Key")
	}
	g, err := httpguard.New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

// request makes a POST of ann with a key.
func request(key, body string, headers ...string) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "/v1/payments?currency=eur", strings.NewReader(body))
	req.Header.Set("X-Api-Key", "ann's secret")
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	return req
}

// reply is an answer, read to its end.
type reply struct {
	StatusCode int
	Header     http.Header
	body       string
}

func (r *rig) send(req *http.Request) *reply {
	w := httptest.NewRecorder()
	r.guarded.ServeHTTP(w, req)
	return &reply{w.Code, w.Header(), w.Body.String()}
}

func (r *rig) post(key, body string, headers ...string) *reply {
	return r.send(request(key, body, headers...))
}

// want looks at status, outcome and the handler's calls so far.
func (r *rig) want(answer *reply, status int, outcome string, calls int64) *reply {
	r.t.Helper()
	if got := answer.Header.Get(httpguard.HeaderOutcome); answer.StatusCode != status || got != outcome {
		r.t.Errorf("answer is %d %q, want %d %q: %s", answer.StatusCode, got, status, outcome, answer.body)
	}
	if got := r.calls.Load(); got != calls {
		r.t.Errorf("the handler was called %d times, want %d", got, calls)
	}
	return answer
}

// problem looks at a refusal.
func (r *rig) problem(answer *reply, status int, code string, calls int64) {
	r.t.Helper()
	r.want(answer, status, code, calls)
	var p struct {
		Status int
		Code   string
	}
	if err := json.Unmarshal([]byte(answer.body), &p); err != nil || p.Status != status || p.Code != code || answer.Header.Get("Content-Type") != "application/problem+json" {
		r.t.Errorf("want a problem %d %s, got %s", status, code, answer.body)
	}
}

func (r *rig) define(name string, limit uint64) {
	r.t.Helper()
	if _, err := r.core.Budgets.Define(context.Background(), budget.DefineParams{
		Scope: storetest.Scope, Definition: budget.Definition{Name: name, Unit: "calls", Limit: limit, Window: budget.Window{Kind: budget.Lifetime}},
	}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) lapse() { r.Clock.Advance(2 * time.Minute) }

func paid(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/v1/payments/1")
	w.Header().Set("Set-Cookie", "session=1")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(append([]byte("paid "), body...))
}
