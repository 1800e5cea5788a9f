package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/state"
)

const (
	orders  = 2000
	price   = 4_990_000 // in micros
	fitting = 1500      // orders that the budget has room for
	clients = 100
	name    = "payments"

	module = "github.com/counterfoil/counterfoil"
)

// process is a program that can be killed and started again at its address.
type process struct {
	path string
	args []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	dead chan struct{}
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.path, p.args...) //nolint:gosec,noctx // built by ourselves, and ended by end.
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	dead := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
		}
		_ = cmd.Wait()
		close(dead)
	}()
	p.cmd, p.dead = cmd, dead
	return nil
}

// end sends a signal and waits for the process to be gone.
func (p *process) end(signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(signal)
	<-p.dead
	p.cmd = nil
}

// stage is everything that runs: the server, the payments API, and the client
// of the first.
type stage struct {
	server, api *process
	apiURL      string
	ledger      string
	caller      *client.Caller
}

func start(ctx context.Context, dir string) (*stage, error) {
	fmt.Println("building the server and the payments API")
	for pkg, out := range map[string]string{module + "/cmd/counterfoil": "counterfoil", module + "/examples/payments": "payments"} {
		build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, out), pkg) //nolint:gosec // constants.
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("build %s: %w", pkg, err)
		}
	}
	serverAddr, err := free(ctx)
	if err != nil {
		return nil, err
	}
	apiAddr, err := free(ctx)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	s := &stage{ledger: filepath.Join(dir, "ledger.jsonl"), apiURL: "http://" + apiAddr}
	s.server = &process{path: filepath.Join(dir, "counterfoil"), args: []string{"serve", "--data", data, "--init", "--listen", serverAddr}}
	s.api = &process{path: filepath.Join(dir, "payments"), args: []string{"--listen", apiAddr, "--ledger", s.ledger, "--slow-every", "150"}}
	if err := errors.Join(s.server.start(), s.api.start()); err != nil {
		s.stop()
		return nil, err
	}
	if err := s.connect(ctx, data, serverAddr); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *stage) stop() {
	s.server.end(syscall.SIGKILL)
	s.api.end(syscall.SIGKILL)
}

// connect waits for the server and defines the budget.
func (s *stage) connect(ctx context.Context, data, addr string) error {
	for {
		if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr); err == nil {
			_ = c.Close()
			break
		}
		if !pause(ctx, 50*time.Millisecond) {
			return errors.New("the server does not come up")
		}
	}
	token, err := os.ReadFile(filepath.Join(data, "admin.token")) //nolint:gosec // a path of our own.
	if err != nil {
		return err
	}
	c, err := client.New(client.Options{
		URL: "http://" + addr, Token: strings.TrimSpace(string(token)), Timeout: 2 * time.Second, RetryFor: 3 * time.Second,
	})
	if err != nil {
		return err
	}
	s.caller = c.As("", "")
	_, err = s.caller.DefineBudget(ctx, budget.Definition{
		Name: name, Unit: "micros", Limit: fitting * price, Window: state.Window{Kind: state.WindowLifetime},
	})
	return err
}

// free finds an address that nobody listens on.
func free(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// pause waits; false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
