// Package process_test drives the program as an operator's machine does: as a process that is killed, told to stop, and
// left without disk. What it acknowledged must be there afterwards, and nothing may have been granted twice.
package process_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/client"
)

// program is the path of the program, built once. Its wall clock can be stepped while it runs; it is the program that is
// shipped in all else.
var program string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "counterfoil-program")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // left to the system's own tidying
	program = filepath.Join(dir, "counterfoil")
	build := exec.Command("go", "build", "-tags", "clockstep", "-o", program, "./cmd/counterfoil")
	build.Dir = "../.."
	build.Stderr = os.Stderr
	// Another user runs it, too.
	if err := errors.Join(build.Run(), os.Chmod(dir, 0o755)); err != nil {
		fmt.Fprintln(os.Stderr, "the program cannot be built:", err)
		return 1
	}
	return m.Run()
}

// machine is a directory with a store, and the address of the server on it.
type machine struct {
	t      testing.TB
	dir    string
	listen string // where the first server listened; later ones listen there too
	store  string // URL of a shared store; "" for the embedded one
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	return &machine{t: t, dir: filepath.Join(t.TempDir(), "data"), listen: "127.0.0.1:0"}
}

// environ is what a process on the machine is started with.
func (m *machine) environ() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "CLOCK_STEP_FILE=" + m.stepFile()}
	if m.store != "" {
		env = append(env, "COUNTERFOIL_STORE="+m.store)
	}
	return env
}

func (m *machine) stepFile() string { return m.dir + ".step" }

// step moves the wall clock of the machine by d, counted from what it truly is.
func (m *machine) step(d time.Duration) {
	m.t.Helper()
	next := m.stepFile() + ".new"
	if err := errors.Join(os.WriteFile(next, []byte(d.String()), 0o600), os.Rename(next, m.stepFile())); err != nil {
		m.t.Fatal(err)
	}
}

// process is a server that runs or has run.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	url    string
	ended  chan struct{} // closed once it has ended
	errors *log
}

// log is what a process wrote to stderr.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// ready bounds every wait for a process.
const ready = 30 * time.Second

// start starts a server and waits until it serves. change, if not nil, may change the command.
func (m *machine) start(change func(*exec.Cmd), arguments ...string) *process {
	m.t.Helper()
	p, said := m.launch(change, arguments...)
	if said == "" {
		<-p.ended
		m.t.Fatalf("the server does not start: %s\n%s", p.cmd.ProcessState, p.errors)
	}
	return p
}

// launch starts a server and waits until it serves or has ended; then its first line is empty.
func (m *machine) launch(change func(*exec.Cmd), arguments ...string) (*process, string) {
	m.t.Helper()
	args := append([]string{"serve", "--json", "--data", m.dir, "--listen", m.listen, "--init"}, arguments...)
	p := &process{t: m.t, cmd: exec.Command(program, args...), ended: make(chan struct{}), errors: new(log)}
	p.cmd.Stderr = p.errors
	p.cmd.Env = m.environ()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if change != nil {
		change(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(p.kill)
	lines := make(chan string, 1)
	go func() {
		in := bufio.NewScanner(out)
		in.Scan()
		lines <- in.Text()
		_ = p.cmd.Wait() // its state says how it ended
		close(p.ended)
	}()
	select {
	case line := <-lines:
		var said struct{ Address string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Address != "" {
			p.url = said.Address
			m.listen = strings.TrimPrefix(said.Address, "http://")
		}
		return p, said.Address
	case <-time.After(ready):
		m.t.Fatalf("the server says nothing\n%s", p.errors)
		return nil, ""
	}
}

// kill ends the process at once, if it has not ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// wait waits for the end of the process and returns its exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(ready):
		p.t.Fatalf("the process does not end\n%s", p.errors)
	}
	return p.cmd.ProcessState.ExitCode()
}

// terminate sends SIGTERM and returns the exit code.
func (p *process) terminate() int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return p.wait()
}

// admin reads the admin's token.
func (m *machine) admin() string {
	m.t.Helper()
	token, err := os.ReadFile(filepath.Join(m.dir, "admin.token"))
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// caller asks the machine's server.
func (m *machine) caller(retryFor time.Duration) *client.Caller {
	m.t.Helper()
	c, err := client.New(client.Options{URL: "http://" + m.listen, Token: m.admin(), RetryFor: retryFor})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(c.Close)
	return c.As("", "")
}

// run runs the program to its end and returns its exit code and output.
func (m *machine) run(arguments ...string) (code int, stdout, stderr string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, arguments...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(m.environ(), "COUNTERFOIL_DATA="+m.dir)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
