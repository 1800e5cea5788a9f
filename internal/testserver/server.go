package testserver

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Server is one running server process with its children.
type Server struct {
	t    TB
	kind kind
	port int
	dir  string

	output  *output
	cmd     *exec.Cmd
	exited  chan struct{} // closed once cmd is gone; nil before the first start
	stopped bool          // by SIGSTOP
}

// kind is what differs between the programs.
type kind struct {
	name    string
	command func(port int) *exec.Cmd
	ready   string         // part of the line that says it answers
	stop    syscall.Signal // ends it in good order
}

// busy is part of what every program prints when somebody else has its port.
const busy = "Address already in use"

// start runs a new server on a free port; configure writes its files for that port.
func start(t TB, kind kind, dir string, configure func(port int)) *Server {
	t.Helper()
	s := &Server{t: t, kind: kind, dir: dir}
	t.Cleanup(s.cleanUp)
	for range 5 {
		s.port = freePort(t)
		configure(s.port)
		err := s.run()
		if err == nil {
			return s
		}
		// The port was free a moment ago: another process was faster.
		if !strings.Contains(err.Error(), busy) {
			t.Fatalf("%v", err)
		}
	}
	t.Fatalf("%s found each of 5 free ports taken", kind.name)
	return nil
}

// Addr is "127.0.0.1:port"; it stays the same for the life of the test.
func (s *Server) Addr() string { return loopback(s.port) }

// Port is the port alone.
func (s *Server) Port() int { return s.port }

// Dir holds the server's files: configuration and data.
func (s *Server) Dir() string { return s.dir }

// PID is the process id of the server's first process, 0 while it is down.
func (s *Server) PID() int {
	if !s.running() {
		return 0
	}
	return s.cmd.Process.Pid
}

// Output is what the server printed last, across restarts, at most 40 lines.
func (s *Server) Output() string { return s.output.tail() }

// Start brings a server up again that was stopped or killed, and returns when it answers.
func (s *Server) Start() {
	s.t.Helper()
	if s.running() {
		s.t.Fatalf("%s on %s is already running", s.kind.name, s.Addr())
	}
	if err := s.run(); err != nil {
		s.t.Fatalf("%v", err)
	}
}

// Launch is Start for a server that is expected not to come up: it returns why, or nil when the server answers.
func (s *Server) Launch() error {
	s.t.Helper()
	if s.running() {
		s.t.Fatalf("%s on %s is already running", s.kind.name, s.Addr())
	}
	return s.run()
}

// Stop ends the server in good order and returns when it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	s.mustRun("stop")
	if s.stopped {
		s.Resume()
	}
	if err := s.cmd.Process.Signal(s.kind.stop); err != nil {
		s.t.Fatalf("stop %s: %v", s.kind.name, err)
	}
	select {
	case <-s.exited:
	case <-time.After(stopLimit):
		s.t.Fatalf("%s did not stop within %v\n%s", s.kind.name, stopLimit, s.Output())
	}
}

// Restart is Stop and Start.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.Start()
}

// Kill ends the server and all its children at once, as kill -9 does, and returns when they are gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.mustRun("kill")
	if err := s.kill(); err != nil {
		s.t.Fatalf("kill %s: %v", s.kind.name, err)
	}
}

// Pause stops the server and all its children where they are, as SIGSTOP does; connections stay open and silent, and the
// kernel still accepts new ones. It returns when all are stopped.
func (s *Server) Pause() {
	s.t.Helper()
	s.mustRun("pause")
	if err := pauseTree(s.cmd.Process.Pid); err != nil {
		s.t.Fatalf("pause %s: %v", s.kind.name, err)
	}
	s.stopped = true
}

// Resume lets a paused server go on.
func (s *Server) Resume() {
	s.t.Helper()
	s.mustRun("resume")
	if err := resumeTree(s.cmd.Process.Pid); err != nil {
		s.t.Fatalf("resume %s: %v", s.kind.name, err)
	}
	s.stopped = false
}

func (s *Server) running() bool {
	if s.exited == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

func (s *Server) mustRun(verb string) {
	s.t.Helper()
	if !s.running() {
		s.t.Fatalf("cannot %s %s on %s: it is not running\n%s", verb, s.kind.name, s.Addr(), s.output.tail())
	}
}

// run starts the process and waits for the line that says that it answers.
func (s *Server) run() error {
	s.output = &output{want: s.kind.ready, found: make(chan struct{}), before: s.output}
	s.cmd = s.kind.command(s.port)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	// Children may outlive the server and hold its output open; do not wait for them.
	s.cmd.WaitDelay = time.Second
	if s.cmd.SysProcAttr == nil {
		s.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	s.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		// Pdeathsig strikes when the thread that started the process ends, so this one must live as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // How it ended stands in its output.
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", s.kind.name, err)
	}
	s.exited, s.stopped = exited, false
	select {
	case <-s.output.found:
		return nil
	case <-exited:
		return fmt.Errorf("%s ended instead of starting\n%s", s.kind.name, s.output.tail())
	case <-time.After(startLimit):
		return errors.Join(fmt.Errorf("%s did not answer within %v\n%s", s.kind.name, startLimit, s.output.tail()), s.kill())
	}
}

// kill is Kill without a test to fail.
func (s *Server) kill() error {
	if err := killTree(s.cmd.Process.Pid); err != nil {
		return err
	}
	select {
	case <-s.exited:
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("still there %v after SIGKILL", stopLimit)
	}
}

func (s *Server) cleanUp() {
	s.t.Helper()
	if s.output != nil && s.t.Failed() {
		s.t.Logf("last lines of %s on %s:\n%s", s.kind.name, s.Addr(), s.output.tail())
	}
	if s.running() {
		if err := s.kill(); err != nil {
			s.t.Logf("kill %s: %v", s.kind.name, err)
		}
	}
}

// output keeps the last lines that a server printed and watches for one of them.
type output struct {
	mu     sync.Mutex
	lines  []string
	rest   string // a line whose end has not come yet
	want   string
	found  chan struct{}
	seen   bool
	before *output // of the run before this one
}

const keptLines = 40

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.Split(o.rest+string(p), "\n")
	o.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		if !o.seen && strings.Contains(line, o.want) {
			o.seen = true
			close(o.found)
		}
		o.lines = append(o.lines, line)
	}
	o.lines = o.lines[max(0, len(o.lines)-keptLines):]
	return len(p), nil
}

func (o *output) tail() string {
	if o == nil {
		return ""
	}
	o.mu.Lock()
	lines := append([]string(nil), o.lines...)
	if o.rest != "" {
		lines = append(lines, o.rest)
	}
	before := o.before
	o.mu.Unlock()
	if missing := keptLines - len(lines); before != nil && missing > 0 {
		if earlier := before.tail(); earlier != "" {
			kept := strings.Split(earlier, "\n")
			lines = append(kept[max(0, len(kept)-missing):], lines...)
		}
	}
	return strings.Join(lines, "\n")
}
