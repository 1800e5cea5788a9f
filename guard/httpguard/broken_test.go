package httpguard_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/guard/httpguard"
)

// answering is an upstream that answers every request with some bytes, and closes.
func answering(t *testing.T, bytes string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.Copy(io.Discard, req.Body)
					_, _ = io.WriteString(conn, bytes)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// TestAnswerThatBreaksOffIsToldToItsClient, who would learn nothing from a connection that ends.
func TestAnswerThatBreaksOffIsToldToItsClient(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"in the body":     "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
		"in a chunk":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"a stream":        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: 1\n\n",
		"above the limit": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + strings.Repeat("a", httpguard.DefaultMaxAnswer+1),
		"no status":       "HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, front := behind(t, answering(t, answer), httpguard.ProxyOptions{})
			r.problem(mustCall(t, front, "k1", "a"), 409, "outcome_unknown", 1)
			r.lapse()
			r.problem(mustCall(t, front, "k1", "a"), 409, "outcome_unknown", 1)
		})
	}
}

// TestReplayHasTheStatusOfTheAnswer, whatever number an API has chosen: none of them becomes a success.
func TestReplayHasTheStatusOfTheAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 204, 418, 599, 600, 999} {
		r := inMemory(t, httpguard.Options{Default: httpguard.Policy{Record: httpguard.Stripe}}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		r.want(r.post("k1", "a"), status, "execute", 1)
		r.want(r.post("k1", "a"), status, "replay", 1)
	}
}
