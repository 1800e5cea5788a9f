package postgres_test

import (
	"bytes"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

// conflicting increments the counter under k through a, while b changes it under
// a's first attempts, and gives how often that had to be.
func conflicting(t *testing.T, a, b engine.Engine, k state.Key, times int) (attempts int) {
	t.Helper()
	err := a.Transact(t.Context(), []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
		if attempts++; attempts <= times {
			must(t, increment(t.Context(), b, k))
		}
		return engine.Plan{Changes: []engine.Change{{Key: k, Item: item(count(s.Items[0]) + 1)}}, NotAfter: s.Now + minute}, nil
	})
	must(t, err)
	return attempts
}

func TestAfterAConflictAProcessTakesItsTurnAndGivesItBack(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{})
	a, b := open(t, server.DSN(), postgres.Options{}), open(t, server.DSN(), postgres.Options{Connections: 1})
	k := key("counter")
	// The next attempt is made in a turn: another change by b would wait for it, and so would this test for ever.
	if n := conflicting(t, a, b, k, 1); n > 3 {
		t.Errorf("%d attempts, though only the first met a conflict", n)
	}
	for range 20 {
		must(t, increment(t.Context(), a, k))
		must(t, increment(t.Context(), b, k))
	}
	if n := count(read(t, b, k).Items[0]); n != 42 {
		t.Errorf("42 increments make %d", n)
	}
}

// TestAProcessThatStandsStillInItsTurnHoldsNobodyUpForLong: what would give the
// turn back does not arrive.
func TestAProcessThatStandsStillInItsTurnHoldsNobodyUpForLong(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{})
	proxy := testserver.Proxy(t, server.Addr())
	a, b := open(t, through(t, server.DSN(), proxy.Addr()), postgres.Options{}), open(t, server.DSN(), postgres.Options{})
	k := key("counter")
	held := proxy.Arm(testserver.Fault{In: testserver.Requests, Do: testserver.Hold, Match: func(p []byte) bool {
		return bytes.Contains(p, []byte("pg_advisory_unlock"))
	}})
	conflicting(t, a, b, k, 1)
	<-held.Fired()
	must(t, increment(t.Context(), b, k))
	held.Release()
	must(t, increment(t.Context(), a, k))
	if n := count(read(t, b, k).Items[0]); n != 4 {
		t.Errorf("4 increments make %d", n)
	}
}
