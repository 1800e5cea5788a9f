package mcpguard

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// ProxyOptions configure [Guard.Proxy].
type ProxyOptions struct {
	Upstream *url.URL // of the server's endpoint, http or https. Required
	// Loopback says that the proxy listens on this machine alone: then requests must name it as their Host.
	Loopback bool
	// MaxBodies is how many bytes the messages of more than 64 KiB may have that are held at once, before it is known whose they
	// are; 0: DefaultMaxBodies. Beyond: 503.
	MaxBodies int64
	// Transport calls the server; nil: that of [httpguard.NewTransport], which never sends a request twice. Another one must
	// not send a request again by itself.
	Transport http.RoundTripper
}

// DefaultMaxBodies is how many bytes of large messages a proxy holds at once if nothing else is said.
const DefaultMaxBodies = 256 << 20

// smallBody is how many bytes a message may have that does not count as large.
const smallBody = 64 << 10

// bodyStep is how many bytes of a large message are taken at a time.
const bodyStep = 1 << 20

// Proxy guards a server over the streamable HTTP transport, at the same path as the server's endpoint.
type Proxy struct {
	guard     *Guard
	upstream  *url.URL
	loopback  bool
	transport http.RoundTripper
	pass      *httputil.ReverseProxy
	streams   context.Context // ends with the proxy: streams that the server may send events on at any time
	end       context.CancelFunc
	maxBodies int64
	bodies    atomic.Int64 // bytes of large messages that are held

	mu    sync.Mutex
	calls map[string]*sessionCall // calls in progress, by session and id
}

// Proxy makes a proxy.
func (g *Guard) Proxy(o ProxyOptions) (*Proxy, error) {
	u := o.Upstream
	if u == nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, errors.New("mcpguard: the upstream is a URL as https://host[:port][/path], without user and fragment")
	}
	at := *u
	if at.Path == "" {
		at.Path = "/"
	}
	p := &Proxy{guard: g, upstream: &at, loopback: o.Loopback, transport: o.Transport, maxBodies: o.MaxBodies, calls: map[string]*sessionCall{}}
	take(&p.maxBodies, max(DefaultMaxBodies, int64(g.options.MaxFrame)))
	if p.transport == nil {
		p.transport = httpguard.NewTransport()
	}
	p.streams, p.end = context.WithCancel(context.Background())
	p.pass = &httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: p.transport, FlushInterval: -1, ErrorHandler: p.broken,
		ErrorLog: slog.NewLogLogger(g.options.Log.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// Path is where the proxy takes messages.
func (p *Proxy) Path() string { return p.upstream.Path }

// EndStreams ends the streams that have no end of their own, so that a server can shut down.
func (p *Proxy) EndStreams() { p.end() }

// overrides are headers by which some frameworks take another method for the request's own.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// ServeHTTP takes one request of a client.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if refused := p.checkOrigin(r); refused != nil {
		p.refuse(w, r, http.StatusForbidden, refused)
		return
	}
	for _, name := range overrides {
		if len(r.Header[name]) > 0 {
			p.refuse(w, r, http.StatusBadRequest, refuseFrame(codeInvalidRequest, "a header that overrides the method is not taken"))
			return
		}
	}
	r.Header.Del("Upgrade")          // what comes through another protocol, nobody would judge
	if r.Method != http.MethodPost { // nothing but a message has a body
		r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
	}
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	switch {
	case r.URL.Path != p.upstream.Path && safe:
		p.pass.ServeHTTP(w, r) // such as the metadata by which clients find out how to authenticate
	case r.URL.Path != p.upstream.Path:
		p.refuse(w, r, http.StatusNotFound, refuseFrame(codeInvalidRequest, "messages are taken at "+p.upstream.Path+" alone"))
	case r.Method == http.MethodPost:
		p.post(w, r)
	case r.Method == http.MethodGet:
		p.stream(w, r)
	case safe || r.Method == http.MethodDelete:
		p.pass.ServeHTTP(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		p.refuse(w, r, http.StatusMethodNotAllowed, refuseFrame(codeInvalidRequest, "this method is not taken"))
	}
}

// post takes a message of a client.
func (p *Proxy) post(w http.ResponseWriter, r *http.Request) {
	if !plainJSON(r.Header) {
		p.refuse(w, r, http.StatusUnsupportedMediaType, refuseFrame(codeInvalidRequest, "want one Content-Type, application/json, in UTF-8 and not compressed"))
		return
	}
	body, held, refused := p.body(w, r)
	defer p.bodies.Add(-held)
	if refused != 0 {
		p.refuse(w, r, refused, refuseFrame(codeInvalidRequest, bodyRefusals[refused]))
		return
	}
	// From now on the connection may be silent for as long as a call takes.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	p.judge(w, r, body)
}

// judge passes a message on, refuses it, or makes the guarded call that it is.
func (p *Proxy) judge(w http.ResponseWriter, r *http.Request, body []byte) {
	frames, batch, refused := decodeFrames(body, p.guard.options.MaxFrame)
	if refused == nil && batch {
		refused = p.guard.checkBatch(frames)
	}
	if refused == nil && !batch {
		refused = checkHeaders(r.Header, frames[0])
	}
	if refused != nil {
		p.refuse(w, r, http.StatusBadRequest, refused)
		return
	}
	if !batch {
		if refused := checkMethod(frames[0]); refused != nil {
			status := http.StatusOK // an answer to a request
			if refused.id == nil {
				status = http.StatusBadRequest
			}
			p.refuse(w, r, status, refused)
			return
		}
		if p.message(w, r, frames[0]) {
			return
		}
	}
	if !batch && frames[0].method == methodListen {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(p.streams, cancel)()
		r = r.WithContext(ctx)
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	p.pass.ServeHTTP(w, r)
}

// bodyRefusals says why a body is not taken, by status.
var bodyRefusals = map[int]string{
	http.StatusRequestEntityTooLarge: "the message has more bytes than are taken",
	http.StatusServiceUnavailable:    "as many large messages are held as are taken; send it again later",
	http.StatusBadRequest:            "the body ended before its end",
}

// body reads a message. One that is large takes its share of what all of them may hold first, which is to be given back.
func (p *Proxy) body(w http.ResponseWriter, r *http.Request) (body []byte, held int64, refused int) {
	limit := int64(p.guard.options.MaxFrame)
	if r.ContentLength > limit {
		return nil, 0, http.StatusRequestEntityTooLarge
	}
	in := http.MaxBytesReader(w, r.Body, limit)
	var read bytes.Buffer
	_, err := io.CopyN(&read, in, smallBody)
	for err == nil { // there may be more: what is only announced takes no share
		if held += bodyStep; p.bodies.Add(bodyStep) > p.maxBodies {
			return nil, held, http.StatusServiceUnavailable
		}
		_, err = io.CopyN(&read, in, bodyStep)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, held, http.StatusRequestEntityTooLarge
	case err != nil:
		return nil, held, http.StatusBadRequest
	}
	return read.Bytes(), held, 0
}

// plainJSON reports whether every reader takes the body for JSON in UTF-8: in another charset, or uncompressed, the same
// bytes may be another message.
func plainJSON(h http.Header) bool {
	types := h.Values("Content-Type")
	if len(types) != 1 || len(h.Values("Content-Encoding")) > 0 {
		return false
	}
	media, parameters, err := mime.ParseMediaType(types[0])
	charset, named := parameters["charset"]
	if named {
		delete(parameters, "charset")
	}
	return err == nil && media == "application/json" && (!named || strings.EqualFold(charset, "utf-8")) && len(parameters) == 0
}

// message handles what is not passed on at once. It reports false if the message is to be.
func (p *Proxy) message(w http.ResponseWriter, r *http.Request, f *frame) (handled bool) {
	switch {
	case f.method == methodCancelled:
		p.cancel(r, f)
		return false
	case f.method != methodCall:
		return false
	}
	c, refused := decodeCall(f.params)
	if refused == nil {
		refused = checkName(r.Header, c.tool)
	}
	if refused != nil {
		refused.id = f.id
		p.refuse(w, r, http.StatusOK, refused)
		return true
	}
	if p.guard.policyOf(c.tool).ReadOnly {
		return false
	}
	if p.upstream.RawQuery == "" && r.URL.RawQuery != "" {
		p.refuse(w, r, http.StatusOK, &rpcError{code: codeInvalidRequest, text: "a guarded call takes no query, which might change what it does: the guard's --upstream can have one", id: f.id})
		return true
	}
	if err := p.guard.identify(c, r); err != nil {
		w.Header().Set("WWW-Authenticate", `Bearer realm="counterfoil"`)
		p.refuse(w, r, http.StatusUnauthorized, &rpcError{code: codeInvalidRequest, text: err.Error(), id: f.id})
		return true
	}
	p.toolCall(w, r, f, c)
	return true
}

// headers of 2026-07-28 that say once more what the body says. Whoever reads them must read the same.
const (
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerSession = "Mcp-Session-Id"
	headerLast    = "Last-Event-Id"
)

func checkHeaders(h http.Header, f *frame) *rpcError {
	if values := h.Values(headerMethod); len(values) > 1 || len(values) == 1 && values[0] != f.method {
		return &rpcError{code: codeInvalidRequest, text: "the header " + headerMethod + " differs from the body", id: f.id}
	}
	if len(h.Values(headerSession)) > 1 {
		return &rpcError{code: codeInvalidRequest, text: "the header " + headerSession + " is there more than once", id: f.id}
	}
	return nil
}

func checkName(h http.Header, tool string) *rpcError {
	values := h.Values(headerName)
	if len(values) == 0 {
		return nil
	}
	name := values[0]
	if coded, ok := strings.CutPrefix(name, "=?base64?"); ok && strings.HasSuffix(coded, "?=") {
		plain, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSuffix(coded, "?="))
		if err != nil {
			name = ""
		} else {
			name = string(plain)
		}
	}
	if len(values) > 1 || name != tool {
		return refuseFrame(codeInvalidRequest, "the header "+headerName+" differs from the body")
	}
	return nil
}

// rewrite makes the request to the server out of that of the client.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	path, raw := r.In.URL.Path, r.In.URL.RawPath
	r.Out.URL = &url.URL{Scheme: p.upstream.Scheme, Host: p.upstream.Host, Path: path, RawPath: raw, RawQuery: p.query(r.In)}
	r.Out.Host = ""
	plainAgent(r.Out.Header, r.In.Header)
}

// query is that of the configured endpoint, if it has one, else the client's.
func (p *Proxy) query(r *http.Request) string {
	if p.upstream.RawQuery != "" && r.URL.Path == p.upstream.Path {
		return p.upstream.RawQuery
	}
	return r.URL.RawQuery
}

// plainAgent keeps a name from being made up.
func plainAgent(out, in http.Header) {
	if _, named := in["User-Agent"]; !named {
		out["User-Agent"] = []string{""}
	}
}

// broken answers where the server did not.
func (p *Proxy) broken(w http.ResponseWriter, r *http.Request, err error) {
	p.guard.options.Log.Warn("the server did not answer", "error", err)
	p.refuse(w, r, http.StatusBadGateway, refuseFrame(codeInternal, "the server did not answer"))
}

// refuse answers with an error of JSON-RPC.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, status int, e *rpcError) {
	p.write(w, r, status, errorFrame(e))
}

// write answers with a message of the guard's own. A page whose Origin is taken may read it.
func (p *Proxy) write(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	h := w.Header()
	if origin := r.Header.Get("Origin"); origin != "" && status != http.StatusForbidden {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Add("Vary", "Origin")
	}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	inTime(w, body)
}

// inTime writes to a client that may not read.
func inTime(w http.ResponseWriter, body []byte) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(clock.System{}.Now().Add(clientPatience + time.Duration(len(body)/(32<<10))*time.Second))
	_, _ = w.Write(body)
	_ = control.SetWriteDeadline(time.Time{})
}

// sessionCall is a guarded call in progress, as others of its session see it.
type sessionCall struct {
	key  string          // "" without a session: nobody else can name it
	done chan struct{}   // closed when its result is recorded, or never will be
	stop context.Context // ends when there is nothing more to read
	end  context.CancelCauseFunc

	mu        sync.Mutex
	delivered *answer // by another stream of the session
	cancelled bool
}

var errDelivered = errors.New("mcpguard: the answer came on another stream")

// sessionKey names a call for others of its session.
func sessionKey(h http.Header, id jsontext.Value) string {
	session := h.Get(headerSession)
	if session == "" {
		return ""
	}
	return idKey(id) + "\x00" + session
}

// enter makes a call known to its session. An id that is in use is refused.
func (p *Proxy) enter(key string) (*sessionCall, bool) {
	c := &sessionCall{key: key, done: make(chan struct{})}
	c.stop, c.end = context.WithCancelCause(context.Background())
	if key == "" {
		return c, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls[key] != nil {
		return nil, false
	}
	p.calls[key] = c
	return c, true
}

func (p *Proxy) leave(c *sessionCall) {
	close(c.done)
	c.end(nil)
	if c.key == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, c.key)
}

func (p *Proxy) find(key string) *sessionCall {
	if key == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[key]
}

// cancel hears that a client wants no answer any more: few servers give one then.
func (p *Proxy) cancel(r *http.Request, f *frame) {
	var params struct {
		RequestID jsontext.Value `json:"requestId"`
	}
	if json.Unmarshal(f.params, &params) != nil || params.RequestID == nil {
		return
	}
	c := p.find(sessionKey(r.Header, params.RequestID))
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cancelled {
		c.cancelled = true
		time.AfterFunc(cancelGrace, func() { c.end(errCancelled) })
	}
}

// givenUp reports whether the client has given the call up.
func (c *sessionCall) givenUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancelled
}

// deliver gives a call its answer.
func (c *sessionCall) deliver(a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.delivered == nil {
		c.delivered = a
		c.end(errDelivered)
	}
}

func (c *sessionCall) taken() *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delivered
}

// stream passes the events on that the server sends at any time. One that answers a guarded call, because the client has
// resumed a broken stream, waits until the result is recorded.
func (p *Proxy) stream(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.streams, cancel)()
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	resp, err := p.transport.RoundTrip(p.outgoing(ctx, r, nil))
	if err != nil {
		p.broken(w, r, err)
		return
	}
	defer resp.Body.Close()
	out := &clientSide{w: w, header: resp.Header, status: resp.StatusCode}
	if !isStream(resp.Header) {
		out.copy(resp.Body)
		return
	}
	out.begin()
	in := readEvents(resp.Body, p.guard.options.MaxFrame)
	for {
		ev, err := in.next()
		if err != nil {
			return
		}
		p.hear(ctx, r.Header, ev)
		if !out.emit(ev.raw) {
			return
		}
	}
}

// hear gives the answers in an event to the calls that wait for them, and waits until they are recorded.
func (p *Proxy) hear(ctx context.Context, h http.Header, ev *event) {
	for _, data := range ev.data {
		a, id, ok, err := decodeAnswer(data)
		if !ok {
			continue
		}
		c := p.find(sessionKey(h, jsontext.Value(id)))
		if c == nil {
			continue
		}
		if err != nil {
			c.end(err)
		} else {
			a.raw = ev.raw
			c.deliver(a)
		}
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
}

// outgoing makes the request to the server.
func (p *Proxy) outgoing(ctx context.Context, r *http.Request, body []byte) *http.Request {
	out := r.Clone(ctx)
	out.URL = &url.URL{Scheme: p.upstream.Scheme, Host: p.upstream.Host, Path: p.upstream.Path, RawPath: p.upstream.RawPath, RawQuery: p.query(r)}
	out.Host, out.RequestURI, out.Close = "", "", false
	out.Header = endToEnd(r.Header)
	for _, name := range []string{"Accept-Encoding", "Content-Length", "Expect", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		out.Header.Del(name)
	}
	plainAgent(out.Header, r.Header)
	out.Body, out.ContentLength, out.TransferEncoding, out.GetBody = http.NoBody, 0, nil, nil
	if body != nil {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return out
}

// endToEnd gives the headers that are not of one connection alone (RFC 9110 7.6.1).
func endToEnd(h http.Header) http.Header {
	out := h.Clone()
	for _, value := range h.Values("Connection") {
		for name := range strings.SplitSeq(value, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for name := range out {
		if slices.Contains([]string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}, name) ||
			strings.HasPrefix(name, "Proxy-Auth") {
			delete(out, name)
		}
	}
	return out
}

func isStream(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == "text/event-stream"
}
