package pebble

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil/engine"
)

// exitCode is what the process ends with after a failed write.
const exitCode = 70

// answerWithin bounds how long the exit waits until every caller under way has
// been told that the engine is broken.
const answerWithin = time.Second

// latch counts the calls under way and ends them all: by Close, or for good
// after the first failure. Once broken, what the database shows may never
// become durable, so it is not looked at again.
type latch struct {
	log  *slog.Logger
	exit func(code int)

	broken chan struct{} // closed after the first failure

	mu      sync.RWMutex
	closed  bool
	armed   bool  // the engine is open: a failure ends the process
	cause   error // of the first failure
	callers sync.WaitGroup
	workers sync.WaitGroup // goroutines inside the database; a failure may leave them there
}

func newLatch(log *slog.Logger, exit func(int)) *latch {
	return &latch{log: log, exit: exit, broken: make(chan struct{})}
}

// arm makes failures end the process. Before it, opening reports them itself.
func (l *latch) arm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = true
}

// enter begins a call, or says why there can be none. It ends with Done on both
// callers, when the caller is answered, and workers, when the database is left.
func (l *latch) enter(ctx context.Context) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.cause != nil:
		return brokenBy(l.cause)
	case l.closed:
		return engine.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	l.callers.Add(1)
	l.workers.Add(1)
	return nil
}

// check gives the failure, if there was one.
func (l *latch) check() error {
	select {
	case <-l.broken:
		return l.failure()
	default:
		return nil
	}
}

func (l *latch) failure() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return brokenBy(l.cause)
}

func brokenBy(cause error) error { return fmt.Errorf("%w: %w", engine.ErrBroken, cause) }

// fail latches with the first failure; later ones are logged alone. It ends the
// process once all callers are answered, without waiting for that itself.
func (l *latch) fail(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	l.cause = cause
	close(l.broken)
	if !l.armed {
		return
	}
	l.log.Error("the store is latched closed after a failure: commits under way are unknown, everything is refused until it is reopened", "error", cause)
	go func() {
		answered := make(chan struct{})
		go func() { l.callers.Wait(); close(answered) }()
		select {
		case <-answered:
		case <-time.After(answerWithin):
		}
		l.exit(exitCode)
	}()
}

// failForEver latches and never returns, so that the database cannot go on as
// if nothing had happened and report what failed as done.
func (l *latch) failForEver(cause error) {
	l.fail(cause)
	select {}
}

// shut ends the engine for new calls and waits until those under way have left
// the database, or may never leave it since something failed. It reports false
// if the engine was shut before.
func (l *latch) shut() bool {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	out := make(chan struct{})
	go func() { l.workers.Wait(); close(out) }()
	select {
	case <-out:
	case <-l.broken:
	}
	return first
}

// failedWrite takes the error of a write. Before the engine is armed, opening
// it reports the error; afterwards it never returns.
func (l *latch) failedWrite(cause error) {
	l.mu.RLock()
	armed := l.armed
	l.mu.RUnlock()
	if armed {
		l.failForEver(cause)
	}
}
