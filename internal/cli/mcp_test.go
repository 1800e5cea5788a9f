package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).
		Connect(b.t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return session, cmd
}

// guarded is the command that runs the bank behind a guard.
func (b *guardedBank) guarded(args ...string) *exec.Cmd {
	cmd := b.command(append(append([]string{
		"mcp", "--log-level", "error", "--data", filepath.Join(b.dir, "data"), "--config", filepath.Join(b.dir, "guard.yaml"), "--run", "r1",
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
