package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

var errThere = errors.New("it is there already")

// create makes records under keys of which none is there yet; meanwhile runs
// between the first reading and the commit.
func create(ctx context.Context, e engine.Engine, meanwhile func(), keys ...state.Key) (calls int, err error) {
	err = e.Transact(ctx, keys, func(s engine.Snapshot) (engine.Plan, error) {
		if calls++; calls == 1 {
			meanwhile()
		}
		plan := engine.Plan{NotAfter: s.Now + minute}
		for i, k := range keys {
			if s.Items[i] != nil {
				return plan, errThere
			}
			plan.Changes = append(plan.Changes, engine.Change{Key: k, Item: item(1)})
		}
		return plan, nil
	})
	return calls, err
}

// TestConflictOfOneCreatedKeyLeavesNothingOfTheOthers: those before and behind it
// in the order in which they are inserted. It is no error in the server's log,
// which would name the key.
func TestConflictOfOneCreatedKeyLeavesNothingOfTheOthers(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{})
	e := open(t, server.DSN(), postgres.Options{})
	calls, err := create(t.Context(), e, func() { must(t, increment(t.Context(), e, key("b"))) }, keysOf("a", "b", "c")...)
	if !errors.Is(err, errThere) || calls != 2 {
		t.Fatalf("%v after %d calls, want 2 and %v", err, calls, errThere)
	}
	for id, want := range map[string]int{"a": 0, "b": 1, "c": 0} {
		if n := count(read(t, e, key(id)).Items[0]); n != want {
			t.Errorf("%s is %d, want %d", id, n, want)
		}
	}
	if log := server.Output(); strings.Contains(log, "ERROR") {
		t.Errorf("the server's log has the conflict:\n%s", log)
	}
}

// TestCreatedKeyWaitsForAnInsertThatIsNotCommitted inserts by hand, without the
// locks that transactions of ours take.
func TestCreatedKeyWaitsForAnInsertThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{})
	e := open(t, server.DSN(), postgres.Options{})
	for _, c := range []struct {
		name, end string
		want      error
	}{
		{"committed", "COMMIT", errThere},
		{"rolled back", "ROLLBACK", nil},
		{"neither", "", engine.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			other, err := pgx.Connect(t.Context(), server.DSN())
			must(t, err)
			defer other.Close(t.Context()) //nolint:errcheck // nothing of it is looked at again.
			_, err = other.Exec(t.Context(), "BEGIN")
			must(t, err)
			// In a scope of its own, so that it waits for nobody else's turn.
			k := state.Key{Scope: "scope " + c.end, Kind: state.KindOperation, ID: "wanted"}
			_, err = other.Exec(t.Context(), "INSERT INTO counterfoil.records VALUES ($1, $2, $3, '\\x00112233445566778899aabbccddeeff', 0, 0, '\\x00000001')",
				[]byte(k.Scope), int16(k.Kind), []byte(k.ID))
			must(t, err)
			ended := make(chan error, 1)
			go func() { _, err := create(t.Context(), e, func() {}, k); ended <- err }()
			if c.end != "" {
				eventually(t, "the transaction waits", func() error {
					if server.Value("SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid = $1::text::xid",
						xidOf(t, other)) != "1" {
						return errors.New("not yet")
					}
					return nil
				})
				_, err = other.Exec(t.Context(), c.end)
				must(t, err)
			}
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func xidOf(t *testing.T, conn *pgx.Conn) (xid string) {
	t.Helper()
	must(t, conn.QueryRow(t.Context(), "SELECT pg_current_xact_id()::xid::text").Scan(&xid))
	return xid
}

// TestAbsentKeyThatIsNotCreatedIsCompared: one that is to be deleted, though it is
// not there.
func TestAbsentKeyThatIsNotCreatedIsCompared(t *testing.T) {
	t.Parallel()
	e := open(t, newStore(t, testserver.PostgresOptions{}).DSN(), postgres.Options{})
	calls := 0
	must(t, e.Transact(t.Context(), keysOf("gone", "made"), func(s engine.Snapshot) (engine.Plan, error) {
		if calls++; calls == 1 {
			must(t, increment(t.Context(), e, key("gone")))
		}
		return engine.Plan{NotAfter: s.Now + minute, Changes: []engine.Change{
			{Key: key("gone")}, {Key: key("made"), Item: item(1 + count(s.Items[0]))},
		}}, nil
	}))
	if n := count(read(t, e, key("made")).Items[0]); n != 2 || calls != 2 {
		t.Errorf("it rests on %d after %d calls, want 1 and 2", n-1, calls)
	}
	if read(t, e, key("gone")).Items[0] != nil {
		t.Error("what appeared meanwhile was not deleted")
	}
}
