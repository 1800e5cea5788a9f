package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stateServer is a Counterfoil server that runs as a process of its own, and a way to it that stops at each completion.
type stateServer struct {
	token string
	way   *httptest.Server
	// before and after stop a completion that has not come to the server yet, or whose answer has not left.
	before, after bool
	stopped       chan struct{} // gets a value when a completion has stopped
}

func newStateServer(t *testing.T) *stateServer {
	t.Helper()
	path, err := exec.LookPath("counterfoil")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "serve", "--json", "--init", "--log-level", "error", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var said struct {
		Address   string
		TokenFile string `json:"token_file"`
	}
	if err != nil || json.Unmarshal(line, &said) != nil {
		t.Fatalf("the server said %q: %v", line, err)
	}
	token, err := os.ReadFile(said.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(said.Address)
	if err != nil {
		t.Fatal(err)
	}
	s := &stateServer{token: strings.TrimSpace(string(token)), stopped: make(chan struct{}, 10)}
	on := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	s.way = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		completes := strings.HasSuffix(r.URL.Path, "/complete")
		if completes && s.before {
			s.stop(r)
			return
		}
		if completes && s.after {
			on.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
			s.stop(r)
			return
		}
		on.ServeHTTP(w, r)
	}))
	t.Cleanup(s.way.Close)
	return s
}

// stop holds a request until whoever sent it is gone.
func (s *stateServer) stop(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // until then nobody notices who leaves
	s.stopped <- struct{}{}
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// proxyOn starts a proxy whose state is on a server.
func proxyOn(t *testing.T, s *stateServer, upstream string) *proxied {
	t.Helper()
	p := &proxied{t: t, dir: t.TempDir(), upstream: upstream, listen: "127.0.0.1:0", server: s}
	if err := os.WriteFile(filepath.Join(p.dir, "guard.yaml"), []byte("owner: {header: X-Api-Key}\ndefault: {lease: 1s, wait: 2s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func TestProxyKilledBetweenAnswerAndReceiptNeverCallsTheUpstreamAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after bool
		status        int
		outcome       string
	}{
		"before the receipt": {true, false, http.StatusConflict, "outcome_unknown"},
		"after the receipt":  {false, true, http.StatusCreated, "replay"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up, s := newPayments(t), newStateServer(t)
			s.before, s.after = c.before, c.after
			p := proxyOn(t, s, up.URL)
			sent := make(chan error, 1)
			go func() {
				_, _, _, err := p.post(t.Context(), "/pay", "k1", strings.NewReader("x"))
				sent <- err
			}()
			<-s.stopped
			if n := up.count("k1"); n != 1 {
				t.Fatalf("the upstream was called %d times before the receipt", n)
			}
			p.killed()
			if err := <-sent; err == nil {
				t.Error("a call whose proxy was killed got an answer")
			}
			for range 2 {
				p.wants("/pay", "k1", c.status, c.outcome)
			}
			if n := up.count("k1"); n != 1 {
				t.Errorf("the upstream was called %d times", n)
			}
		})
	}
}

func TestProxyReplaysALargeAnswerIfTheLimitOfReceiptsIsRaised(t *testing.T) {
	t.Parallel()
	large := make([]byte, 5<<20)
	for i := range large {
		large[i] = byte(i * 7)
	}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) }))
	t.Cleanup(up.Close)
	p := startProxy(t, up.URL)
	p.wants("/pay", "small-limit", http.StatusOK, "execute")
	p.wants("/pay", "small-limit", http.StatusGone, "receipt_not_retained")
	p.more = []string{"--max-receipt", "8MiB"}
	p.killed()
	p.wants("/pay", "k1", http.StatusOK, "execute")
	p.killed()
	status, header, text, err := p.post(t.Context(), "/pay", "k1", strings.NewReader("x"))
	if err != nil || status != http.StatusOK || header.Get("Counterfoil-Outcome") != "replay" || text != string(large) {
		t.Errorf("the replay is %d %s of %d bytes: %v", status, header.Get("Counterfoil-Outcome"), len(text), err)
	}
}

func TestProxyMetersOnAServer(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			w.Header().Set("X-No-Effect", "true")
		}
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`)
	}))
	t.Cleanup(up.Close)
	s := newStateServer(t)
	p := &proxied{t: t, dir: t.TempDir(), upstream: up.URL, listen: "127.0.0.1:0", server: s}
	text := `
owner: {header: X-Api-Key}
release_header: X-No-Effect
show_figures: true
default: {lease: 1s, wait: 2s, meter: [{budget: acme, usage: openai, hold: {base: 20}}]}
`
	if err := os.WriteFile(filepath.Join(p.dir, "guard.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(p.kill)
	on := func(args ...string) string {
		t.Helper()
		cmd := p.command(append(args, "--server", s.way.URL)...)
		cmd.Env = append(cmd.Env, "COUNTERFOIL_TOKEN="+s.token)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	p.wants("/chat", "k1", http.StatusNotFound, "budget_unknown")
	on("budget", "set", "acme", "--unit", "token", "--limit", "32")
	p.wants("/refuse", "k1", http.StatusOK, "not_performed")
	p.wants("/refuse", "k1", http.StatusOK, "not_performed")
	p.wants("/chat", "k1", http.StatusOK, "execute")
	p.wants("/chat", "k2", http.StatusOK, "execute")
	p.wants("/chat", "k2", http.StatusOK, "replay")
	p.wants("/chat", "k3", http.StatusPaymentRequired, "budget_exceeded")
	p.wants("/chat", "k1", http.StatusOK, "replay")
	if shown := on("budget", "show", "acme", "--json"); !strings.Contains(shown, `"spent":24`) || !strings.Contains(shown, `"held":0`) {
		t.Errorf("the budget stands at %s", shown)
	}
}
