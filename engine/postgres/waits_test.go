package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

// TestKeyThatIsWaitedForIsComparedAsItIsThen lets a session of somebody else
// change keys and end only when a transaction of ours waits for it: what that had
// read is the state before.
func TestKeyThatIsWaitedForIsComparedAsItIsThen(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{Config: []string{"max_connections = 400"}})
	const (
		change   = "UPDATE counterfoil.records SET version = '\\x00112233445566778899aabbccddeeff' WHERE id = $1 AND scope = $2"
		remove   = "DELETE FROM counterfoil.records WHERE id = $1 AND scope = $2"
		lockOnly = "SELECT 1 FROM counterfoil.records WHERE id = $1 AND scope = $2 FOR UPDATE"
	)
	for _, c := range []struct {
		name, sql string
		ids       string // that the other one changes
		end       string
		calls     int // decisions, the one that counts included
	}{
		{"the first, only read, is changed", change, "a", "COMMIT", 2},
		{"one in the middle, only read, is changed", change, "c", "COMMIT", 2},
		{"the first to be written is changed", change, "b", "COMMIT", 2},
		{"the last to be written is changed", change, "d", "COMMIT", 2},
		{"all are changed", change, "abcd", "COMMIT", 2},
		{"the last two are changed", change, "cd", "COMMIT", 2},
		{"one that is only read is deleted", remove, "c", "COMMIT", 2},
		{"one to be written is deleted", remove, "d", "COMMIT", 2},
		{"the changes are taken back", change, "abcd", "ROLLBACK", 1},
		{"the deletions are taken back", remove, "cd", "ROLLBACK", 1},
		{"they are only locked", lockOnly, "abcd", "COMMIT", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := open(t, server.DSN(), postgres.Options{Connections: 2})
			scope := "scope " + c.name
			keys := make([]state.Key, 4)
			for i := range keys {
				keys[i] = state.Key{Scope: scope, Kind: state.KindOperation, ID: string(rune('a' + i))}
				must(t, increment(t.Context(), e, keys[i]))
			}
			other, err := pgx.Connect(t.Context(), server.DSN())
			must(t, err)
			defer other.Close(t.Context()) //nolint:errcheck // nothing of it is looked at again.
			_, err = other.Exec(t.Context(), "BEGIN")
			must(t, err)
			for _, id := range strings.Split(c.ids, "") {
				_, err = other.Exec(t.Context(), c.sql, []byte(id), []byte(scope))
				must(t, err)
			}
			xid := xidOf(t, other)
			ended := make(chan error, 1)
			calls := 0
			go func() {
				ended <- e.Transact(t.Context(), keys, func(s engine.Snapshot) (engine.Plan, error) {
					calls++
					return engine.Plan{NotAfter: s.Now + minute, Changes: []engine.Change{{Key: keys[1], Item: item(7)}, {Key: keys[3], Item: item(8)}}}, nil
				})
			}()
			eventually(t, "the transaction waits", func() error {
				if server.Value("SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid = $1::text::xid", xid) != "1" {
					return errors.New("not yet")
				}
				return nil
			})
			_, err = other.Exec(t.Context(), c.end)
			must(t, err)
			must(t, <-ended)
			if calls != c.calls {
				t.Errorf("it was decided %d times, want %d", calls, c.calls)
			}
			if n, m := count(read(t, e, keys[1]).Items[0]), count(read(t, e, keys[3]).Items[0]); n != 7 || m != 8 {
				t.Errorf("written are %d and %d", n, m)
			}
		})
	}
}
