package httpguard_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/counterfoil/counterfoil/guard/httpguard"
)

// behind makes a server that guards an upstream.
func behind(t *testing.T, upstream string, o httpguard.ProxyOptions) (*rig, *httptest.Server) {
	t.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	o.Upstream = u
	proxy, err := httpguard.NewProxy(o)
	if err != nil {
		t.Fatal(err)
	}
	r := inMemory(t, httpguard.Options{}, proxy.ServeHTTP)
	front := httptest.NewServer(r.guarded)
	t.Cleanup(front.Close)
	return r, front
}

// call sends a request over the network.
func call(t *testing.T, front *httptest.Server, key, body string) (*reply, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/v1/payments?b=2&a=1;c", io.NopCloser(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = request(key, "").Header
	answer, err := front.Client().Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return &reply{answer.StatusCode, answer.Header, string(text)}, err
}

func mustCall(t *testing.T, front *httptest.Server, key, body string) *reply {
	t.Helper()
	answer, err := call(t, front, key, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestProxyPassesBytesOnAndReplaysThem(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.RawQuery != "b=2&a=1;c" || req.Header.Get("Idempotency-Key") != "k1" || req.Header.Get("Counterfoil-Permit") != "" {
			t.Errorf("the upstream got %q, %v", req.URL.RawQuery, req.Header)
		}
		paid(w, req)
	}))
	t.Cleanup(upstream.Close)
	r, front := behind(t, upstream.URL, httpguard.ProxyOptions{})
	r.want(mustCall(t, front, "k1", "a"), 201, "execute", 1)
	if got := r.want(mustCall(t, front, "k1", "a"), 201, "replay", 1).body; got != "paid a" {
		t.Errorf("the replay is %q", got)
	}
}

func TestProxyReleasesAfterAFailedConnect(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r, front := behind(t, "http://"+address, httpguard.ProxyOptions{})
	answer := r.want(mustCall(t, front, "k1", "a"), 502, "not_performed", 1)
	if text := answer.body; !strings.Contains(text, `"upstream_unreachable"`) || answer.Header.Get("Retry-After") != "1" {
		t.Errorf("answer: %v %s", answer.Header, text)
	}
	r.want(mustCall(t, front, "k1", "a"), 502, "not_performed", 2)
}

func TestProxyReleasesByTheWordOfTheUpstream(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-No-Effect", "true")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(upstream.Close)
	r, front := behind(t, upstream.URL, httpguard.ProxyOptions{ReleaseHeader: "x-no-effect"})
	for n := range 2 {
		if answer := r.want(mustCall(t, front, "k1", "a"), 429, "not_performed", int64(n+1)); answer.Header.Get("X-No-Effect") != "" {
			t.Error("the word of the upstream is passed on")
		}
	}
}

// TestBrokenUpstreamIsCalledOnce breaks connections, fresh ones and kept ones, before, amid and after an answer's header.
func TestBrokenUpstreamIsCalledOnce(t *testing.T) {
	t.Parallel()
	for name, partial := range map[string]string{
		"no answer":     "",
		"half a header": "HTTP/1.1 201 Created\r\nContent-Le",
		"half a body":   "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nhalf",
		"half a chunk":  "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf",
	} {
		for _, body := range []string{"a", ""} {
			t.Run(name+" "+body, func(t *testing.T) {
				t.Parallel()
				address, seen := cutting(t, partial)
				r, front := behind(t, "http://"+address, httpguard.ProxyOptions{})
				r.want(mustCall(t, front, "whole", body), 200, "execute", 1) // the connection is kept
				r.problem(mustCall(t, front, "k1", body), 409, "outcome_unknown", 2)
				r.lapse()
				r.problem(mustCall(t, front, "k1", body), 409, "outcome_unknown", 2)
				if n := seen.Load(); n != 2 {
					t.Errorf("the upstream saw %d requests, want 2", n)
				}
			})
		}
	}
}

// cutting is an upstream that answers its first request, and cuts every other one off after a part of the answer.
func cutting(t *testing.T, partial string) (address string, seen *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	seen = new(atomic.Int64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go cut(conn, partial, seen)
		}
	}()
	return l.Addr().String(), seen
}

func cut(conn net.Conn, partial string, seen *atomic.Int64) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		if seen.Add(1) > 1 {
			_, _ = io.WriteString(conn, partial)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

func TestBadUpstreamIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"ftp://h", "http://", "http://user:secret@h", "http://h?q", "/path"} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := httpguard.NewProxy(httpguard.ProxyOptions{Upstream: u}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
