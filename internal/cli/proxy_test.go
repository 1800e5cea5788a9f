package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// payments is an upstream that knows nothing of repetitions: it counts its calls by key.
type payments struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
	begun chan string   // gets the key of each call to /slow
	gone  chan struct{} // ends calls to /slow
}

func newPayments(t *testing.T) *payments {
	t.Helper()
	p := &payments{calls: map[string]int{}, begun: make(chan string, 100), gone: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		p.mu.Lock()
		p.calls[key]++
		n := p.calls[key]
		p.mu.Unlock()
		if r.URL.Path == "/slow" {
			p.begun <- key
			select {
			case <-p.gone:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"payment": key, "call": n})
	}))
	t.Cleanup(func() {
		close(p.gone)
		p.Close()
	})
	return p
}

func (p *payments) count(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[key]
}

// proxied is a proxy that runs as a process of its own.
type proxied struct {
	t        *testing.T
	dir      string
	upstream string
	listen   string
	server   *stateServer // that has the state; nil: the proxy itself
	more     []string     // arguments
	cmd      *exec.Cmd
}

func startProxy(t *testing.T, upstream string) *proxied {
	t.Helper()
	p := &proxied{t: t, dir: t.TempDir(), upstream: upstream, listen: "127.0.0.1:0"}
	text := "owner: {header: X-Api-Key}\ndefault: {lease: 1s, wait: 2s}\n"
	if err := os.WriteFile(filepath.Join(p.dir, "guard.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := p.command("init", "--data", filepath.Join(p.dir, "data")).CombinedOutput(); err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *proxied) command(args ...string) *exec.Cmd {
	path, err := exec.LookPath("counterfoil")
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + p.dir}
	return cmd
}

func (p *proxied) start() {
	p.t.Helper()
	state := []string{"--data", filepath.Join(p.dir, "data")}
	if p.server != nil {
		state = []string{"--server", p.server.way.URL}
	}
	p.cmd = p.command(append([]string{"proxy", "--json", "--log-level", "error", "--upstream", p.upstream,
		"--config", filepath.Join(p.dir, "guard.yaml"), "--listen", p.listen}, append(state, p.more...)...)...)
	if p.server != nil {
		p.cmd.Env = append(p.cmd.Env, "COUNTERFOIL_TOKEN="+p.server.token)
	}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var said struct{ Address string }
	if err != nil || json.Unmarshal(line, &said) != nil {
		p.t.Fatalf("the proxy said %q: %v", line, err)
	}
	p.listen = strings.TrimPrefix(said.Address, "http://")
}

func (p *proxied) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// killed kills the proxy as kill -9 does, and starts it anew.
func (p *proxied) killed() {
	p.t.Helper()
	p.kill()
	p.start()
}

func (p *proxied) post(ctx context.Context, path, key string, body io.Reader) (int, http.Header, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.listen+path, body)
	if err != nil {
		return 0, nil, "", err
	}
	req.Header.Set("X-Api-Key", "ann")
	req.Header.Set("Idempotency-Key", key)
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, string(text), err
}

// wants posts until the outcome is final, and compares it.
func (p *proxied) wants(path, key string, status int, outcome string) {
	p.t.Helper()
	for {
		got, header, text, err := p.post(p.t.Context(), path, key, strings.NewReader("x"))
		if err != nil {
			p.t.Fatal(err)
		}
		if header.Get("Counterfoil-Outcome") == "in_flight" {
			continue // it has waited for as long as the policy says
		}
		if got != status || header.Get("Counterfoil-Outcome") != outcome {
			p.t.Errorf("%s: %d %s, want %d %s: %s", key, got, header.Get("Counterfoil-Outcome"), status, outcome, text)
		}
		return
	}
}

func TestKilledProxyNeverCallsTheUpstreamAgain(t *testing.T) {
	t.Parallel()
	up := newPayments(t)
	p := startProxy(t, up.URL)

	t.Log("killed before the claim: the body was not complete")
	half, rest := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, _, _, err := p.post(t.Context(), "/pay", "before", half)
		sent <- err
	}()
	if _, err := rest.Write([]byte("half a body")); err != nil {
		t.Fatal(err)
	}
	p.killed()
	_ = rest.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-sent; err == nil {
		t.Error("a request that was cut off got an answer")
	}
	p.wants("/pay", "before", http.StatusCreated, "execute")

	t.Log("killed during the call")
	go func() {
		_, _, _, err := p.post(t.Context(), "/slow", "during", strings.NewReader("x"))
		sent <- err
	}()
	<-up.begun
	p.killed()
	if err := <-sent; err == nil {
		t.Error("a call whose proxy was killed got an answer")
	}
	p.wants("/slow", "during", http.StatusConflict, "outcome_unknown")

	t.Log("killed after the receipt")
	p.wants("/pay", "after", http.StatusCreated, "execute")
	p.killed()
	p.wants("/pay", "after", http.StatusCreated, "replay")

	for _, key := range []string{"before", "during", "after"} {
		if n := up.count(key); n != 1 {
			t.Errorf("%s: the upstream was called %d times", key, n)
		}
	}
}

func TestProxyKilledUnderLoadCallsTheUpstreamOnce(t *testing.T) {
	t.Parallel()
	up := newPayments(t)
	p := startProxy(t, up.URL)
	const clients, keys = 8, 30
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered := map[string]string{}
	var turn sync.RWMutex // the proxy is not replaced while its address is read
	for n := range clients {
		wg.Go(func() {
			for k := range keys {
				key := fmt.Sprintf("load-%d-%d", n, k)
				for ctx.Err() == nil {
					turn.RLock()
					status, _, text, err := p.post(ctx, "/pay", key, strings.NewReader(key))
					turn.RUnlock()
					if err != nil {
						continue // killed: send it again
					}
					if status == http.StatusCreated {
						mu.Lock()
						answered[key] = text
						mu.Unlock()
					}
					break // refused for good, or in flight for as long as a client waits
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for kills := range 6 {
		select {
		case <-done:
		case <-time.After(time.Duration(60+37*kills) * time.Millisecond):
			p.kill() // requests that are under way break
			turn.Lock()
			p.start()
			turn.Unlock()
		}
	}
	<-done
	up.mu.Lock()
	defer up.mu.Unlock()
	for key, n := range up.calls {
		if n > 1 {
			t.Errorf("%s: the upstream was called %d times", key, n)
		}
	}
	for key, text := range answered {
		if want := fmt.Sprintf("{\"call\":1,\"payment\":%q}\n", key); text != want {
			t.Errorf("%s was answered %s", key, text)
		}
	}
	if len(answered) < clients*keys/2 {
		t.Errorf("only %d of %d requests were answered", len(answered), clients*keys)
	}
}

// TestClientsGetTheSameAnswerTwice runs clients that people use.
func TestClientsGetTheSameAnswerTwice(t *testing.T) {
	t.Parallel()
	up := newPayments(t)
	p := startProxy(t, up.URL)
	python := `import sys, urllib.request
r = urllib.request.Request(sys.argv[1], data=b"x", headers={"X-Api-Key": "ann", "Idempotency-Key": sys.argv[2]})
print(urllib.request.urlopen(r).read().decode(), end="")`
	for name, args := range map[string][]string{
		"curl":    {"curl", "-sS", "-H", "X-Api-Key: ann", "-H", `Idempotency-Key: "curl"`, "-d", "x", "http://" + p.listen + "/pay"},
		"python3": {"python3", "-c", python, "http://" + p.listen + "/pay", "python3"},
	} {
		for range 2 {
			out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), `"call":1,`) {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
	}
	p.wants("/pay", "go", http.StatusCreated, "execute")
	p.wants("/pay", "go", http.StatusCreated, "replay")
	for key, want := range map[string]int{`"curl"`: 1, "python3": 1, "go": 1} {
		if n := up.count(key); n != want {
			t.Errorf("%s: the upstream was called %d times, want %d", key, n, want)
		}
	}
}
