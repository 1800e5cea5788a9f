package mcpguard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/guard/mcpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
)

// rig is a store, and a server of tools that counts the calls which reach it.
type rig struct {
	*storetest.Fixture
	t      *testing.T
	core   *counterfoil.Counterfoil
	extra  func(*mcp.Server)  // adds tools; nil: none
	client *mcp.ClientOptions // nil: none
	calls  atomic.Int64
	begun  chan struct{} // gets one for each call of slow
	free   chan struct{} // lets calls of slow end
}

func newRig(t *testing.T) *rig {
	t.Helper()
	f := storetest.Memory(t)
	return &rig{Fixture: f, t: t, core: newCore(t, f), begun: make(chan struct{}, 100), free: make(chan struct{})}
}

func newCore(t testing.TB, f *storetest.Fixture) *counterfoil.Counterfoil {
	t.Helper()
	keys, err := keyring.NewMemory(keyring.Options{Clock: f.Clock, Entropy: f.Entropy}, storetest.Scope)
	if err != nil {
		t.Fatal(err)
	}
	core, err := counterfoil.New(f.Store, keys, counterfoil.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return core
}

// guard makes a guard on the store of the rig. What o leaves open is: the owner ann, the server bank, and a run.
func (r *rig) guard(o mcpguard.Options) *mcpguard.Guard {
	r.t.Helper()
	if o.As == nil {
		o.As = func(owner string) counterfoil.Caller { return r.core.As(storetest.Scope, owner) }
	}
	if o.Server == "" {
		o.Server = "bank"
	}
	if o.Owner == "" && o.Identify == nil {
		o.Owner = "ann"
	}
	g, err := mcpguard.New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

func (r *rig) define(name string, limit uint64) {
	r.t.Helper()
	if _, err := r.core.Budgets.Define(context.Background(), budget.DefineParams{
		Scope: storetest.Scope, Definition: budget.Definition{Name: name, Unit: "calls", Limit: limit, Window: budget.Window{Kind: budget.Lifetime}},
	}); err != nil {
		r.t.Fatal(err)
	}
}

type payment struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
}

// server makes a server of tools with the official SDK.
func (r *rig) server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "bank", Version: "1"}, nil)
	add := func(name string, tool func(context.Context, payment) (*mcp.CallToolResult, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: name}, func(ctx context.Context, _ *mcp.CallToolRequest, p payment) (*mcp.CallToolResult, any, error) {
			r.calls.Add(1)
			result, err := tool(ctx, p)
			return result, nil, err
		})
	}
	add("pay", func(_ context.Context, p payment) (*mcp.CallToolResult, error) { return said("paid " + p.Order), nil })
	add("look", func(_ context.Context, p payment) (*mcp.CallToolResult, error) { return said("seen " + p.Order), nil })
	add("fail", func(context.Context, payment) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no money"}}}, nil
	})
	add("slow", func(ctx context.Context, p payment) (*mcp.CallToolResult, error) {
		r.begun <- struct{}{}
		select {
		case <-r.free:
			return said("paid slowly " + p.Order), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	if r.extra != nil {
		r.extra(s)
	}
	return s
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// pipes connects a guard's two sides.
func pipes(t testing.TB, g *mcpguard.Guard) (client, server *mcp.IOTransport, ended <-chan error) {
	t.Helper()
	clientIn, toClient := io.Pipe()
	fromClient, clientOut := io.Pipe()
	serverIn, toServer := io.Pipe()
	fromServer, serverOut := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- g.Pipe(context.Background(), mcpguard.Streams{FromClient: fromClient, ToClient: toClient, FromServer: fromServer, ToServer: toServer})
		_ = toClient.Close()
	}()
	return &mcp.IOTransport{Reader: clientIn, Writer: clientOut}, &mcp.IOTransport{Reader: serverIn, Writer: serverOut}, done
}

// ways are all ways to stand before a server; every behaviour is the same on each.
var ways = map[string]func(*rig, mcpguard.Options) *mcp.ClientSession{
	"pipe": (*rig).overPipe,
	"http": func(r *rig, o mcpguard.Options) *mcp.ClientSession { return r.overHTTP(o, nil) },
	"http json": func(r *rig, o mcpguard.Options) *mcp.ClientSession {
		return r.overHTTP(o, &mcp.StreamableHTTPOptions{JSONResponse: true})
	},
	"http without sessions": func(r *rig, o mcpguard.Options) *mcp.ClientSession {
		return r.overHTTP(o, &mcp.StreamableHTTPOptions{Stateless: true})
	},
	"middleware": (*rig).inside,
}

// onEach runs a test on each way.
func onEach(t *testing.T, o mcpguard.Options, test func(r *rig, s *mcp.ClientSession)) {
	t.Helper()
	t.Parallel()
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			test(r, open(r, o))
		})
	}
}

// inside gives a client of the server with the guard as its middleware.
func (r *rig) inside(o mcpguard.Options) *mcp.ClientSession {
	r.t.Helper()
	s := r.server()
	s.AddReceivingMiddleware(r.guard(o).Middleware(nil))
	client, server := mcp.NewInMemoryTransports()
	go func() { _ = s.Run(context.Background(), server) }()
	return r.connected(client)
}

// overHTTP gives a client of the server behind a guard over HTTP.
func (r *rig) overHTTP(o mcpguard.Options, server *mcp.StreamableHTTPOptions) *mcp.ClientSession {
	r.t.Helper()
	s := r.server()
	return r.connected(&mcp.StreamableClientTransport{Endpoint: r.proxy(o, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, server))})
}

// proxy starts a guard before a handler, and gives the URL of its endpoint.
func (r *rig) proxy(o mcpguard.Options, upstream http.Handler) string {
	r.t.Helper()
	up := httptest.NewServer(upstream)
	r.t.Cleanup(func() { up.CloseClientConnections(); up.Close() })
	return r.proxyTo(o, up.URL)
}

// proxyTo starts a guard before a server at a URL.
func (r *rig) proxyTo(o mcpguard.Options, upstream string) string {
	r.t.Helper()
	u, err := url.Parse(upstream + "/mcp")
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := r.guard(o).Proxy(mcpguard.ProxyOptions{Upstream: u, Loopback: true})
	if err != nil {
		r.t.Fatal(err)
	}
	front := httptest.NewServer(p)
	r.t.Cleanup(func() { p.EndStreams(); front.CloseClientConnections(); front.Close() })
	return front.URL + "/mcp"
}

// closedAddress gives the URL of nobody.
func closedAddress(t *testing.T) string {
	t.Helper()
	nobody := httptest.NewServer(http.NotFoundHandler())
	nobody.Close()
	return nobody.URL
}

func (r *rig) connected(transport mcp.Transport) *mcp.ClientSession {
	s := r.connect(transport)
	r.t.Cleanup(func() { _ = s.Close() })
	return s
}

// overPipe gives a client of the server behind a guard over stdin and stdout.
func (r *rig) overPipe(o mcpguard.Options) *mcp.ClientSession {
	r.t.Helper()
	client, server, ended := pipes(r.t, r.guard(o))
	go func() { _ = r.server().Run(context.Background(), server) }()
	session := r.connect(client)
	r.t.Cleanup(func() {
		_ = session.Close()
		if err := <-ended; err != nil {
			r.t.Errorf("the pump ended with %v", err)
		}
	})
	return session
}

func (r *rig) connect(transport mcp.Transport) *mcp.ClientSession {
	r.t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, r.client).Connect(r.t.Context(), transport, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return session
}

// tool makes a call's parameters; key "" is none.
func tool(name, key string, p payment) *mcp.CallToolParams {
	params := &mcp.CallToolParams{Name: name, Arguments: p}
	if key != "" {
		params.Meta = mcp.Meta{mcpguard.MetaKey: key}
	}
	return params
}

// result is what a client reads.
type result struct {
	text     string
	isError  bool
	replayed bool
	refusal  *mcpguard.Refusal
}

func read(t *testing.T, r *mcp.CallToolResult, err error) result {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var out result
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			out.text += text.Text + "\n"
		}
	}
	out.isError = r.IsError
	out.replayed, _ = r.Meta[mcpguard.MetaReplayed].(bool)
	if said, ok := r.Meta[mcpguard.MetaRefusal]; ok {
		raw, _ := json.Marshal(said)
		out.refusal = new(mcpguard.Refusal)
		if err := json.Unmarshal(raw, out.refusal); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func call(t *testing.T, s *mcp.ClientSession, p *mcp.CallToolParams) result {
	t.Helper()
	r, err := s.CallTool(t.Context(), p)
	return read(t, r, err)
}

func (r result) code() string {
	if r.refusal == nil {
		return ""
	}
	return string(r.refusal.Code)
}

// wants compares a result, and the calls that have reached the server.
func (r *rig) wants(got result, text, code string, replayed bool, calls int64) {
	r.t.Helper()
	if !strings.Contains(got.text, text) || got.code() != code || got.replayed != replayed {
		r.t.Errorf("got %+v (%s), want %q, refusal %q, replayed %v", got, got.code(), text, code, replayed)
	}
	if n := r.calls.Load(); n != calls {
		r.t.Errorf("the server was called %d times, want %d", n, calls)
	}
}

// lapse lets leases run out.
func (r *rig) lapse() { r.Clock.Advance(2 * time.Minute) }

// wire is a client or a server that speaks raw frames.
type wire struct {
	t   testing.TB
	in  *bufio.Reader
	out io.WriteCloser
}

func wired(t testing.TB, transport *mcp.IOTransport) *wire {
	return &wire{t, bufio.NewReader(transport.Reader), transport.Writer}
}

func (w *wire) send(line string) {
	w.t.Helper()
	if _, err := io.WriteString(w.out, line+"\n"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) recv() string {
	w.t.Helper()
	line, err := w.in.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}
