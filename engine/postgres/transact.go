package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/state"
)

// SQLSTATE codes of a conflict: nothing was written and another try may work.
const (
	codeWent         = "CF001" // of counterfoil.swap
	codeAppeared     = "23505" // unique violation
	codeSerialize    = "40001"
	codeDeadlock     = "40P01"
	codeLockTimeout  = "55P03"
	codeLocksFull    = "53200"
	resultConflict   = 1
	resultLate       = 2
	swapSQL          = "SELECT counterfoil.swap($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,$21,$22,$23,$24,$25)"
	commitNodeSQL    = "SET LOCAL synchronous_commit = local"
	commitAnySQL     = "SET LOCAL synchronous_commit = on"
	commitStandbySQL = "SELECT counterfoil.await_standbys()"
	// touchSQL takes the place of the swap where nothing is changed.
	touchSQL = "SELECT counterfoil.touch($1)"
)

var errConflict = errors.New("conflict")

// Transact is as the contract says. First fn is shown what is expected, which
// saves the reading.
func (e *Engine) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	if err := engine.CheckKeys(keys); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	if len(keys) == 0 {
		return e.alone(ctx, keys, fn)
	}
	if applied, err := e.guessed(ctx, keys, fn); applied || err != nil {
		return err
	}
	leave, err := e.guess.Alone(ctx, keys[0].Scope)
	if err != nil {
		return err
	}
	defer leave()
	return e.alone(ctx, keys, fn)
}

// alone reads before fn decides, and starts again as long as it meets conflicts,
// which are with other processes then.
func (e *Engine) alone(ctx context.Context, keys []state.Key, fn engine.Func) error {
	for attempt := range maxAttempts {
		try := e.attempt
		if attempt >= turnAfter {
			try = e.inTurn
		}
		err := try(ctx, keys, fn)
		if err == nil && attempt >= turnAfter {
			e.guess.Judged(true) // in a turn it will be
		}
		if !errors.Is(err, errConflict) {
			return err
		}
	}
	return engine.ErrConflict
}

// guessed runs fn on what is expected, and applies its changes if everything is
// so. It reports false without an error if it is not, or if a guess is not
// enough.
func (e *Engine) guessed(ctx context.Context, keys []state.Key, fn engine.Func) (bool, error) {
	leave, err := e.guess.Together(ctx, keys[0].Scope)
	if err != nil {
		return false, err
	}
	defer leave()
	snap, plan, ok := e.guess.Foretell(keys, boot(), func(s engine.Snapshot) (engine.Plan, error) {
		if e.options.Clock != nil {
			s.Now = e.options.now()
		}
		return fn(s)
	})
	if !ok {
		return false, nil
	}
	err = e.apply(ctx, snap, plan)
	switch {
	case err == nil:
		e.guess.Judged(true)
		return true, nil
	case errors.Is(err, errConflict):
		e.guess.Judged(false)
		return false, nil
	}
	e.guess.Doubt()
	return false, err
}

// boot is this machine's own clock, by which that of the server is gone on from.
func boot() time.Duration { return clock.System{}.Boot() }

// attempt reads, decides and applies once; errConflict if it has to start again.
func (e *Engine) attempt(ctx context.Context, keys []state.Key, fn engine.Func) error {
	snap, plan, err := e.decide(ctx, e.pool, keys, fn)
	if err != nil {
		return err
	}
	return e.apply(ctx, snap, plan)
}

// decide reads, and calls fn until it asks for no more keys.
func (e *Engine) decide(ctx context.Context, from reader, keys []state.Key, fn engine.Func) (engine.Snapshot, engine.Plan, error) {
	keys = slices.Clone(keys)
	for round := 1; ; round++ {
		snap, err := e.read(ctx, from, keys)
		if err != nil {
			return snap, engine.Plan{}, err
		}
		e.guess.Read(snap, boot())
		plan, err := fn(snap)
		if err != nil || len(plan.More) == 0 {
			return snap, plan, err
		}
		keys = append(slices.Clip(keys), plan.More...)
		if err := errors.Join(engine.CheckKeys(keys), engine.CheckRound(round)); err != nil {
			return snap, plan, err
		}
	}
}

// step is the statement that applies a plan; "" if none is needed.
func (e *Engine) step(snap engine.Snapshot, plan engine.Plan) (sql string, args []any, err error) {
	switch {
	case len(plan.Changes) > 0:
		return e.swapOf(snap, plan)
	case e.options.Replicated:
		return touchSQL, []any{snap.Lineage.ID}, nil
	}
	return "", nil, nil // what was visible had been flushed by then
}

// apply sends BEGIN, the swap and the COMMIT in one go.
func (e *Engine) apply(ctx context.Context, snap engine.Snapshot, plan engine.Plan) error {
	sql, args, err := e.step(snap, plan)
	if err != nil || sql == "" {
		return err
	}
	before := []string{"BEGIN", e.durability()}
	if len(snap.Keys) > 0 {
		if mine := e.turns.take(snap.Keys[0].Scope); mine != nil {
			return e.send(ctx, mine.conn, before, sql, args, plan.Changes, func(err error) { e.keep(mine, err) })
		}
	}
	conn, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	return e.send(ctx, conn, before, sql, args, plan.Changes, func(error) { conn.Release() })
}

// send has a connection commit a step, after some statements without an answer,
// and hands it over to release then, with how it ended.
func (e *Engine) send(ctx context.Context, conn *pgxpool.Conn, before []string, sql string, args []any, changes []engine.Change, release func(error)) error {
	// From here on the caller's context counts no more: a cancelled COMMIT would
	// be reported as done. A caller who leaves does not know how it ends.
	ended := make(chan error, 1)
	go func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.options.CommitTimeout)
		defer cancel()
		err := e.commit(own, conn, before, sql, args)
		release(err)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			e.guess.Written(changes)
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", engine.ErrAmbiguous, ctx.Err())
	}
}

// acquire waits, not for ever, for a connection that is free.
func (e *Engine) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.options.ReadTimeout)
	defer cancel()
	conn, err := e.pool.Acquire(ctx)
	return conn, unavailable(err)
}

// durability is the statement that says how durable a transaction must be.
func (e *Engine) durability() string {
	switch {
	case e.options.Replicated && e.options.UnsafeDurability:
		return commitAnySQL
	case e.options.Replicated:
		return commitStandbySQL
	}
	return commitNodeSQL
}

func (e *Engine) commit(ctx context.Context, conn *pgxpool.Conn, before []string, sql string, args []any) error {
	b := &pgx.Batch{}
	for _, statement := range before {
		b.Queue(statement)
	}
	b.Queue(sql, args...)
	b.Queue("COMMIT")
	heed(conn.Conn().PgConn())
	results := conn.SendBatch(ctx, b)
	outcome, err := answered(results, len(before))
	closed := results.Close()
	switch {
	case err != nil:
		e.rollback(ctx, conn)
		return err
	case closed != nil:
		return fmt.Errorf("%w: %w", engine.ErrAmbiguous, driver(closed))
	case outcome == resultConflict:
		return errConflict
	case outcome == resultLate:
		return engine.ErrLate
	case heard(conn.Conn().PgConn()):
		return fmt.Errorf("%w: the server sent a notice while it committed", engine.ErrAmbiguous)
	}
	return nil
}

// answered takes the answers in the order in which they were asked for. A
// refusal by the server before the COMMIT is certain: nothing was written.
// Anything else that goes wrong is not, as the COMMIT has been sent too.
func answered(results pgx.BatchResults, before int) (int, error) {
	for range before {
		if _, err := results.Exec(); err != nil {
			return 0, refusal(err)
		}
	}
	var outcome int
	if err := results.QueryRow().Scan(&outcome); err != nil {
		return 0, refusal(err)
	}
	tag, err := results.Exec()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", engine.ErrAmbiguous, driver(err))
	}
	if tag.String() != "COMMIT" {
		return 0, fmt.Errorf("%w: the server answered %s to COMMIT", engine.ErrUnavailable, tag.String())
	}
	return outcome, nil
}

// refusal is what an error before the COMMIT's answer means.
func refusal(err error) error {
	var pg *pgconn.PgError
	switch {
	case pgconn.SafeToRetry(err):
		return unavailable(err)
	case !errors.As(err, &pg):
		return fmt.Errorf("%w: %w", engine.ErrAmbiguous, driver(err))
	}
	switch pg.Code {
	case codeWent, codeAppeared, codeSerialize, codeDeadlock:
		return errConflict
	case codeLockTimeout:
		return fmt.Errorf("%w: another transaction held a lock for longer than %s", engine.ErrUnavailable, lockFor)
	case codeLocksFull:
		return fmt.Errorf("%w: PostgreSQL has no room for more locks: raise max_locks_per_transaction", engine.ErrUnavailable)
	}
	return unavailable(err)
}

// driver hides everything of a driver's error but what PostgreSQL itself said.
func driver(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return fmt.Errorf("PostgreSQL says %s (%s)", pg.Message, pg.Code)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	return errors.New("the connection broke")
}

// rollback ends a transaction that failed, so that the connection can be used
// again; one that is broken is closed by the pool.
func (e *Engine) rollback(ctx context.Context, conn *pgxpool.Conn) {
	if pc := conn.Conn().PgConn(); !pc.IsClosed() && pc.TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "ROLLBACK") // a connection that cannot is thrown away
	}
}

// The notices of a connection are kept with it: a commit that is cancelled
// while it waits for a standby succeeds with nothing but a warning.
const noticeKey = "counterfoil.notice"

func noticed(conn *pgconn.PgConn)    { conn.CustomData()[noticeKey] = true }
func heed(conn *pgconn.PgConn)       { delete(conn.CustomData(), noticeKey) }
func heard(conn *pgconn.PgConn) bool { _, ok := conn.CustomData()[noticeKey]; return ok }
