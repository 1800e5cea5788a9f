package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"github.com/counterfoil/counterfoil/engine"
)

// Engine is a handle on the records of one database. It is safe for concurrent
// use.
type Engine struct {
	pool      *pgxpool.Pool
	options   Options
	guarantee engine.Guarantee
	closed    atomic.Bool
	guess     *engine.Guess
	turns     turns
}

var _ engine.Engine = (*Engine)(nil)

// Open opens the records in the database that url names. It never creates
// anything. It refuses a database without the schema ([engine.ErrNoStore]), a
// newer schema ([engine.ErrForeign]), a standby, and settings that are weaker
// than the guarantee.
func Open(ctx context.Context, url string, o Options) (*Engine, error) {
	e, err := connect(ctx, url, o)
	if err != nil {
		return nil, err
	}
	if err := e.open(ctx); err != nil {
		e.pool.Close()
		return nil, err
	}
	return e, nil
}

func (e *Engine) open(ctx context.Context) error {
	version, err := schemaVersion(ctx, e.pool)
	if err != nil {
		return unavailable(err)
	}
	if err := fits(version, len(migrations)); err != nil {
		return err
	}
	found, err := e.Settings(ctx)
	if err != nil {
		return err
	}
	e.guarantee = engine.Guarantee{Engine: "postgres", Level: engine.Node, Shared: true, Pipeline: 1}
	if e.options.Replicated {
		e.guarantee.Level = engine.Replicated
	}
	e.guarantee.Unsafe, err = engine.Accept(found, e.options.UnsafeDurability)
	return err
}

// errReadOnly: the server is a standby, or was made to refuse writes.
var errReadOnly = errors.New("the server takes no writes: name the primary, and see default_transaction_read_only")

func takesWrites(ctx context.Context, conn *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn); err != nil {
		return fmt.Errorf("%w (%w)", errReadOnly, err)
	}
	return nil
}

// sessionSettings are those of each connection. A client that is gone with half
// of a transaction sent would hold its locks: the server finds out within 30 s.
// Every statement is planned once, and by the indexes: what the planner believes
// about a young table would else be its plan for a full one.
var sessionSettings = map[string]string{
	"application_name":                    "counterfoil",
	"lock_timeout":                        lockFor,
	"statement_timeout":                   "0",
	"idle_in_transaction_session_timeout": "30s",
	"tcp_keepalives_idle":                 "10",
	"tcp_keepalives_interval":             "5",
	"tcp_keepalives_count":                "4",
	"default_transaction_isolation":       "read committed",
	"plan_cache_mode":                     "force_generic_plan",
	"enable_seqscan":                      "off",
	"enable_hashjoin":                     "off",
	"enable_mergejoin":                    "off",
	"jit":                                 "off",
}

// connect makes a pool whose connections all go to a server that takes writes
// and whose settings are accepted: after a failover it may be another one.
func connect(ctx context.Context, url string, o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The parser's error may repeat the URL with its password.
		return nil, fmt.Errorf("%w: the database URL cannot be read; want postgres://user@host:port/database", engine.ErrUnavailable)
	}
	c.MaxConns = int32(o.Connections) //nolint:gosec // a small number.
	c.ConnConfig.ConnectTimeout = dialFor
	c.ConnConfig.ValidateConnect = takesWrites
	maps.Copy(c.ConnConfig.RuntimeParams, sessionSettings)
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		found, err := settingsOf(ctx, conn, o)
		if err == nil {
			_, err = engine.Accept(found, o.UnsafeDurability)
		}
		return err
	}
	c.ConnConfig.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) { noticed(conn) }
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, unavailable(err)
	}
	if err := ping(ctx, pool, o); err != nil {
		pool.Close()
		return nil, err
	}
	return &Engine{pool: pool, options: o, guess: engine.NewGuess()}, nil
}

func ping(ctx context.Context, pool *pgxpool.Pool, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, o.ReadTimeout)
	defer cancel()
	err := pool.Ping(ctx)
	if errors.Is(err, engine.ErrUnsafe) {
		return err
	}
	return unavailable(err)
}

// unavailable wraps a driver's error, without what might be secret in it.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, puddle.ErrClosedPool) {
		return engine.ErrClosed
	}
	if errors.Is(err, errReadOnly) {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, errReadOnly)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return fmt.Errorf("%w: PostgreSQL says %s (%s)", engine.ErrUnavailable, pg.Message, pg.Code)
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return fmt.Errorf("%w: the database cannot be reached", engine.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
}

// Guarantee says what an answer survives.
func (e *Engine) Guarantee() engine.Guarantee { return e.guarantee }

// Close waits for the calls under way and closes all connections.
func (e *Engine) Close() error {
	e.closed.Store(true)
	e.pool.Close()
	return nil
}
