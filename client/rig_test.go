package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/server"
)

// rig is a real server behind a wire that loses what it is told to lose, and a client on it.
type rig struct {
	*storetest.Fixture
	t      *testing.T
	core   *counterfoil.Counterfoil
	admin  string // token
	url    string
	caller *client.Caller

	mu    sync.Mutex
	plan  []loss // for the next requests, in their order; none: nothing is lost
	every loss   // for all that the plan does not name
	seen  int    // requests that reached the wire
}

// loss says what becomes of one exchange. The zero loss is none.
type loss struct {
	request bool         // the server never gets it
	reply   bool         // the client never gets it
	instead http.Handler // answers in the server's place
	before  func()       // called before the server gets it
}

var (
	lostRequest = loss{request: true}
	lostReply   = loss{reply: true}
)

func newRig(t *testing.T, o client.Options) *rig {
	t.Helper()
	r := &rig{Fixture: storetest.Memory(t), t: t}
	keys, err := keyring.NewMemory(keyring.Options{Clock: r.Clock, Entropy: r.Entropy}, storetest.Scope)
	r.must(err)
	r.core, err = counterfoil.New(r.Store, keys, counterfoil.Options{})
	r.must(err)
	a, err := access.New(r.Store, keys, r.Clock)
	r.must(err)
	h, err := server.New(server.Options{Access: a, Store: r.Store, Keys: keys, Core: r.core, Clock: r.Clock, Entropy: r.Entropy})
	r.must(err)
	operator, err := access.Operator(storetest.Scope, "ann")
	r.must(err)
	_, token, err := a.Create(t.Context(), operator, access.AdminGrant())
	r.must(err)
	r.admin = token.Reveal()
	behind := httptest.NewServer(h)
	t.Cleanup(behind.Close)
	wire := httptest.NewServer(r.wire(behind.URL))
	t.Cleanup(wire.Close)
	r.url = wire.URL
	o.URL, o.Token = r.url, r.admin
	c, err := client.New(o)
	r.must(err)
	t.Cleanup(c.Close)
	r.caller = c.As("", "ann")
	return r
}

// wire passes requests on to the server, as far as the plan lets it.
func (r *rig) wire(to string) http.Handler {
	target, err := url.Parse(to)
	r.must(err)
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(p *httputil.ProxyRequest) { p.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		l := r.next()
		if l.before != nil {
			l.before()
		}
		switch {
		case l.request:
			panic(http.ErrAbortHandler)
		case l.instead != nil:
			l.instead.ServeHTTP(w, req)
		case l.reply:
			proxy.ServeHTTP(httptest.NewRecorder(), req)
			panic(http.ErrAbortHandler)
		default:
			proxy.ServeHTTP(w, req)
		}
	})
}

func (r *rig) next() loss {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	if len(r.plan) == 0 {
		return r.every
	}
	l := r.plan[0]
	r.plan = r.plan[1:]
	return l
}

// lose sets what becomes of the next requests, and forgets those before.
func (r *rig) lose(plan ...loss) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan, r.seen = plan, 0
}

func (r *rig) sends() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// want fails unless an error is of all kinds.
func (r *rig) want(what string, got error, kinds ...error) {
	r.t.Helper()
	for _, kind := range kinds {
		if !errors.Is(got, kind) {
			r.t.Fatalf("%s: %v; want %v", what, got, kind)
		}
	}
}

// wantNot fails if an error is of a kind.
func (r *rig) wantNot(what string, got, kind error) {
	r.t.Helper()
	if errors.Is(got, kind) {
		r.t.Fatalf("%s: %v is %v", what, got, kind)
	}
}

func call(request string) permit.Expected {
	return permit.Expected{
		Subject: "agent", Capability: "search", Server: "web", Tool: "find", RequestID: request,
		ParameterHash: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
	}
}

func begin(key string) counterfoil.BeginParams {
	return counterfoil.BeginParams{Key: key, Fingerprint: counterfoil.Fingerprint{1}}
}

// quick is a client that gives up soon.
var quick = client.Options{RetryFor: 500 * time.Millisecond}
