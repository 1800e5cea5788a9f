package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
)

// rig is a server on a real store, listening on loopback.
type rig struct {
	*storetest.Fixture
	server *Server
	access *access.Access
	keys   *keyring.Keyring
	core   *counterfoil.Counterfoil
	url    string
	addr   string
	admin  string // token of scope *
	logged *logged
	stop   context.CancelFunc
	done   chan error // what Serve returned
}

// logged is what the server logged, all levels.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts a server. change, if not nil, may change it before it starts.
func serve(t *testing.T, limits Limits, change func(*Server)) *rig {
	t.Helper()
	r := prepared(t, limits)
	if change != nil {
		change(r.server)
	}
	r.listen(t)
	return r
}

// prepared makes a server that does not listen yet.
func prepared(t testing.TB, limits Limits) *rig {
	t.Helper()
	r := &rig{Fixture: storetest.Memory(t), logged: &logged{}, done: make(chan error, 1)}
	keys, err := keyring.NewMemory(keyring.Options{Clock: r.Clock, Entropy: r.Entropy}, storetest.Scope)
	must(t, err)
	r.keys = keys
	r.core, err = counterfoil.New(r.Store, keys, counterfoil.Options{})
	must(t, err)
	r.access, err = access.New(r.Store, keys, r.Clock)
	must(t, err)
	operator, err := access.Operator("default", "default")
	must(t, err)
	_, token, err := r.access.Create(context.Background(), operator, access.AdminGrant())
	must(t, err)
	r.admin = token.Reveal()
	r.server, err = New(r.options(limits))
	must(t, err)
	return r
}

func (r *rig) options(limits Limits) Options {
	return Options{
		Access: r.access, Store: r.Store, Keys: r.keys, Core: r.core, Clock: r.Clock, Entropy: r.Entropy, Limits: limits, Version: "test",
		Log: slog.New(slog.NewJSONHandler(r.logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

func (r *rig) listen(t *testing.T) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	r.addr = l.Addr().String()
	r.url = "http://" + r.addr
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.done <- r.server.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-r.done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the server does not stop")
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   string
	last   bool // the server closes the connection
}

func (a reply) problem(t *testing.T) api.Problem {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("%d %q is no problem: %v", a.status, a.body, err)
	}
	return p
}

// send sends a request with the admin's token. headers are name, value, name, value, …; an empty value takes one away.
func (r *rig) send(t *testing.T, method, path, body string, headers ...string) reply {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, in)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+r.admin)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Del(headers[i])
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	a := do(t, req)
	r.documented(t, req, a)
	return a
}

var plain = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}, CheckRedirect: func(*http.Request, []*http.Request) error {
	return http.ErrUseLastResponse
}}

func do(t *testing.T, req *http.Request) reply {
	t.Helper()
	res, err := plain.Do(req)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	return reply{res.StatusCode, res.Header, string(text), res.Close}
}

// wantProblem asserts that an answer is the whole problem of a code.
func wantProblem(t *testing.T, a reply, status int, code api.Code) api.Problem {
	t.Helper()
	row, ok := code.Info()
	if !ok {
		t.Fatalf("no code %s", code)
	}
	p := a.problem(t)
	if a.status != status || p.Status != status || p.Code != code {
		t.Fatalf("%d %s; want %d %s", a.status, a.body, status, code)
	}
	if p.Type != "/problems/"+string(code) || p.Title != row.Title || !strings.HasPrefix(p.Instance, "urn:uuid:") || len(p.Instance) != 45 {
		t.Errorf("incomplete problem: %s", a.body)
	}
	if a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("Counterfoil-Outcome") != string(code) || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers of a problem: %v", a.header)
	}
	if row.Retry == api.RetryAlways != p.Retryable && row.Retry != api.RetryDepends {
		t.Errorf("%s: retryable %v", code, p.Retryable)
	}
	return p
}

// raw sends bytes as they are and returns the answer.
func (r *rig) raw(t *testing.T, text string) reply {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(c, text)
	must(t, err)
	return readReply(t, c)
}
