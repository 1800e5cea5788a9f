package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// Of several processes that work on the same records most would meet a conflict
// with every step. So who has met one takes a turn: an advisory lock that every
// swap in the scope shares, and that it takes alone before it reads and keeps for
// a short while. In that time it decides one step after another on what it knows,
// and the others wait, first come first served. It is for speed alone: safety
// stays in the comparison.
//
// The lock belongs to the session. Should its process stand still, the server
// ends the session soon, and everybody else goes on.
const (
	turnFor      = 40 * time.Millisecond
	turnIdle     = 3 * time.Millisecond // without a step, after which it is given back
	turnSQL      = "SELECT pg_advisory_lock($1)"
	turnEndSQL   = "SELECT pg_advisory_unlock($1)"
	turnIdleSQL  = "SET idle_session_timeout = '2s'"
	turnInTxSQL  = "SET LOCAL idle_in_transaction_session_timeout = '2s'"
	turnResetSQL = "RESET idle_session_timeout"
)

// turn is a scope that this process has for itself.
type turn struct {
	scope string
	conn  *pgxpool.Conn // whose session has the lock
	ends  time.Duration // by the boot clock
	idle  *time.Timer
}

// turns are those that wait for their next step.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn // by scope
}

// take gives the turn that this process has in a scope to the caller, who must
// put it back or end it; nil if there is none.
func (t *turns) take(scope string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.held[scope]
	if mine == nil {
		return nil
	}
	delete(t.held, scope)
	mine.idle.Stop()
	return mine
}

// put keeps a turn for the next step. It reports false if there is another one
// for its scope.
func (t *turns) put(mine *turn, idle func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[mine.scope] != nil {
		return false
	}
	if t.held == nil {
		t.held = map[string]*turn{}
	}
	mine.idle = time.AfterFunc(turnIdle, idle)
	t.held[mine.scope] = mine
	return true
}

// inTurn is attempt with the scope for itself.
func (e *Engine) inTurn(ctx context.Context, keys []state.Key, fn engine.Func) error {
	if len(keys) == 0 {
		return e.attempt(ctx, keys, fn)
	}
	conn, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	mine := &turn{scope: keys[0].Scope, conn: conn}
	if err := e.begin(ctx, mine); err != nil {
		e.abandon(mine)
		return err
	}
	snap, plan, err := e.decide(ctx, conn, keys, fn)
	var sql string
	var args []any
	if err == nil {
		sql, args, err = e.step(snap, plan)
	}
	if err != nil || sql == "" {
		e.abandon(mine)
		return err
	}
	return e.send(ctx, conn, nil, sql, args, plan.Changes, func(err error) { e.keep(mine, err) })
}

// begin waits for a turn, which is bounded by the lock timeout of the session,
// and begins a transaction in it.
func (e *Engine) begin(ctx context.Context, mine *turn) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(turnIdleSQL)
	b.Queue("BEGIN")
	b.Queue(turnInTxSQL)
	b.Queue(e.durability())
	b.Queue(turnSQL, turnOf(mine.scope))
	results := mine.conn.SendBatch(ctx, b)
	for range b.Len() {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // the error is told already
			return begun(err)
		}
	}
	mine.ends = boot() + turnFor
	return begun(results.Close())
}

// begun is what an error before anything was written means.
func begun(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return refusal(err)
	}
	return unavailable(err)
}

// keep has a turn go on after a step that ended so, or ends it.
func (e *Engine) keep(mine *turn, err error) {
	switch {
	case err != nil && !errors.Is(err, errConflict) && !errors.Is(err, engine.ErrLate):
		e.abandon(mine)
	case err != nil, boot() >= mine.ends, !e.turns.put(mine, func() { e.endTurn(e.turns.take(mine.scope)) }):
		go e.endTurn(mine) // the caller need not wait for it
	}
}

// endTurn gives a turn back between two transactions. nil is none.
func (e *Engine) endTurn(mine *turn) {
	if mine == nil {
		return
	}
	ctx, cancel := e.bounded(context.Background())
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(turnEndSQL, turnOf(mine.scope))
	b.Queue(turnResetSQL)
	if err := mine.conn.SendBatch(ctx, b).Close(); err != nil {
		e.abandon(mine)
		return
	}
	mine.conn.Release()
}

// abandon ends a turn with its session, wherever that stands: nothing else is
// sure to give the lock back.
func (e *Engine) abandon(mine *turn) {
	ctx, cancel := e.bounded(context.Background())
	defer cancel()
	_ = mine.conn.Conn().Close(ctx) // the pool makes another
	mine.conn.Release()
}

// turnOf names the lock on having a scope alone.
func turnOf(scope string) int64 { return hashOf(state.Key{Scope: scope, ID: "turn"}) }
