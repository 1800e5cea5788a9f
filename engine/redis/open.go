package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/counterfoil/counterfoil/engine"
)

// formatMark says what keeps the data and how it is laid out. A reader of
// another version must not touch it.
const formatMark = "counterfoil store, redis, version 1"

// Engine is a connection to the servers that keep a store. It is safe for
// concurrent use, and so are any number of them in any number of processes.
type Engine struct {
	servers   *servers
	layout    layout
	options   Options
	guarantee engine.Guarantee
	guess     *engine.Guess
	turns     turns

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup
	trusted map[string]bool // lineages whose servers' settings were checked
}

var _ engine.Engine = (*Engine)(nil)

// Create makes an empty store on the servers that url names, beside whatever
// else is there: all its keys begin with "cf". It is [engine.ErrStoreExists]
// if a store is there.
func Create(ctx context.Context, url string, o Options) error {
	e, err := dial(ctx, url, o)
	if err != nil {
		return err
	}
	defer e.servers.close()
	created, err := e.servers.do(ctx, func(b rueidis.Builder) rueidis.Completed {
		return b.Hsetnx().Key(e.layout.format()).Field(format).Value(formatMark).Build()
	})
	if err != nil {
		return writeError(err)
	}
	if n, err := created.AsInt64(); err != nil || n == 0 {
		if err := e.checkFormat(ctx); err != nil {
			return err
		}
		return engine.ErrStoreExists
	}
	return nil
}

// Open opens the store on the servers that url names:
// redis://[user[:password]@]host[:port][,host…][/database], or rediss:// for
// TLS; several hosts are nodes of one cluster. It never creates one:
// [engine.ErrNoStore] and [engine.ErrForeign] say what is there instead. It
// refuses servers whose settings are unsafe with [engine.ErrUnsafe].
func Open(ctx context.Context, url string, o Options) (*Engine, error) {
	e, err := dial(ctx, url, o)
	if err != nil {
		return nil, err
	}
	if err := e.checkFormat(ctx); err != nil {
		e.servers.close()
		return nil, err
	}
	return e, nil
}

// dial connects and checks the settings.
func dial(ctx context.Context, url string, o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	s, err := connect(ctx, t, o)
	if err != nil {
		return nil, err
	}
	e := &Engine{servers: s, layout: layout(keysBegin + o.space), options: o, guess: engine.NewGuess(), trusted: map[string]bool{}, turns: turns{held: map[string]*turn{}}}
	if e.turns.who, err = newName(); err != nil {
		s.close()
		return nil, err
	}
	found, err := s.settings(ctx)
	var weak []string
	if err == nil {
		weak, err = s.accept(found)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	// One is under way at the server while the next is decided. Replicas are waited for on connections of their own,
	// where one would overtake the other.
	level, pipeline := engine.Node, 2
	if o.Replicas > 0 {
		level, pipeline = engine.Replicated, 1
	}
	e.guarantee = engine.Guarantee{Engine: "redis", Level: level, Unsafe: weak, Shared: true, Pipeline: pipeline}
	return e, nil
}

// checkFormat reports why there is no store of this version.
func (e *Engine) checkFormat(ctx context.Context) error {
	answer, err := e.servers.do(ctx, func(b rueidis.Builder) rueidis.Completed {
		return b.Hget().Key(e.layout.format()).Field(format).Build()
	})
	switch {
	case rueidis.IsRedisNil(err):
		return fmt.Errorf("%w: create one with 'counterfoil init'", engine.ErrNoStore)
	case err != nil:
		return unavailable(err)
	}
	mark, err := answer.ToString()
	switch {
	case err != nil:
		return unavailable(err)
	case mark != formatMark:
		return fmt.Errorf("%w: it says %q, this version knows %q", engine.ErrForeign, mark, formatMark)
	}
	return nil
}

// Guarantee says what a durable answer survives.
func (e *Engine) Guarantee() engine.Guarantee { return e.guarantee }

// begin reports whether the engine can be used, and counts the call as one
// under way until end is called.
func (e *Engine) begin(ctx context.Context) (end func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, engine.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, unavailable(err)
	}
	e.calls.Add(1)
	return e.calls.Done, nil
}

func (e *Engine) usable(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, engine.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	return nil
}

// Close waits for the calls under way, which are bounded, and ends all
// connections.
func (e *Engine) Close() error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	e.mu.Unlock()
	if !first {
		return nil
	}
	idle := make(chan struct{})
	go func() {
		e.calls.Wait()
		close(idle)
	}()
	limit := time.NewTimer(2 * e.options.ReplyTimeout)
	defer limit.Stop()
	var err error
	select {
	case <-idle:
	case <-limit.C:
		err = errors.New("redis: calls were still under way when the engine was closed")
	}
	e.servers.close()
	return err
}
