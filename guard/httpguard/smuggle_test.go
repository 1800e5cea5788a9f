package httpguard_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/guard/httpguard"
)

// TestMethodInOtherLetterCaseIsRefused: there are servers that take post for POST.
func TestMethodInOtherLetterCaseIsRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []httpguard.Options{{}, {Routes: []httpguard.Route{{Pattern: "/v1/"}}}} {
		r := inMemory(t, o, paid)
		for _, method := range []string{"post", "Post", "pAtch", "PRI"} {
			req := request("", "a")
			req.Method = method
			r.problem(r.send(req), 400, "malformed", 0)
		}
	}
}

// TestNoConnectionOpensBesideTheGuard, by a change to HTTP/2, through which any request could be sent unguarded.
func TestNoConnectionOpensBesideTheGuard(t *testing.T) {
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
				req, err := http.ReadRequest(bufio.NewReader(conn))
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
	_, front := behind(t, "http://"+l.Addr().String(), httpguard.ProxyOptions{})
	for upgrade, want := range map[string]int{"h2c": 204, "H2C": 204, "h2c, websocket": 204, "foo": 204, "websocket": 101, "WebSocket": 101} {
		for _, method := range []string{"GET", "DELETE"} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(front.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "%s /x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n", method, upgrade)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if method != "GET" {
				want = 204
			}
			if resp.StatusCode != want {
				t.Errorf("%s with %s: got %s, want %d", method, upgrade, resp.Status, want)
			}
			resp.Body.Close()
			conn.Close()
		}
	}
}

// TestHeaderThatOverridesTheMethodIsRefusedInEverySpelling: where headers become variables, _ and - are one.
func TestHeaderThatOverridesTheMethodIsRefusedInEverySpelling(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{}, paid)
	for _, name := range []string{"X-HTTP-Method-Override", "X_HTTP_Method_Override", "x-http_method", "X-METHOD_Override"} {
		req := httptest.NewRequest(http.MethodPut, "/v1/payments", nil)
		req.Header.Set(name, "POST")
		r.problem(r.send(req), 400, "malformed", 0)
	}
}

// TestRouteIsNotLeftByASpellingThatServersTakeForTheSame: what the route asks for, a permit or a budget, must hold.
func TestRouteIsNotLeftByASpellingThatServersTakeForTheSame(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{Routes: []httpguard.Route{
		{Pattern: "POST /v1/payments", Policy: httpguard.Policy{Capability: "pay", Server: "bank"}},
		{Pattern: "POST /v1/Accounts/{id}/close", Policy: httpguard.Policy{Capability: "pay", Server: "bank"}},
		{Pattern: "POST /v1/open/", Policy: httpguard.Policy{}},
		{Pattern: "POST /v1/all/", Policy: httpguard.Policy{Capability: "pay", Server: "bank"}},
	}}, paid)
	for path, code := range map[string]string{
		"/v1/payments": "permit_malformed", "/v1/payments/": "malformed", "/V1/Payments": "malformed", "/v1/payments;a=1": "malformed", "/v1/PAYMENTS/;": "malformed",
		"/v1/Accounts/Ann/close": "permit_malformed", "/v1/accounts/Ann/close": "malformed", "/v1/Accounts/Ann/close;a": "malformed", "/v1/Accounts/Ann;a/close": "permit_malformed",
		"/v1/%70ayments": "permit_malformed", "/v1/all/": "permit_malformed", "/v1/all": "malformed", "/V1/all": "malformed", "/v1/all;a": "malformed", "/v1/ALL/x": "malformed",
		"/v1/payments%20": "malformed", "/v1/payments%3Ba": "malformed",
	} {
		req := request("k", "a")
		u, err := req.URL.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		req.URL = u
		r.problem(r.send(req), 400, code, 0)
	}
	for n, path := range []string{"/v1/payments/1", "/v1/paymentsx", "/v1/open/X", "/v1/Accounts/Ann/closed", "/v1/pay"} {
		req := request(fmt.Sprint("k", n), "a")
		req.URL.Path = path
		r.want(r.send(req), 201, "execute", int64(n)+1)
	}
}

// TestMeteredBodyIsReadInOneWay: a body that is JSON to the guard must not be a form, or in another charset, to the API.
func TestMeteredBodyIsReadInOneWay(t *testing.T) {
	t.Parallel()
	r := inMemory(t, metered(httpguard.Meter{Budget: "acme", Request: "/amount"}), echo)
	r.define("acme", 100)
	const two = `{"amount":1,"x":"&amount=1000000&+ACI-,+ACI-amount+ACI-:1000000,+ACI-y+ACI-:+ACI-"}`
	for _, headers := range [][]string{
		{"Content-Type", "application/x-www-form-urlencoded"}, {"Content-Type", "multipart/form-data; boundary=x"}, {"Content-Type", "text/plain"},
		{"Content-Type", "application/json; charset=utf-7"}, {"Content-Type", "application/json; charset=utf-16"}, {"Content-Type", ""},
		{"Content-Type", "application/json", "Content-Encoding", "br"}, {"Connection", "close, Content-Type"},
	} {
		r.problem(r.post("k1", two, headers...), 400, "malformed", 0)
	}
	for n, media := range []string{"application/json", "application/json; charset=UTF-8", "application/vnd.acme+json;v=1"} {
		r.want(r.post(fmt.Sprint("k", n), `{"amount":1}`, "Content-Type", media), 200, "execute", int64(n)+1)
	}
	r.stands("acme", 3, 0)
}

// TestMeteredMemberIsThereInOneSpelling: an API that ignores letter case takes the last of several.
func TestMeteredMemberIsThereInOneSpelling(t *testing.T) {
	t.Parallel()
	r := inMemory(t, metered(
		httpguard.Meter{Budget: "acme", Request: "/order/amount"},
		httpguard.Meter{Budget: "acme", Response: "/cost", Hold: httpguard.Estimate{Fields: []string{"/max", "/limit"}, Otherwise: 1}},
	), echo)
	r.define("acme", 100)
	for _, body := range []string{
		`{"order":{"amount":1,"Amount":90}}`, `{"order":{"amount":1},"ORDER":{"amount":90}}`, `{"order":{"amount":1,"AMOUNT":90}}`,
		`{"order":{"amount":1},"Max":90}`, `{"order":{"amount":1},"max":1,"mAx":90}`, `{"order":{"amount":1},"limit":1,"L\u0131m\u0131t":1,"LIMIT":90}`,
		`{"order":{"amount":1},"\u017ftream":1,"lim\u0069t":1,"limi\u0074":1}`,
	} {
		if got := r.post("k", body); got.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: got %d", body, got.StatusCode)
		}
	}
	r.stands("acme", 0, 0)
	r.want(r.post("k", `{"order":{"amount":1,"amounts":2},"max":1,"maximum":2}`, "Answer", `{"cost":1}`), 200, "execute", 1)
	r.stands("acme", 2, 0)
}
