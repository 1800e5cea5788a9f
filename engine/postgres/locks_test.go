package postgres

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

// absence is a transaction that rests on some keys not being there, and creates
// some.
type absence struct {
	scope     string
	of, makes []string
}

// swap is the call of one transaction, in a session of its own.
type swap struct {
	conn    *pgx.Conn
	outcome chan int
}

// begin applies a transaction without ending it.
func (a absence) begin(t *testing.T, server *testserver.PostgresServer) swap {
	t.Helper()
	snap := engine.Snapshot{Lineage: engine.Lineage{ID: server.Value(timelineSQL)}}
	var plan engine.Plan
	plan.NotAfter = 1 << 60
	for _, id := range slices.Concat(a.makes, a.of) {
		snap.Keys = append(snap.Keys, state.Key{Scope: a.scope, Kind: state.KindOperation, ID: id})
	}
	snap.Items = make([]*state.Sealed, len(snap.Keys))
	for i := range a.makes {
		plan.Changes = append(plan.Changes, engine.Change{Key: snap.Keys[i], Item: &state.Sealed{}})
	}
	sql, args, err := new(Engine).swapOf(snap, plan)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	s := swap{conn, make(chan int, 1)}
	go func() {
		n := -1
		if err := conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
			t.Errorf("swap: %v", err)
		}
		s.outcome <- n
	}()
	return s
}

// waits reports whether the call waits for a lock of ours, when it does or is done.
func (s swap) waits(t *testing.T, server *testserver.PostgresServer) bool {
	t.Helper()
	limit, again := time.NewTimer(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer limit.Stop()
	defer again.Stop()
	for {
		select {
		case n := <-s.outcome:
			s.outcome <- n
			return false
		case <-limit.C:
			t.Fatal("it neither waits nor ends")
		case <-again.C:
			if server.Value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND pid = $1", s.conn.PgConn().PID()) == "1" {
				return true
			}
		}
	}
}

// many are more keys than are locked one by one.
func many() (ids []string) {
	for n := range maxLocks + 1 {
		ids = append(ids, fmt.Sprintf("one of many %d", n))
	}
	return ids
}

// TestAbsenceIsHeldUntilTheTransactionEnds applies the second of two transactions
// before the first has ended: what one rests on, the other must not create.
func TestAbsenceIsHeldUntilTheTransactionEnds(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	if err := Create(t.Context(), server.DSN(), Options{}); err != nil {
		t.Fatal(err)
	}
	x, y, z, one := []string{"x"}, []string{"y"}, []string{"z"}, many()[:1]
	for _, c := range []struct {
		name          string
		first, second absence
		waits         bool
		outcome       int // of the second
	}{
		{"the second creates it", absence{of: x, makes: y}, absence{makes: x}, true, 0},
		{"the first creates it", absence{makes: x}, absence{of: x, makes: y}, true, resultConflict},
		{"both create it", absence{makes: x}, absence{makes: x}, true, resultConflict},
		{"both rest on it", absence{of: x, makes: y}, absence{of: x, makes: z}, false, 0},
		{"nothing in common", absence{of: x, makes: y}, absence{makes: z}, false, 0},
		{"named once more by who creates it", absence{makes: x, of: x}, absence{of: x, makes: y}, true, resultConflict},
		{"many created, one of them", absence{makes: many()}, absence{of: one, makes: y}, true, resultConflict},
		{"many created by the second, one of them", absence{of: one, makes: y}, absence{makes: many()}, true, 0},
		{"many absent, one of them created", absence{of: many(), makes: y}, absence{makes: one}, true, 0},
		{"two scopes", absence{makes: many()}, absence{scope: "another ", makes: many()}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.first.scope, c.second.scope = c.name, c.second.scope+c.name
			first := c.first.begin(t, server)
			if n := <-first.outcome; n != 0 {
				t.Fatalf("the first gave %d", n)
			}
			second := c.second.begin(t, server)
			if waits := second.waits(t, server); waits != c.waits {
				t.Errorf("the second waits: %t, want %t", waits, c.waits)
			}
			if _, err := first.conn.Exec(t.Context(), "COMMIT"); err != nil {
				t.Fatal(err)
			}
			if n := <-second.outcome; n != c.outcome {
				t.Errorf("the second gave %d, want %d", n, c.outcome)
			}
		})
	}
}

// TestTurnKeepsOthersOut: every transaction of the scope shares the turn, and who
// has it has it alone.
func TestTurnKeepsOthersOut(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	if err := Create(t.Context(), server.DSN(), Options{}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(turnSQL, turnOf("scope"))
	mine := absence{scope: "scope", makes: []string{"x"}}.begin(t, server)
	if !mine.waits(t, server) {
		t.Error("a transaction of the scope does not wait")
	}
	if (absence{scope: "another", makes: []string{"x"}}).begin(t, server).waits(t, server) {
		t.Error("a transaction of another scope waits")
	}
	exec(turnEndSQL, turnOf("scope"))
	if n := <-mine.outcome; n != 0 {
		t.Errorf("it gave %d", n)
	}
}

// TestOfTwoLocksOnOneKeyTheStrongerCounts: a key may be named twice.
func TestOfTwoLocksOnOneKeyTheStrongerCounts(t *testing.T) {
	t.Parallel()
	const n = maxLocks / 2
	snap := engine.Snapshot{Items: make([]*state.Sealed, 2*n)}
	changes := make([]*engine.Change, 2*n)
	for i := range 2 * n {
		k := state.Key{Scope: "scope", Kind: state.KindOperation, ID: fmt.Sprint(i % n)}
		snap.Keys = append(snap.Keys, k)
		if i%2 == 0 == (i < n) { // the first or the second of a key
			changes[i] = &engine.Change{Key: k, Item: &state.Sealed{}}
		}
	}
	hashes, alone := locksOf(snap, changes)
	if len(hashes) != 1+n || alone[0] {
		t.Fatalf("%d locks on %d keys, the scope's alone: %t", len(hashes), n, alone[0])
	}
	for i := 1; i < len(hashes); i++ {
		if !alone[i] {
			t.Errorf("lock %d is shared", i)
		}
		if i > 1 && hashes[i] <= hashes[i-1] {
			t.Errorf("lock %d is out of order", i)
		}
	}
}
