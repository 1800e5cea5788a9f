package mcpguard_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/guard/mcpguard"
)

// TestBodyThatTheServerMayReadInAnotherWayIsRefused: what the guard judges as UTF-8 is another message in UTF-7, say.
func TestBodyThatTheServerMayReadInAnotherWayIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var reached int
	url := r.proxy(mcpguard.Options{}, r.answers(func(w http.ResponseWriter, req *http.Request, message string) {
		reached++
		r.pays(w, req, message)
	}))
	const hidden = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"+ACIAfQ-,+ACI-method+ACI-:+ACI-tools/call+ACI-,+ACI-params+ACI-:+AHsAIg-name+ACI-:+ACI-pay+ACIAfQ-,+ACI-y+ACI-:+AHsAIg-z+ACI-:+ACI-"}}`
	for _, headers := range [][]string{
		{"Content-Type", "application/json; charset=utf-7"},
		{"Content-Type", "application/json; charset=utf-16le"},
		{"Content-Type", "application/json; profile=x"},
		{"Content-Type", "application/json", "Content-Type", "application/json; charset=utf-7"},
		{"Content-Type", "application/json", "Content-Encoding", "", "Content-Encoding", "deflate"},
	} {
		req := posted(t, t.Context(), url, hidden)
		req.Header.Del("Content-Type")
		for i := 0; i < len(headers); i += 2 {
			req.Header[headers[i]] = append(req.Header[headers[i]], headers[i+1])
		}
		if status, body := sent(t, req); status != http.StatusUnsupportedMediaType || reached != 0 {
			t.Errorf("%v: got %d %s, and the server %d messages", headers, status, body, reached)
		}
	}
	for _, media := range []string{"application/json", `application/json; charset=utf-8`, `Application/JSON;charset="UTF-8"`} {
		req := posted(t, t.Context(), url, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		req.Header.Set("Content-Type", media)
		if status, body := sent(t, req); status != http.StatusOK {
			t.Errorf("%s: got %d %s", media, status, body)
		}
	}
}

// TestNoConnectionToTheServerOpensBesideTheGuard, by a change of the protocol: whatever came through it would be unguarded.
func TestNoConnectionToTheServerOpensBesideTheGuard(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // a server that changes to whatever it is asked for
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				if to := req.Header.Get("Upgrade"); to != "" {
					fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", to)
					return
				}
				fmt.Fprint(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			}()
		}
	}()
	r := newRig(t)
	url := r.proxyTo(mcpguard.Options{}, "http://"+l.Addr().String())
	host, _ := strings.CutSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	for _, request := range []string{
		"GET /mcp HTTP/1.1", "GET /ws HTTP/1.1", "OPTIONS /mcp HTTP/1.1", "DELETE /mcp HTTP/1.1", "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 40",
	} {
		for _, to := range []string{"h2c", "websocket"} {
			conn, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "%s\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"+
				`{"jsonrpc":"2.0","id":1,"method":"ping"}`, request, to)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusNoContent {
				t.Errorf("%s to %s: got %s", request, to, resp.Status)
			}
			resp.Body.Close()
			conn.Close()
		}
	}
}

// TestToolWithAlmostTheNameOfAnotherIsRefused: a server may take it for that one, whose policy would not hold.
func TestToolWithAlmostTheNameOfAnotherIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, _ := r.raw(mcpguard.Options{Tools: map[string]mcpguard.Policy{"pay": {Capability: "payments"}, "Look": {ReadOnly: true}}})
	named := func(id, name string) string { return strings.Replace(callFrame(id, "k"+id), `"pay"`, `"`+name+`"`, 1) }
	passes(t, client, server, named("1", "payout"))
	passes(t, client, server, named("2", `L\u006fok`))
	for n, name := range []string{"PAY", "Pay", " pay", "pay ", `pay\u200b`, `p\u00ada\ufe0fy`, `\uff50ay`, `pay\u0000`, `pay\n`, `\u3164pay`} {
		client.send(named(fmt.Sprint(10+n), name))
		if got := client.recv(); coded(t, got) != "invalid" {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// TestGuardedCallTakesNoQuery: it might choose another account, and is no part of what is fingerprinted and approved.
func TestGuardedCallTakesNoQuery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{Tools: map[string]mcpguard.Policy{"look": {ReadOnly: true}}}, r.answers(r.pays))
	status, body := post(t, url+"?account=2", callFrame("1", "k"))
	r.wantsPost(status, body, http.StatusOK, "-32600", 0)
	status, body = post(t, url+"?account=2", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.wantsPost(status, body, http.StatusOK, "", 0)
	status, body = post(t, url+"?account=2", strings.Replace(callFrame("1", "k"), `"pay"`, `"look"`, 1))
	r.wantsPost(status, body, http.StatusOK, "", 1)
}

// TestLargeMessagesOfAnybodyTakeNoMoreMemoryThanAllowed: nobody knows whose they are before they are read.
func TestLargeMessagesOfAnybodyTakeNoMoreMemoryThanAllowed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	up := httptest.NewServer(r.answers(r.pays))
	t.Cleanup(up.Close)
	u, err := url.Parse(up.URL + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.guard(mcpguard.Options{MaxFrame: 1 << 20}).Proxy(mcpguard.ProxyOptions{Upstream: u, MaxBodies: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(p)
	t.Cleanup(front.Close)
	message := func(size int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", size) + `"}}`
	}
	var ends []*io.PipeWriter
	var answers []chan int
	for _, announced := range []int64{1 << 20, -1} { // both hold a whole message
		from, to := io.Pipe()
		req := posted(t, t.Context(), front.URL+"/mcp", "")
		req.Body, req.ContentLength = from, announced
		answer := make(chan int, 1)
		go func() {
			if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
				resp.Body.Close()
				answer <- resp.StatusCode
			}
			close(answer)
		}()
		_, _ = io.WriteString(to, message(300 << 10)[:200<<10])
		ends, answers = append(ends, to), append(answers, answer)
	}
	for p.Held() < 2<<20 {
		runtime.Gosched()
	}
	if status, body := post(t, front.URL+"/mcp", message(100<<10)); status != http.StatusServiceUnavailable {
		t.Errorf("one too many: got %d %s", status, body)
	}
	if status, body := post(t, front.URL+"/mcp", message(1<<10)); status != http.StatusOK {
		t.Errorf("a small one: got %d %s", status, body)
	}
	for i, to := range ends {
		_ = to.CloseWithError(io.ErrUnexpectedEOF)
		<-answers[i]
	}
	for p.Held() > 0 {
		runtime.Gosched()
	}
	if status, body := post(t, front.URL+"/mcp", message(100<<10)); status != http.StatusOK {
		t.Errorf("afterwards: got %d %s", status, body)
	}
}
