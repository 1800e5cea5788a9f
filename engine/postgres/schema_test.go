package postgres

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/testserver"
)

// later are versions that this program does not have: each leaves a row that shows
// how often it was applied.
var later = append(slices.Clip(migrations),
	"CREATE TABLE counterfoil.applied (version integer); INSERT INTO counterfoil.applied VALUES (2)",
	"ALTER TABLE counterfoil.records ADD COLUMN note text; INSERT INTO counterfoil.applied VALUES (3)",
)

// olderStore is a database with the schema of this program and one record, which
// is old for a program that knows the later ones.
func olderStore(t *testing.T) (*testserver.PostgresServer, *pgxpool.Pool) {
	t.Helper()
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	pool, err := pgxpool.New(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := Create(t.Context(), server.DSN(), Options{}); err != nil {
		t.Fatal(err)
	}
	server.Exec("INSERT INTO counterfoil.records VALUES ('s', 1, 'id', 'version', 0, 0, 'data')")
	return server, pool
}

func TestAnOlderSchemaIsRefusedUntilItIsMigratedAndKeepsItsRecords(t *testing.T) {
	t.Parallel()
	server, pool := olderStore(t)
	version, err := schemaVersion(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := fits(version, len(later)); !errors.Is(err, engine.ErrForeign) || !strings.Contains(err.Error(), "counterfoil init --store") {
		t.Errorf("before: %v; want an error that names the command", err)
	}
	if err := create(t.Context(), pool, later); !errors.Is(err, engine.ErrStoreExists) {
		t.Errorf("creating over it: %v", err)
	}
	if done, err := migrate(t.Context(), pool, later); err != nil || !done {
		t.Fatalf("migrating: %v, %v", done, err)
	}
	if version, err = schemaVersion(t.Context(), pool); err != nil || fits(version, len(later)) != nil {
		t.Errorf("after: version %d, %v", version, err)
	}
	if got := server.Value("SELECT string_agg(version::text, ' ' ORDER BY version) FROM counterfoil.applied"); got != "2 3" {
		t.Errorf("applied were %q", got)
	}
	if got := server.Value("SELECT encode(data, 'escape') FROM counterfoil.records WHERE note IS NULL"); got != "data" {
		t.Errorf("the record is %q", got)
	}
	// For this program it is a newer one now.
	if _, err := Open(t.Context(), server.DSN(), Options{}); !errors.Is(err, engine.ErrForeign) {
		t.Errorf("opening by an older program: %v", err)
	}
	if _, err := Migrate(t.Context(), server.DSN(), Options{}); !errors.Is(err, engine.ErrForeign) {
		t.Errorf("migrating by an older program: %v", err)
	}
}

func TestOfManyThatMigrateAtOnceOneDoesIt(t *testing.T) {
	t.Parallel()
	server, pool := olderStore(t)
	const starts = 8
	type result struct {
		done bool
		err  error
	}
	results := make(chan result)
	for range starts {
		go func() {
			done, err := migrate(t.Context(), pool, later)
			results <- result{done, err}
		}()
	}
	did := 0
	for range starts {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		if r.done {
			did++
		}
	}
	if applied := server.Value("SELECT count(*) FROM counterfoil.applied"); did != 1 || applied != "2" {
		t.Errorf("%d say that they did it, and %s steps were applied; want 1 and 2", did, applied)
	}
}

func TestAMigrationThatFailsLeavesTheOlderSchemaAsItWas(t *testing.T) {
	t.Parallel()
	server, pool := olderStore(t)
	broken := append(slices.Clip(later), "SELECT 1/0")
	if done, err := migrate(t.Context(), pool, broken); !errors.Is(err, engine.ErrUnavailable) || done {
		t.Errorf("it says %v, %v", done, err)
	}
	if got := server.Value("SELECT to_regclass('counterfoil.applied')"); got != "" {
		t.Errorf("half of it was applied: %s", got)
	}
	e, err := Open(t.Context(), server.DSN(), Options{})
	if err != nil {
		t.Fatalf("the older program no longer opens it: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestNothingIsMigratedWhereNothingIsOrNothingIsOlder(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	for _, state := range []string{"no schema", "the newest"} {
		if done, err := Migrate(t.Context(), server.DSN(), Options{}); err != nil || done {
			t.Errorf("%s: %v, %v", state, done, err)
		}
		if err := Create(t.Context(), server.DSN(), Options{}); state == "no schema" && err != nil {
			t.Fatal(err)
		}
	}
}
