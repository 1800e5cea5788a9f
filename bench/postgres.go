package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/testserver"
)

// comparePostgres prints claims beside one INSERT a transaction, spends on four hot budgets beside four row updates in one
// transaction, four processes beside one, and a large store beside a small one, all on real servers with their default
// durability.
func (b bench) comparePostgres() (err error) {
	h := &host{dir: b.dir}
	defer h.close()
	defer func() {
		if failed, ok := recover().(hostFailed); ok {
			err = fmt.Errorf("the server: %s", string(failed))
		}
	}()
	server := testserver.Postgres(h, testserver.PostgresOptions{})
	ctx := context.Background()
	if err := preparePostgres(ctx, server); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(server.DSN())
	if err != nil {
		return err
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	fmt.Printf("\n%-28s %8s %14s %14s %8s\n", "on PostgreSQL", "callers", "beside it/s", "ours/s", "ratio")
	for _, row := range []struct {
		name    string
		callers int
		work    string
		beside  func() error
	}{
		{"claims", 64, workClaims, bareInsert(ctx, pool)},
		{"claims", 256, workClaims, bareInsert(ctx, pool)},
		{"spends on 4 hot budgets", 64, workSpends, bareUpdates(ctx, pool)},
	} {
		if err := b.besideServer(server.DSN(), row.name, row.callers, row.work, row.beside); err != nil {
			return err
		}
	}
	if err := b.processesOn(server.DSN()); err != nil {
		return err
	}
	return b.manyBesideFew(ctx, func() (string, error) {
		server := testserver.Postgres(h, testserver.PostgresOptions{})
		return server.DSN(), preparePostgres(ctx, server)
	})
}

func preparePostgres(ctx context.Context, server *testserver.PostgresServer) error {
	server.Exec(`CREATE TABLE claims (id bytea PRIMARY KEY, body bytea); CREATE TABLE budgets (id int PRIMARY KEY, used bigint) WITH (fillfactor = 50);
		INSERT INTO budgets SELECT n, 0 FROM generate_series(0, 3) n`)
	if err := postgres.Create(ctx, server.DSN(), postgres.Options{}); err != nil {
		return err
	}
	e, err := postgres.Open(ctx, server.DSN(), postgres.Options{})
	if err != nil {
		return err
	}
	return prepareStore(ctx, e)
}

func bareInsert(ctx context.Context, pool *pgxpool.Pool) func() error {
	return func() error {
		id := make([]byte, 32)
		if _, err := rand.Read(id); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, "INSERT INTO claims VALUES ($1, $2) ON CONFLICT DO NOTHING", id, make([]byte, 150))
		return err
	}
}

// bareUpdates updates the four rows in one order, as somebody who knows of deadlocks does, in one round trip.
func bareUpdates(ctx context.Context, pool *pgxpool.Pool) func() error {
	var updates strings.Builder
	updates.WriteString("BEGIN;")
	for n := range hotBudgets {
		fmt.Fprintf(&updates, "UPDATE budgets SET used = used + 1 WHERE id = %d AND used < 1000000000;", n)
	}
	updates.WriteString("COMMIT")
	return func() error {
		_, err := pool.Exec(ctx, updates.String())
		return err
	}
}
