package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// order is what the tools of the bank take.
type order struct {
	Order string `json:"order"`
}

// bankServer makes a server whose tools post to the payments API at url: pay to /pay, slow to /slow.
func bankServer(url string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "bank", Version: "1"}, nil)
	for _, name := range []string{"pay", "slow"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, o order) (*mcp.CallToolResult, any, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/"+name, http.NoBody)
			if err != nil {
				return nil, nil, err
			}
			req.Header.Set("Idempotency-Key", o.Order)
			answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
			if err != nil {
				return nil, nil, err
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, nil, err
		})
	}
	mcp.AddTool(s, &mcp.Tool{Name: "confirm"}, func(_ context.Context, q *mcp.CallToolRequest, o order) (*mcp.CallToolResult, any, error) {
		if q.Params.InputResponses != nil {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "confirmed " + o.Order}}}, nil, nil
		}
		sure := &mcp.ElicitParams{Message: "sure?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}}
		return &mcp.CallToolResult{RequestState: "of " + o.Order, InputRequests: mcp.InputRequestMap{"sure": sure}}, nil, nil
	})
	return s
}

// bank is that server as a program, over stdin and stdout. With CRASH=1 it ends at the first call.
func bank() {
	if os.Getenv("COUNTERFOIL_TOKEN") != "" {
		fmt.Fprintln(os.Stderr, "the server got the guard's token")
		os.Exit(9)
	}
	fmt.Fprintln(os.Stderr, "the bank is open")
	err := bankServer(os.Getenv("BANK")).Run(context.Background(), &mcp.StdioTransport{})
	if err != nil && !errors.Is(err, io.EOF) {
		os.Exit(3)
	}
	os.Exit(7)
}

// guardedBank is a store, and the options of a guard.
type guardedBank struct {
	*proxied
	up  *payments
	env []string
}

func newGuardedBank(t *testing.T, options string) *guardedBank {
	t.Helper()
	up := newPayments(t)
	p := &proxied{t: t, dir: t.TempDir(), upstream: up.URL}
	if err := os.WriteFile(filepath.Join(p.dir, "guard.yaml"), []byte(options), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := p.command("init", "--data", filepath.Join(p.dir, "data")).CombinedOutput(); err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	return &guardedBank{proxied: p, up: up, env: []string{"BANK=" + up.URL}}
}

const bankOptions = "server: bank\nowner: {name: ann}\ndefault: {keys: derived, lease: 1s, wait: 5s}\n"

// open starts the guard with the bank behind it, and connects.
func (b *guardedBank) open(args ...string) (*mcp.ClientSession, *exec.Cmd) {
	b.t.Helper()
	cmd := b.guarded(args...)
	agrees := &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
	}}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, agrees).
		Connect(b.t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return session, cmd
}

// guarded is the command that runs the bank behind a guard.
func (b *guardedBank) guarded(args ...string) *exec.Cmd {
	if !slices.Contains(args, "--server") {
		args = append(args, "--data", filepath.Join(b.dir, "data"))
	}
	cmd := b.command(append(append([]string{
		"mcp", "--log-level", "error", "--config", filepath.Join(b.dir, "guard.yaml"), "--run", "r1",
	}, args...), "--", "mcp-bank")...)
	cmd.Env = append(cmd.Env, b.env...)
	cmd.Stderr = new(bytes.Buffer)
	return cmd
}

func orderTool(name, key string) *mcp.CallToolParams {
	return &mcp.CallToolParams{Name: name, Arguments: order{key}}
}

// said joins a result's text and the code of its refusal.
func said(t *testing.T, r *mcp.CallToolResult, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

// say calls a tool.
func say(t *testing.T, s *mcp.ClientSession, p *mcp.CallToolParams) string {
	t.Helper()
	r, err := s.CallTool(t.Context(), p)
	return said(t, r, err)
}

func (b *guardedBank) wants(got, want, key string, calls int) {
	b.t.Helper()
	if !strings.Contains(got, want) {
		b.t.Errorf("got %q, want %q in it", got, want)
	}
	if n := b.up.count(key); n != calls {
		b.t.Errorf("%s: paid %d times, want %d", key, n, calls)
	}
}

func TestKilledGuardNeverCallsTheToolAgain(t *testing.T) {
	t.Parallel()
	b := newGuardedBank(t, bankOptions)
	s, cmd := b.open()
	b.wants(say(t, s, orderTool("pay", "o1")), `"call":1`, "o1", 1)
	ended := make(chan error, 1)
	go func() {
		_, err := s.CallTool(t.Context(), orderTool("slow", "o2"))
		ended <- err
	}()
	<-b.up.begun
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a call whose guard was killed got an answer")
	}
	_ = s.Close()

	s, _ = b.open()
	b.wants(say(t, s, orderTool("pay", "o1")), "was made before", "o1", 1)
	b.wants(say(t, s, orderTool("slow", "o2")), "Refused (outcome_unknown)", "o2", 1)
	b.wants(say(t, s, orderTool("pay", "o3")), `"call":1`, "o3", 1)
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("the guard ended with %v, want the exit code 7 of the server", err)
	}
}

func TestGuardPassesStderrAndSignalsOn(t *testing.T) {
	t.Parallel()
	b := newGuardedBank(t, bankOptions)
	b.env = append(b.env, "COUNTERFOIL_TOKEN=cf_secret")
	s, cmd := b.open()
	b.wants(say(t, s, orderTool("pay", "o1")), `"call":1`, "o1", 1)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = s.Wait()
	err := s.Close()
	if text := fmt.Sprint(cmd.Stderr); !strings.Contains(text, "the bank is open") {
		t.Errorf("stderr is %q", text)
	}
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint("exit status ", 128+int(syscall.SIGTERM))) {
		t.Errorf("the guard ended with %v, want what shells say of a command that SIGTERM ended", err)
	}
}

// listening is a guard over HTTP that runs as a process of its own.
type listening struct {
	*guardedBank
	cmd *exec.Cmd
	url string
}

// listen starts a guard over HTTP before a server of the test's own.
func (b *guardedBank) listen(upstream string, args ...string) *listening {
	b.t.Helper()
	cmd := b.command(append([]string{
		"mcp", "--json", "--log-level", "error", "--config", filepath.Join(b.dir, "guard.yaml"), "--run", "r1",
		"--upstream", upstream, "--listen", "127.0.0.1:0",
	}, args...)...)
	cmd.Env = append(cmd.Env, b.env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var said struct{ Address string }
	if err != nil || json.Unmarshal(line, &said) != nil {
		b.t.Fatalf("the guard said %q: %v", line, err)
	}
	return &listening{b, cmd, said.Address}
}

func (l *listening) connect() *mcp.ClientSession {
	l.t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).
		Connect(l.t.Context(), &mcp.StreamableClientTransport{Endpoint: l.url, MaxRetries: -1}, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (b *guardedBank) bankOverHTTP() string {
	s := bankServer(b.up.URL)
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	b.t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h.URL + "/mcp"
}

func TestKilledGuardOverHTTPNeverCallsTheToolAgain(t *testing.T) {
	t.Parallel()
	b := newGuardedBank(t, bankOptions)
	bank, data := b.bankOverHTTP(), filepath.Join(b.dir, "data")
	l := b.listen(bank, "--data", data)
	s := l.connect()
	b.wants(say(t, s, orderTool("pay", "o1")), `"call":1`, "o1", 1)
	ended := make(chan error, 1)
	go func() {
		_, err := s.CallTool(t.Context(), orderTool("slow", "o2"))
		ended <- err
	}()
	<-b.up.begun
	if err := l.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = l.cmd.Wait()
	if err := <-ended; err == nil {
		t.Error("a call whose guard was killed got an answer")
	}

	l = b.listen(bank, "--data", data)
	s = l.connect()
	b.wants(say(t, s, orderTool("pay", "o1")), "was made before", "o1", 1)
	b.wants(say(t, s, orderTool("slow", "o2")), "Refused (outcome_unknown)", "o2", 1)
	b.wants(say(t, s, orderTool("pay", "o3")), `"call":1`, "o3", 1)
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("the guard ended with %v", err)
	}
}

func TestOptionsOfMCPThatCannotWorkAreToldBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	b := newGuardedBank(t, "server: bank\nowner: {header: X-Api-Key}\n")
	config := filepath.Join(b.dir, "guard.yaml")
	data := filepath.Join(b.dir, "data")
	for says, args := range map[string][]string{
		"mcp needs --config FILE":             {"--data", data, "--", "mcp-bank"},
		"either -- COMMAND":                   {"--data", data, "--config", config},
		"or --upstream URL":                   {"--data", data, "--config", config, "--upstream", "http://x/", "--", "mcp-bank"},
		"nothing but the file says who calls": {"--data", data, "--config", config, "--", "mcp-bank"},
		"the upstream is a URL":               {"--data", data, "--config", config, "--upstream", "ftp://x/", "--listen", "127.0.0.1:0"},
		"--owner has no meaning":              {"--data", data, "--config", config, "--upstream", "http://x/", "--owner", "ann"},
		"give either --server, or --data":     {"--data", data, "--server", "http://x", "--config", config, "--upstream", "http://x/"},
		"needs the token of an admin":         {"--server", "http://x", "--config", config, "--upstream", "http://x/"},
	} {
		out, err := b.command(append([]string{"mcp"}, args...)...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), says) {
			t.Errorf("%v: %v: %s; want exit code 2 and %q", args, err, out, says)
		}
	}
}

func TestGuardsShareTheStateOfAServer(t *testing.T) {
	t.Parallel()
	b := newGuardedBank(t, bankOptions)
	address, token := b.serve()
	b.env = append(b.env, "COUNTERFOIL_TOKEN="+token)
	bank := b.bankOverHTTP()
	first, second := b.listen(bank, "--server", address).connect(), b.listen(bank, "--server", address).connect()
	ended := make(chan string, 1)
	go func() {
		r, err := first.CallTool(t.Context(), orderTool("slow", "o1"))
		if err != nil {
			t.Error(err)
		}
		ended <- said(t, r, nil)
	}()
	<-b.up.begun
	waiting := make(chan string, 1)
	go func() {
		r, err := second.CallTool(t.Context(), orderTool("slow", "o1"))
		if err != nil {
			t.Error(err)
		}
		waiting <- said(t, r, nil)
	}()
	b.wants(say(t, second, orderTool("pay", "o2")), `"call":1`, "o2", 1)
	b.up.gone <- struct{}{}
	b.wants(<-ended, `"call":1`, "o1", 1)
	b.wants(<-waiting, "was made before", "o1", 1)
	b.wants(say(t, first, orderTool("pay", "o2")), "was made before", "o2", 1)
}

// serve starts a server on the data directory.
func (b *guardedBank) serve() (address, token string) {
	b.t.Helper()
	data := filepath.Join(b.dir, "data")
	cmd := b.command("serve", "--json", "--log-level", "error", "--data", data, "--listen", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var said struct{ Address string }
	if err != nil || json.Unmarshal(line, &said) != nil {
		b.t.Fatalf("the server said %q: %v", line, err)
	}
	secret, err := os.ReadFile(filepath.Join(data, "admin.token"))
	if err != nil {
		b.t.Fatal(err)
	}
	return said.Address, strings.TrimSpace(string(secret))
}

func TestGuardKilledUnderLoadCallsEachToolOnce(t *testing.T) {
	t.Parallel()
	b := newGuardedBank(t, bankOptions)
	const agents, orders = 8, 25
	var mu sync.Mutex
	answered := map[string]string{}
	left := make(chan string, agents*orders)
	for n := range agents * orders {
		left <- fmt.Sprintf("load-%d", n)
	}
	for kill := 0; len(left) > 0; kill++ {
		s, cmd := b.open()
		var wg sync.WaitGroup
		for range agents {
			wg.Go(func() {
				for {
					select {
					case key := <-left:
						r, err := s.CallTool(t.Context(), orderTool("pay", key))
						if err != nil {
							left <- key // the guard was killed: send it again
							return
						}
						mu.Lock()
						answered[key] = said(t, r, nil)
						mu.Unlock()
					default:
						return
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		if kill < 6 {
			select {
			case <-done:
			case <-time.After(time.Duration(20+23*kill) * time.Millisecond):
			}
			_ = cmd.Process.Kill()
		}
		<-done
		_ = s.Close()
	}
	b.up.mu.Lock()
	defer b.up.mu.Unlock()
	for key, n := range b.up.calls {
		if n > 1 {
			t.Errorf("%s: paid %d times", key, n)
		}
	}
	open := 0
	for key, text := range answered {
		switch {
		case strings.Contains(text, fmt.Sprintf(`"call":1,"payment":%q`, key)):
		case strings.Contains(text, "outcome_unknown"):
			open++
		default:
			t.Errorf("%s was answered %s", key, text)
		}
	}
	if len(answered) != agents*orders || open > 6*agents {
		t.Errorf("%d of %d calls were answered, %d of them as unknown", len(answered), agents*orders, open)
	}
	t.Logf("%d paid, %d unknown", len(answered)-open, open)
}

func TestToolThatAsksItsClientGoesOnWithTheStateOnAServer(t *testing.T) {
	t.Parallel()
	b := newGuardedBank(t, bankOptions)
	address, token := b.serve()
	b.env = append(b.env, "COUNTERFOIL_TOKEN="+token)
	s, _ := b.open("--server", address)
	b.wants(say(t, s, orderTool("confirm", "o1")), "confirmed o1", "o1", 0)
	b.wants(say(t, s, orderTool("confirm", "o1")), "was made before", "o1", 0)
	_ = s.Close() // with the exit code of the bank
}

func TestCallRunsOnceAPersonHasApprovedIt(t *testing.T) {
	t.Parallel()
	b := newGuardedBank(t, bankOptions+"tools: {pay: {approval: required, capability: payments}}\n")
	address, token := b.serve()
	b.env = append(b.env, "COUNTERFOIL_TOKEN="+token)
	operator := func(args ...string) string {
		t.Helper()
		cmd := b.command(append(append([]string{"approvals"}, args...), "--json", "--server", address)...)
		cmd.Env = append(cmd.Env, b.env...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	s := b.listen(b.bankOverHTTP(), "--server", address).connect()
	b.wants(say(t, s, orderTool("pay", "o1")), "Refused (approval_pending)", "o1", 0)
	b.wants(say(t, s, orderTool("pay", "o2")), "Refused (approval_pending)", "o2", 0)
	var list struct {
		Items []struct {
			ID        string
			Tool      string
			Arguments order
		}
	}
	if err := json.Unmarshal([]byte(operator("list")), &list); err != nil || len(list.Items) != 2 {
		t.Fatalf("got %+v, %v", list, err)
	}
	for _, q := range list.Items {
		if !strings.HasPrefix(q.Tool, "pay@") {
			t.Errorf("the operator is shown %+v", q)
		}
		if q.Arguments.Order == "o1" {
			operator("grant", q.ID)
		} else {
			operator("deny", q.ID, "--note", "too much")
		}
	}
	b.wants(say(t, s, orderTool("pay", "o1")), `"call":1`, "o1", 1)
	b.wants(say(t, s, orderTool("pay", "o1")), "was made before", "o1", 1)
	b.wants(say(t, s, orderTool("pay", "o2")), "The person said: too much", "o2", 0)
}
