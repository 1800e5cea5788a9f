package mcpguard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/guard/mcpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
)

// posted makes a request with a message.
func posted(t *testing.T, ctx context.Context, url, message string, headers ...string) *http.Request { //nolint:revive // a test comes first
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for pair := range slices.Chunk(headers, 2) {
		r.Header[pair[0]] = append(r.Header[pair[0]], pair[1])
	}
	return r
}

// post sends a message, and gives the answer's status and body.
func post(t *testing.T, url, message string, headers ...string) (int, string) {
	t.Helper()
	return sent(t, posted(t, t.Context(), url, message, headers...))
}

func sent(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// wantsPost compares an answer's status and code.
func (r *rig) wantsPost(status int, body string, wantStatus int, code string, calls int64) {
	r.t.Helper()
	if status != wantStatus || coded(r.t, body) != code {
		r.t.Errorf("got %d %s, want %d %s", status, body, wantStatus, code)
	}
	if n := r.calls.Load(); n != calls {
		r.t.Errorf("the server was called %d times, want %d", n, calls)
	}
}

// answers is a server that counts its calls and answers each with a message.
func (r *rig) answers(answer func(w http.ResponseWriter, req *http.Request, message string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if strings.Contains(string(body), `"tools/call"`) {
			r.calls.Add(1)
		}
		answer(w, req, string(body))
	})
}

func (r *rig) pays(w http.ResponseWriter, req *http.Request, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Mcp-Session-Id", req.Header.Get("Mcp-Session-Id"))
	_, _ = fmt.Fprintf(w, paid, idIn(message))
}

// idIn finds the id of a message as these tests write it.
func idIn(message string) string {
	_, rest, _ := strings.Cut(message, `"id":`)
	id, _, _ := strings.Cut(rest, ",")
	return id
}

func TestOwnerOverHTTPIsWhoTheRequestSays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{Identify: httpguard.Header("X-Api-Key")}, r.answers(r.pays))
	status, body := post(t, url, callFrame("1", "k"))
	r.wantsPost(status, body, http.StatusUnauthorized, "-32600", 0)
	status, body = post(t, url, callFrame("1", "k"), "X-Api-Key", "ann")
	r.wantsPost(status, body, http.StatusOK, "", 1)
	status, body = post(t, url, callFrame("2", "k"), "X-Api-Key", "ann")
	r.wantsPost(status, body, http.StatusOK, "replayed", 1)
	status, body = post(t, url, callFrame("1", "k"), "X-Api-Key", "bob")
	r.wantsPost(status, body, http.StatusOK, "", 2)
	status, body = post(t, url, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	r.wantsPost(status, body, http.StatusOK, "", 2)
}

func TestKeyAndRunCanBeHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{KeyHeader: "Idempotency-Key", RunHeader: "X-Run", Default: mcpguard.Policy{Keys: mcpguard.Derived}}, r.answers(r.pays))
	bare := strings.Replace(callFrame("1", "k"), `,"_meta":{"io.counterfoil/idempotency-key":"k"}`, "", 1)
	for i, c := range []struct {
		message, header, value, code string
		calls                        int64
	}{
		{bare, "Idempotency-Key", `"k1"`, "", 1},
		{bare, "Idempotency-Key", `k1`, "replayed", 1},
		{bare, "Idempotency-Key", `k1,k2`, "invalid", 1},
		{callFrame("1", "k"), "Idempotency-Key", `k1`, "invalid", 1},
		{bare, "X-Run", "r1", "", 2},
		{bare, "X-Run", "r1", "replayed", 2},
		{bare, "X-Run", "r2", "", 3},
		{bare, "X-Other", "r2", "invalid", 3},
	} {
		status, body := post(t, url, c.message, c.header, c.value)
		t.Log(i)
		r.wantsPost(status, body, http.StatusOK, c.code, c.calls)
	}
}

func TestRequestsThatABrowserOrTwoReadersMayTakeOtherwiseAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{Origins: []string{"https://agents.example"}, MaxFrame: 2000}, r.answers(r.pays))
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, c := range map[string]struct {
		change func(*http.Request)
		body   string
		status int
	}{
		"no origin":                   {nil, ping, http.StatusOK},
		"origin of this machine":      {func(q *http.Request) { q.Header.Set("Origin", "http://localhost:3000") }, ping, http.StatusOK},
		"origin that is configured":   {func(q *http.Request) { q.Header.Set("Origin", "https://agents.example") }, ping, http.StatusOK},
		"another origin":              {func(q *http.Request) { q.Header.Set("Origin", "https://evil.example") }, ping, http.StatusForbidden},
		"origin null":                 {func(q *http.Request) { q.Header.Set("Origin", "null") }, ping, http.StatusForbidden},
		"name that was made to point": {func(q *http.Request) { q.Host = "evil.example" }, ping, http.StatusForbidden},
		"form":                        {func(q *http.Request) { q.Header.Set("Content-Type", "text/plain") }, ping, http.StatusUnsupportedMediaType},
		"compressed":                  {func(q *http.Request) { q.Header.Set("Content-Encoding", "gzip") }, ping, http.StatusUnsupportedMediaType},
		"another method in a header":  {func(q *http.Request) { q.Header.Set("Mcp-Method", "tools/call") }, ping, http.StatusBadRequest},
		"two sessions":                {func(q *http.Request) { q.Header["Mcp-Session-Id"] = []string{"a", "b"} }, ping, http.StatusBadRequest},
		"duplicate member":            {nil, `{"jsonrpc":"2.0","id":1,"method":"ping","id":2}`, http.StatusBadRequest},
		"batch with a guarded call":   {nil, "[" + callFrame("1", "k") + "]", http.StatusBadRequest},
		"notification of a call":      {nil, `{"jsonrpc":"2.0","method":"tools/call"}`, http.StatusBadRequest},
		"too large":                   {nil, `{"jsonrpc":"2.0","id":1,"method":"ping","params":"` + strings.Repeat("x", 3000) + `"}`, http.StatusRequestEntityTooLarge},
		"PUT":                         {func(q *http.Request) { q.Method = http.MethodPut }, callFrame("1", "k"), http.StatusMethodNotAllowed},
		"another path":                {func(q *http.Request) { q.URL.Path = "/other" }, callFrame("1", "k"), http.StatusNotFound},
		"another path, read only":     {func(q *http.Request) { q.Method, q.URL.Path = http.MethodGet, "/.well-known/oauth-protected-resource" }, "", http.StatusOK},
		"another tool in a header":    {func(q *http.Request) { q.Header.Set("Mcp-Name", "look") }, callFrame("1", "k"), http.StatusOK},
		"method that is overridden":   {func(q *http.Request) { q.Header.Set("X-HTTP-Method-Override", "POST"); q.Method = http.MethodDelete }, callFrame("1", "k"), http.StatusBadRequest},
		"body of a GET":               {func(q *http.Request) { q.Method = http.MethodGet }, callFrame("1", "k"), http.StatusOK},
		"body of a GET elsewhere":     {func(q *http.Request) { q.Method, q.URL.Path = http.MethodGet, "/x" }, callFrame("1", "k"), http.StatusOK},
		"unknown method":              {nil, `{"jsonrpc":"2.0","id":1,"method":"tools/execute"}`, http.StatusOK},
	} {
		req := posted(t, t.Context(), url, c.body)
		if c.change != nil {
			c.change(req)
		}
		status, body := sent(t, req)
		if status != c.status {
			t.Errorf("%s: got %d %s, want %d", name, status, body, c.status)
		}
	}
	if n := r.calls.Load(); n != 0 {
		t.Errorf("the server was called %d times", n)
	}
	status, body := post(t, url, callFrame("1", "k"), "Mcp-Name", "=?base64?cGF5?=", "Mcp-Method", "tools/call")
	r.wantsPost(status, body, http.StatusOK, "", 1)
}

func TestPageWhoseOriginIsTakenReadsRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{Origins: []string{"https://agents.example"}}, r.answers(r.pays))
	for origin, want := range map[string]string{"https://agents.example": "https://agents.example", "https://evil.example": "", "": ""} {
		req := posted(t, t.Context(), url, `{"jsonrpc":"2.0","id":1,"method":"tools/execute"}`)
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("%q may read if it is %q, want %q", origin, got, want)
		}
	}
}

func TestHeadersOfSessionAndVersionPass(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var got http.Header
	url := r.proxy(mcpguard.Options{}, r.answers(func(w http.ResponseWriter, req *http.Request, message string) {
		got = req.Header.Clone()
		r.pays(w, req, message)
	}))
	headers := []string{"Mcp-Session-Id", "s1", "Mcp-Protocol-Version", "2025-06-18", "Authorization", "Bearer t", "Accept-Encoding", "gzip", "Connection", "X-Hop", "X-Hop", "1"}
	status, body := post(t, url, callFrame("1", "k"), headers...)
	r.wantsPost(status, body, http.StatusOK, "", 1)
	for name, want := range map[string]string{
		"Mcp-Session-Id": "s1", "Mcp-Protocol-Version": "2025-06-18", "Authorization": "Bearer t", "Accept": "application/json, text/event-stream",
		"Accept-Encoding": "", "X-Hop": "", "Content-Type": "application/json",
	} {
		if got.Get(name) != want {
			t.Errorf("the server got %s: %q, want %q", name, got.Get(name), want)
		}
	}
}

func TestServerThatIsNotThereFreesTheKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	u := closedAddress(t)
	url := r.proxyTo(mcpguard.Options{}, u)
	for range 2 {
		status, body := post(t, url, callFrame("1", "k"))
		r.wantsPost(status, body, http.StatusOK, "upstream_unreachable", 0)
	}
}

func TestAnswersThatLeaveTheOutcomeOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, message string)
		status int
		code   string
	}{
		"connection that breaks": {func(http.ResponseWriter, string) { panic(http.ErrAbortHandler) }, http.StatusOK, "outcome_unknown"},
		"body that breaks": {func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, http.StatusOK, "outcome_unknown"},
		"answer to another request": {func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, paid, "99")
		}, http.StatusOK, "outcome_unknown"},
		"accepted, and nothing more": {func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusAccepted) }, http.StatusOK, "outcome_unknown"},
		"a page": {func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<p>hello")
		}, http.StatusOK, "outcome_unknown"},
		"status of a session that is over": {func(w http.ResponseWriter, _ string) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{}`)
		}, http.StatusNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			url := r.proxy(mcpguard.Options{}, r.answers(func(w http.ResponseWriter, _ *http.Request, message string) { c.answer(w, message) }))
			status, body := post(t, url, callFrame("1", "k"))
			r.wantsPost(status, body, c.status, c.code, 1)
			r.lapse()
			status, body = post(t, url, callFrame("2", "k"))
			r.wantsPost(status, body, http.StatusOK, "outcome_unknown", 1)
		})
	}
}

func TestStatusThatProvesThatTheToolHasNotRunFreesTheKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	over := true
	url := r.proxy(mcpguard.Options{Default: mcpguard.Policy{NotPerformedStatuses: []int{http.StatusNotFound}}}, r.answers(func(w http.ResponseWriter, req *http.Request, message string) {
		if over {
			http.NotFound(w, req)
			return
		}
		r.pays(w, req, message)
	}))
	if status, _ := post(t, url, callFrame("1", "k")); status != http.StatusNotFound {
		t.Errorf("got %d", status)
	}
	over = false
	status, body := post(t, url, callFrame("1", "k"))
	r.wantsPost(status, body, http.StatusOK, "", 2)
}

func TestClientThatHangsUpStopsNeitherCallNorReceipt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{Default: mcpguard.Policy{Wait: mcpguard.MaxWait}}, r.answers(func(w http.ResponseWriter, req *http.Request, message string) {
		r.begun <- struct{}{}
		select {
		case <-r.free:
			r.pays(w, req, message)
		case <-req.Context().Done():
			t.Error("the call was stopped")
		}
	}))
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := (&http.Transport{}).RoundTrip(posted(t, ctx, url, callFrame("1", "k"))) //nolint:bodyclose // there is none
		gone <- err
	}()
	<-r.begun
	leave()
	if err := <-gone; err == nil {
		t.Error("want an error")
	}
	close(r.free)
	status, body := post(t, url, callFrame("2", "k"))
	r.wantsPost(status, body, http.StatusOK, "replayed", 1)
}

// stream begins an answer by events.
func stream(w http.ResponseWriter) func(text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	return func(text string) {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
}

// nextEvent reads one event.
func nextEvent(t *testing.T, from *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", b.String(), err)
		}
		if line == "\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}

func open(t *testing.T, r *http.Request) *bufio.Reader {
	t.Helper()
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return bufio.NewReader(resp.Body)
}

func TestProgressPassesWhileTheToolWorks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{}, r.answers(func(w http.ResponseWriter, _ *http.Request, message string) {
		emit := stream(w)
		emit("id: 1\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\r\n\n")
		<-r.free // not before the client has seen it
		emit("data: " + fmt.Sprintf(paid, idIn(message)) + "\n\n")
	}))
	in := open(t, posted(t, t.Context(), url, callFrame("1", "k")))
	if got := nextEvent(t, in); !strings.Contains(got, "progress") {
		t.Errorf("got %q", got)
	}
	close(r.free)
	if got := nextEvent(t, in); got != "data: "+fmt.Sprintf(paid, "1")+"\n" {
		t.Errorf("got %q", got)
	}
	status, body := post(t, url, callFrame("2", "k"))
	r.wantsPost(status, body, http.StatusOK, "replayed", 1)
}

func TestStreamThatTheServerClosesIsResumed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{}, r.answers(func(w http.ResponseWriter, req *http.Request, message string) {
		switch {
		case req.Method == http.MethodGet && req.Header.Get("Last-Event-Id") == "e1" && req.Header.Get("Mcp-Session-Id") == "s":
			emit := stream(w)
			emit("id: e2\ndata: " + fmt.Sprintf(paid, "1") + "\n\n")
		case message != "":
			emit := stream(w)
			emit("id: e1\nretry: 1\ndata:\n\n")
		default:
			http.NotFound(w, req)
		}
	}))
	in := open(t, posted(t, t.Context(), url, callFrame("1", "k"), "Mcp-Session-Id", "s"))
	if got := nextEvent(t, in); !strings.HasPrefix(got, "id: e1\n") {
		t.Errorf("got %q", got)
	}
	if got := nextEvent(t, in); !strings.HasPrefix(got, "id: e2\n") {
		t.Errorf("got %q", got)
	}
	status, body := post(t, url, callFrame("2", "k"))
	r.wantsPost(status, body, http.StatusOK, "replayed", 1)
}

func TestStreamThatBreaksForGoodLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{}, r.answers(func(w http.ResponseWriter, _ *http.Request, _ string) {
		stream(w)("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n")
	}))
	in := open(t, posted(t, t.Context(), url, callFrame("1", "k")))
	nextEvent(t, in)
	if got := nextEvent(t, in); !strings.Contains(got, "outcome_unknown") || !strings.HasPrefix(got, "event: message\ndata: {") {
		t.Errorf("got %q", got)
	}
}

func TestAnswerOnAResumedStreamOfTheClientIsRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{}, r.answers(func(w http.ResponseWriter, req *http.Request, _ string) {
		if req.Method == http.MethodGet {
			stream(w)("id: e2\ndata: " + fmt.Sprintf(paid, "1") + "\n\n")
			return
		}
		stream(w)("id: e1\ndata:\n\n")
		r.begun <- struct{}{}
		<-req.Context().Done()
	}))
	first := open(t, posted(t, t.Context(), url, callFrame("1", "k"), "Mcp-Session-Id", "s"))
	<-r.begun
	get := posted(t, t.Context(), url, "", "Mcp-Session-Id", "s", "Last-Event-Id", "e1")
	get.Method = http.MethodGet
	second := open(t, get)
	for _, in := range []*bufio.Reader{second, first} {
		for {
			if got := nextEvent(t, in); strings.Contains(got, "e2") {
				break
			}
		}
	}
	status, body := post(t, url, callFrame("2", "k"))
	r.wantsPost(status, body, http.StatusOK, "replayed", 1)
}

// pausing is a caller that claims nothing before it may.
type pausing struct {
	counterfoil.Caller
	asked, may chan struct{}
}

func (p *pausing) Begin(ctx context.Context, b counterfoil.BeginParams) (counterfoil.Begun, error) {
	p.asked <- struct{}{}
	<-p.may
	return p.Caller.Begin(ctx, b)
}

func TestCallThatIsCancelledBeforeItIsSentIsNotSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := &pausing{r.core.As(storetest.Scope, "ann"), make(chan struct{}), make(chan struct{})}
	url := r.proxy(mcpguard.Options{As: func(string) counterfoil.Caller { return p }}, r.answers(r.pays))
	done := make(chan string, 1)
	go func() {
		_, body := post(t, url, callFrame("1", "k"), "Mcp-Session-Id", "s")
		done <- body
	}()
	<-p.asked
	post(t, url, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, "Mcp-Session-Id", "s")
	close(p.may)
	r.wantsPost(http.StatusOK, <-done, http.StatusOK, "upstream_unreachable", 0)
	go func() { <-p.asked }()
	status, body := post(t, url, callFrame("2", "k"), "Mcp-Session-Id", "s")
	r.wantsPost(status, body, http.StatusOK, "", 1)
}
