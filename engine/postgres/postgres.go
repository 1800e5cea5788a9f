package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"github.com/counterfoil/counterfoil/engine"
)

//go:embed schema_1.sql
var schema1 string

// migrations bring a schema from each version to the next.
var migrations = []string{schema1}

// createLock serialises concurrent migrations.
const createLock = 0x436f756e74657266

// Engine is a handle on the records of one database. It is safe for concurrent
// use.
type Engine struct {
	pool      *pgxpool.Pool
	options   Options
	guarantee engine.Guarantee
	closed    atomic.Bool
	guess     engine.Guess

	mu    sync.Mutex
	turns map[string]*turn
}

var _ engine.Engine = (*Engine)(nil)

// Create makes the schema in the database that url names, or brings an older
// one up to date. It is safe to call from several processes at once. It fails
// with [engine.ErrStoreExists] if the schema is there in this version already.
func Create(ctx context.Context, url string, o Options) error {
	e, err := connect(ctx, url, o)
	if err != nil {
		return err
	}
	defer e.pool.Close()
	err = pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(createLock)); err != nil {
			return err
		}
		version, err := schemaVersion(ctx, tx)
		switch {
		case err != nil:
			return err
		case version == len(migrations):
			return engine.ErrStoreExists
		case version > len(migrations):
			return newer(version)
		}
		for _, m := range migrations[version:] {
			if _, err := tx.Exec(ctx, m); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `INSERT INTO counterfoil.meta (version) VALUES ($1) ON CONFLICT (one) DO UPDATE SET version = excluded.version`, len(migrations))
		return err
	})
	if errors.Is(err, engine.ErrStoreExists) || errors.Is(err, engine.ErrForeign) {
		return err
	}
	return unavailable(err)
}

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
	switch {
	case err != nil:
		return unavailable(err)
	case version == 0:
		return fmt.Errorf("%w in this database: create one with 'counterfoil init --store'", engine.ErrNoStore)
	case version > len(migrations):
		return newer(version)
	case version < len(migrations):
		return fmt.Errorf("%w: its schema is of version %d; bring it to %d with 'counterfoil init --store'", engine.ErrForeign, version, len(migrations))
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

func newer(version int) error {
	return fmt.Errorf("%w: its schema is of version %d, this program knows up to %d; use a newer program", engine.ErrForeign, version, len(migrations))
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// schemaVersion gives the version of the schema, 0 if there is none.
func schemaVersion(ctx context.Context, q querier) (int, error) {
	var there bool
	if err := q.QueryRow(ctx, "SELECT to_regclass('counterfoil.meta') IS NOT NULL").Scan(&there); err != nil || !there {
		return 0, err
	}
	var version int
	err := q.QueryRow(ctx, "SELECT version FROM counterfoil.meta").Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return version, err
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
	return &Engine{pool: pool, options: o, turns: map[string]*turn{}}, nil
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
