package postgres

import (
	"context"
	"fmt"

	"github.com/counterfoil/counterfoil/engine"
)

// turn is a queue of this process's transactions of one scope that met too many
// conflicts. It is for speed alone: safety stays in the comparison.
type turn struct {
	place   chan struct{} // full while somebody has the turn
	waiting int
}

func (e *Engine) takeTurn(ctx context.Context, scope string) (leave func(), err error) {
	e.mu.Lock()
	t := e.turns[scope]
	if t == nil {
		t = &turn{place: make(chan struct{}, 1)}
		e.turns[scope] = t
	}
	t.waiting++
	e.mu.Unlock()
	gone := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if t.waiting--; t.waiting == 0 {
			delete(e.turns, scope)
		}
	}
	select {
	case t.place <- struct{}{}:
		return func() { <-t.place; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, ctx.Err())
	}
}
