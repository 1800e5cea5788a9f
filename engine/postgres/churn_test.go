package postgres_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

// TestChurnDoesNotGrowTheTable lets rounds of records come and expire, with the
// server's own vacuum alone to clean up after them.
func TestChurnDoesNotGrowTheTable(t *testing.T) {
	t.Parallel()
	rounds, each := 50, 4_000
	if testing.Short() {
		each = 2_000
	}
	server := newStore(t, testserver.PostgresOptions{Config: []string{"autovacuum_naptime = 1s", "max_wal_size = 256MB"}})
	e := open(t, server.DSN(), postgres.Options{})
	size := func() int64 {
		n, err := strconv.ParseInt(server.Value("SELECT pg_total_relation_size('counterfoil.records')"), 10, 64)
		must(t, err)
		return n
	}
	var early int64
	for round := range rounds {
		churn(t, e, round, each)
		if round == rounds/5 {
			early = size()
		}
	}
	if late := size(); late > 3*early {
		t.Errorf("the table has %d bytes after %d records that came and went, and had %d after a fifth of them", late, rounds*each, early)
	}
	if n := server.Value("SELECT count(*) FROM counterfoil.records"); n != "0" {
		t.Errorf("%s records are left", n)
	}
}

// churn creates records that expire at once, finds them by their time and
// deletes them.
func churn(t *testing.T, e engine.Engine, round, n int) {
	t.Helper()
	const group = 2_000
	for begin := 0; begin < n; begin += group {
		keys := make([]state.Key, group)
		for i := range keys {
			keys[i] = key(fmt.Sprintf("%d-%d", round, begin+i))
		}
		must(t, e.Transact(t.Context(), keys, func(s engine.Snapshot) (engine.Plan, error) {
			plan := engine.Plan{NotAfter: s.Now + minute}
			for _, k := range keys {
				it := item(1)
				it.Expiry, it.Data = int64(1+round), make([]byte, 200)
				plan.Changes = append(plan.Changes, engine.Change{Key: k, Item: it})
			}
			return plan, nil
		}))
	}
	for {
		due, _, err := e.Due(t.Context(), scope, engine.ByExpiry, state.KindOperation, int64(1+round), "", group)
		must(t, err)
		if len(due) == 0 {
			return
		}
		keys := make([]state.Key, len(due))
		for i, d := range due {
			keys[i] = d.Key
		}
		must(t, e.Transact(t.Context(), keys, func(s engine.Snapshot) (engine.Plan, error) {
			plan := engine.Plan{NotAfter: s.Now + minute}
			for _, k := range keys {
				plan.Changes = append(plan.Changes, engine.Change{Key: k})
			}
			return plan, nil
		}))
	}
}
