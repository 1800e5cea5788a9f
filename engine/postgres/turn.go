package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// A transaction that met a conflict waits for its turn: an advisory lock that
// every swap in the scope shares, and that it takes alone before it reads. So it
// meets no further conflict, in any number of processes. It is for speed alone:
// safety stays in the comparison.
//
// The lock is held from reading to COMMIT, while this process decides. Should it
// stand still meanwhile, the server ends its session soon, and everybody else
// goes on.
const (
	turnSQL     = "SELECT pg_advisory_xact_lock($1)"
	turnIdleSQL = "SET LOCAL idle_in_transaction_session_timeout = '2s'"
)

// inTurn is attempt with the scope for itself.
func (e *Engine) inTurn(ctx context.Context, keys []state.Key, fn engine.Func) error {
	if len(keys) == 0 {
		return e.attempt(ctx, keys, fn)
	}
	conn, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	if err := e.begin(ctx, conn, keys[0].Scope); err != nil {
		e.giveUp(ctx, conn)
		return err
	}
	snap, plan, err := e.decide(ctx, conn, keys, fn)
	var sql string
	var args []any
	if err == nil {
		sql, args, err = e.step(snap, plan)
	}
	if err != nil || sql == "" {
		e.giveUp(ctx, conn)
		return err
	}
	return e.send(ctx, conn, nil, sql, args, plan.Changes)
}

// begin begins a transaction that has the scope for itself. Waiting for that is
// bounded by the lock timeout of the session.
func (e *Engine) begin(ctx context.Context, conn *pgxpool.Conn, scope string) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue(turnIdleSQL)
	b.Queue(e.durability())
	b.Queue(turnSQL, turnOf(scope))
	results := conn.SendBatch(ctx, b)
	for range b.Len() {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // the error is told already
			return begun(err)
		}
	}
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

// giveUp ends a transaction that has written nothing.
func (e *Engine) giveUp(ctx context.Context, conn *pgxpool.Conn) {
	ctx, cancel := e.bounded(context.WithoutCancel(ctx))
	defer cancel()
	e.rollback(ctx, conn)
	conn.Release()
}

// turnOf names the lock on having a scope alone.
func turnOf(scope string) int64 { return hashOf(state.Key{Scope: scope, ID: "turn"}) }
