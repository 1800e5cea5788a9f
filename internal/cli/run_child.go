package cli

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/counterfoil/counterfoil/operation"
)

// outputAfterEnd is how long what a command left behind may still write to its outputs before the receipt is made.
const outputAfterEnd = 5 * time.Second

// passedOn are the signals that a command gets from whoever signals this program.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT}

// child is a command that runs.
type child struct {
	*runner
	cmd     *exec.Cmd
	out     *output
	errs    *output
	signals chan os.Signal
	done    chan struct{}
}

// start starts the command. An error proves that nothing was started.
func (r *runner) start() (*child, error) {
	path, err := exec.LookPath(r.args[0])
	if err != nil {
		return nil, err
	}
	c := &child{
		runner: r, out: &output{name: "stdout", to: r.Out}, errs: &output{name: "stderr", to: r.Err},
		signals: make(chan os.Signal, 16), done: make(chan struct{}),
	}
	// No context: nothing but itself ends a command that has begun.
	c.cmd = &exec.Cmd{Path: path, Args: r.args, Env: r.Environ, Stdin: r.In, Stdout: c.out, Stderr: c.errs, WaitDelay: outputAfterEnd}
	signal.Notify(c.signals, passedOn...)
	signal.Reset(syscall.SIGXFSZ) // a command would inherit that it is ignored
	err = c.cmd.Start()
	signal.Ignore(syscall.SIGXFSZ)
	if err != nil {
		signal.Stop(c.signals)
		return nil, err
	}
	go c.passOn()
	return c, nil
}

// passOn hands signals to the command until it ends.
func (c *child) passOn() {
	for {
		select {
		case <-c.done:
			return
		case s := <-c.signals:
			if fromTerminal(s) {
				continue // the command has it already
			}
			_ = c.cmd.Process.Signal(s) // it may have just ended
		}
	}
}

// fromTerminal reports whether a signal comes from the keyboard of a terminal, which sends it to the command too.
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// wait waits for the end of the command and makes its receipt.
func (c *child) wait() operation.Receipt {
	err := c.cmd.Wait()
	close(c.done)
	signal.Stop(c.signals)
	if errors.Is(err, exec.ErrWaitDelay) {
		c.note("something that the command started still has its output open; what it writes from now on is not kept")
	}
	if !c.direct() {
		c.errs.cut(max(keepTogether/2, keepTogether-len(c.out.kept)))
		c.out.cut(keepTogether - len(c.errs.kept))
	}
	return receiptOf(exitCodeOf(c.cmd.ProcessState), c.out, c.errs)
}

// exitCodeOf is the exit code as shells have it: 128 and the signal that ended the command.
func exitCodeOf(s *os.ProcessState) int {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return s.ExitCode()
}
