package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil/engine"
)

//go:embed schema_1.sql
var schema1 string

// migrations bring a schema from each version to the next. One that changes what
// a function means gives it a new name too: a program of the version before, which
// may still run, then fails instead of deciding by other rules.
var migrations = []string{schema1}

// createLock serialises concurrent migrations.
const createLock = 0x436f756e74657266

// Create makes the schema in the database that url names. It is safe to call from
// several processes at once: one of them makes it. It fails with
// [engine.ErrStoreExists] if there is one, also of an older version, which
// [Migrate] brings up to date, and with [engine.ErrForeign] if it is of a newer
// one.
func Create(ctx context.Context, url string, o Options) error {
	e, err := connect(ctx, url, o)
	if err != nil {
		return err
	}
	defer e.pool.Close()
	return create(ctx, e.pool, migrations)
}

// Migrate brings a schema of an older version up to date, with all its records,
// and reports whether it did: false where there is no schema, or one of this
// version. It is safe to call from several processes at once: one of them does it,
// in one transaction. A newer schema is an error, [engine.ErrForeign].
func Migrate(ctx context.Context, url string, o Options) (bool, error) {
	e, err := connect(ctx, url, o)
	if err != nil {
		return false, err
	}
	defer e.pool.Close()
	return migrate(ctx, e.pool, migrations)
}

func create(ctx context.Context, pool *pgxpool.Pool, list []string) error {
	_, err := raise(ctx, pool, list, func(version int) error {
		if version > 0 {
			return engine.ErrStoreExists
		}
		return nil
	})
	return err
}

func migrate(ctx context.Context, pool *pgxpool.Pool, list []string) (bool, error) {
	raised, err := raise(ctx, pool, list, func(version int) error {
		if version == 0 {
			return engine.ErrNoStore
		}
		return nil
	})
	if errors.Is(err, engine.ErrNoStore) {
		return false, nil
	}
	return raised, err
}

// raise brings the schema to the last version of a list, if allowed says yes to
// the one that is there, and reports whether it was another one. All of it is one
// transaction, under a lock that others wait for, who then find it done.
func raise(ctx context.Context, pool *pgxpool.Pool, list []string, allowed func(version int) error) (raised bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(createLock)); err != nil {
			return err
		}
		version, err := schemaVersion(ctx, tx)
		if err != nil {
			return err
		}
		if version > len(list) {
			return newer(version, len(list))
		}
		if err := allowed(version); err != nil {
			return err
		}
		if version == len(list) {
			return nil // also for who may not write
		}
		for _, m := range list[version:] {
			if _, err := tx.Exec(ctx, m); err != nil {
				return err
			}
		}
		raised = true
		_, err = tx.Exec(ctx, `INSERT INTO counterfoil.meta (version) VALUES ($1) ON CONFLICT (one) DO UPDATE SET version = excluded.version`, len(list))
		return err
	})
	switch {
	case err == nil:
		return raised, nil
	case errors.Is(err, engine.ErrStoreExists), errors.Is(err, engine.ErrForeign), errors.Is(err, engine.ErrNoStore):
		return false, err
	}
	return false, unavailable(err)
}

// fits says what is wrong with a schema for a program that knows versions up to
// known.
func fits(version, known int) error {
	switch {
	case version == 0:
		return fmt.Errorf("%w in this database: create one with 'counterfoil init --store'", engine.ErrNoStore)
	case version > known:
		return newer(version, known)
	case version < known:
		return fmt.Errorf("%w: its schema is of version %d; bring it to %d with 'counterfoil init --store'", engine.ErrForeign, version, known)
	}
	return nil
}

func newer(version, known int) error {
	return fmt.Errorf("%w: its schema is of version %d, this program knows up to %d; use a newer program", engine.ErrForeign, version, known)
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
