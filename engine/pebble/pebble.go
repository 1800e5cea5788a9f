// Package pebble is the embedded engine: one process, one machine, one
// directory, on the key-value store Pebble.
//
// A transaction holds the lock of its scope while it reads, decides and
// applies, so there are no conflicts; it waits for the disk outside of the
// lock, so the next one is decided meanwhile and one sync serves all that wait.
// A commit is answered only after the sync that it rests on, its own or that of
// the last commit whose changes it saw.
//
// The first write that fails latches the engine: callers under way get
// [engine.ErrBroken], the process ends with code 70, and what the database
// would still show is not looked at, since it may never become durable.
package pebble

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/cockroachdb/pebble/v2"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// Engine is an open store. It is safe for concurrent use.
type Engine struct {
	db     *pebble.DB
	place  *place
	clock  clock.Clock
	latch  *latch
	filter *filter
	seed   maphash.Seed
	lanes  [lanes]lane

	horizons horizons

	filling chan struct{} // closed when the filter knows every key
	stop    chan struct{} // closed by Close: ends the filling
}

// lanes bounds how many scopes are decided at once; scopes that share a lane
// wait for each other.
const lanes = 64

// pipeline is how many transactions of one scope are worth having under way.
// More than one would decide the next group while the last one waits for the
// disk, but then each sync serves fewer callers: measured on two CPUs with 64
// to 1,024 callers, 2 and 3 cost a fifth more CPU per claim and gave no more
// claims. The table in memory is written beside the sync in any case.
const pipeline = 1

var (
	_ engine.Engine       = (*Engine)(nil)
	_ engine.Checkpointer = (*Engine)(nil)
)

func newEngine(db *pebble.DB, p *place, o Options, l *latch) *Engine {
	e := &Engine{
		db: db, place: p, clock: o.Clock, latch: l, filter: newFilter(o.FilterBytes), seed: maphash.MakeSeed(),
		filling: make(chan struct{}), stop: make(chan struct{}),
	}
	for i := range e.lanes {
		e.lanes[i].held = make(chan struct{}, 1)
	}
	return e
}

func (e *Engine) now() int64 { return e.clock.Now().UnixMilli() }

// Now reads the clock that Open was given.
func (e *Engine) Now(ctx context.Context) (int64, error) {
	if err := e.latch.enter(ctx); err != nil {
		return 0, err
	}
	defer e.leave()
	return e.now(), nil
}

// leave ends a call that was answered by the goroutine that made it.
func (e *Engine) leave() {
	e.latch.callers.Done()
	e.latch.workers.Done()
}

// Guarantee says that what was acknowledged survives a crash of the machine.
func (e *Engine) Guarantee() engine.Guarantee {
	return engine.Guarantee{Engine: "pebble", Level: engine.Node, Pipeline: pipeline}
}

// SetHolder writes the address at which this process serves into the lock, so
// that another one that finds the store in use can say where.
func (e *Engine) SetHolder(addr string) error {
	if e.place.dir == nil {
		return nil
	}
	return e.place.dir.setHolder(addr)
}

// Close waits for the calls under way and closes the store. After a failure it
// leaves the database, and the lock, to the end of the process.
func (e *Engine) Close() error {
	if !e.latch.shut() {
		return nil
	}
	close(e.stop)
	<-e.filling
	if err := e.latch.check(); err != nil {
		return err
	}
	closed := make(chan error, 1)
	go func() { closed <- e.db.Close() }()
	select {
	case err := <-closed:
		if err := errors.Join(err, e.place.close()); err != nil {
			return fmt.Errorf("close the store: %w", err)
		}
		return nil
	case <-e.latch.broken:
		return e.latch.failure()
	}
}
