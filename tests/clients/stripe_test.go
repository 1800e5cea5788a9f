package clients_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// bank is stripe-mock, and what it was asked for and answered.
type bank struct {
	*httptest.Server
	mu      sync.Mutex
	calls   map[string]int    // creations by their key
	answers map[string][]byte // the last one of each key
	cut     bool              // no answer leaves
}

func newBank(t *testing.T, cut bool) *bank {
	t.Helper()
	cmd := exec.Command(mock, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	listening := regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
	line := launch(t, func(line string) bool { return listening.MatchString(line) && strings.Contains(line, "for HTTP at") }, cmd)
	to := &url.URL{Scheme: "http", Host: listening.FindString(line)}
	b := &bank{calls: map[string]int{}, answers: map[string][]byte{}, cut: cut}
	b.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(answer *http.Response) error {
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				return err
			}
			answer.Body = io.NopCloser(bytes.NewReader(body))
			b.mu.Lock()
			defer b.mu.Unlock()
			key := answer.Request.Header.Get("Idempotency-Key")
			b.calls[key]++
			b.answers[key] = body
			return nil
		},
	})
	t.Cleanup(b.Close)
	if cut {
		whole := b.Config.Handler
		b.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			whole.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		})
	}
	return b
}

// network passes requests on, and cuts the connection at the first answer to each key: before it, or amid its header (the SDK gives up by itself when a body breaks off).
func network(t *testing.T, to string) string {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]int{}
	next := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: to}) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		mu.Lock()
		seen[key]++
		n, which := seen[key], len(seen)
		mu.Unlock()
		if n > 1 || key == "my-own-key" {
			next.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		if which%2 == 0 {
			_, _ = fmt.Fprintf(buffered, "HTTP/1.1 %d OK\r\nContent-Type: application/js", whole.Code)
			_ = buffered.Flush()
		}
		if tcp, ok := conn.(*net.TCPConn); ok && which%3 == 0 {
			_ = tcp.SetLinger(0) // a reset
		}
		_ = conn.Close()
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// given is what the SDK gave for a creation.
type given struct {
	Object   json.RawMessage
	Status   int
	Key      string
	Replayed bool
	Code     string
	Type     string
	Message  string
}

func stripeResults(t *testing.T, address string, n, retries int) []given {
	t.Helper()
	var results []given
	if err := json.Unmarshal(script(t, "stripe.mjs", address, fmt.Sprint(n), fmt.Sprint(retries)), &results); err != nil || len(results) != n+2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	return results
}

const stripeOptions = `owner: {bearer: true}
default: {record: stripe, wait: 10s}
replay_headers: [Idempotency-Key, Stripe-Version, Original-Request]
`

// TestStripeRetriesAndPaysOnce lets Stripe's own SDK pay while every first answer to it is cut off: it sends the request
// again by itself, gets the object of the first one, and the API has seen each payment once.
func TestStripeRetriesAndPaysOnce(t *testing.T) {
	t.Parallel()
	const payments = 20
	b := newBank(t, false)
	results := stripeResults(t, network(t, guarding(t, "proxy", b.URL, stripeOptions)), payments, 3)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range results {
		if r.Status != http.StatusOK || r.Replayed != (i != payments) {
			t.Errorf("payment %d: %+v", i, r)
			continue
		}
		var first, got any
		if json.Unmarshal(b.answers[r.Key], &first) != nil || json.Unmarshal(r.Object, &got) != nil || fmt.Sprint(first) != fmt.Sprint(got) {
			t.Errorf("payment %d: the SDK has %s, the API answered %s", i, r.Object, b.answers[r.Key])
		}
	}
	if len(b.calls) != payments+1 {
		t.Errorf("the API saw %d keys", len(b.calls))
	}
	for key, n := range b.calls {
		if n != 1 {
			t.Errorf("the API was called %d times with %s", n, key)
		}
	}
}

// TestStripeIsToldWhenNobodyCanKnow cuts the answers between API and guard: the payment may have been made, so that no
// retry of the SDK comes to the API, and the SDK says so.
func TestStripeIsToldWhenNobodyCanKnow(t *testing.T) {
	t.Parallel()
	b := newBank(t, true)
	results := stripeResults(t, guarding(t, "proxy", b.URL, stripeOptions), 3, 1)
	for i, r := range results {
		if r.Object != nil || r.Status != http.StatusConflict || r.Type != "StripeAPIError" || r.Code != "outcome_unknown" {
			t.Errorf("payment %d: %d %s %s %s", i, r.Status, r.Type, r.Code, r.Object)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) != 4 {
		t.Errorf("the API saw %d keys", len(b.calls))
	}
	for key, n := range b.calls {
		if n != 1 {
			t.Errorf("the API was called %d times with %s", n, key)
		}
	}
}
