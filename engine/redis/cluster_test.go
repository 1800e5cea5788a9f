package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

// ownerOf finds the master of a scope's slot, and the slot.
func ownerOf(t *testing.T, c *testserver.Cluster, e *Engine, scope string) (master, slot int) {
	t.Helper()
	slot = c.Slot(e.layout.place(scope).names)
	for i := range c.Masters {
		if slot < (i+1)*16384/len(c.Masters) {
			return i, slot
		}
	}
	t.Fatalf("slot %d has no master", slot)
	return 0, 0
}

// TestSlotMovesUnderLoad moves a scope from node to node and back, key by key,
// while callers work in it and in another one.
func TestSlotMovesUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, 3, 0, testserver.RedisOptions{})
	url := "redis://" + strings.Join(cluster.Addrs(), ",")
	must(t, Create(t.Context(), url, Options{}))
	e := open(t, url, Options{})
	for i := range 20 {
		it := item(i)
		it.Expiry = int64(i + 1)
		must(t, set(t.Context(), e, key(fmt.Sprint(i)), it))
	}
	from, slot := ownerOf(t, cluster, e, scope)
	to := (from + 1) % 3
	l := newLoad(t, e, key("counter"), key("other"))
	l.untilSuccesses(20)
	for range 3 {
		cluster.MoveSlot(slot, cluster.Masters[from], cluster.Masters[to])
		from, to = to, from
		l.untilSuccesses(20)
	}
	l.end()
	l.tally.check(t, count(get(t, e, key("counter"))))
	due, _, err := e.Due(t.Context(), scope, engine.ByExpiry, state.KindOperation, minute, "", 100)
	if err != nil || len(due) != 20 {
		t.Errorf("%d of 20 entries are in the index (%v)", len(due), err)
	}
	t.Log(&l.tally)
}

// TestTransactionDuringAMoveIsRefusedOrWhole holds a slot in the middle of its
// move: some of a scope's keys are on one node, the others on another.
func TestTransactionDuringAMoveIsRefusedOrWhole(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, 3, 0, testserver.RedisOptions{})
	url := "redis://" + strings.Join(cluster.Addrs(), ",")
	must(t, Create(t.Context(), url, Options{}))
	e := open(t, url, Options{})
	a, b := key("a"), key("b")
	must(t, increment(t.Context(), e, a, b))
	i, slot := ownerOf(t, cluster, e, scope)
	from, to := cluster.Masters[i], cluster.Masters[(i+1)%3]
	number := fmt.Sprint(slot)
	to.Must("CLUSTER", "SETSLOT", number, "IMPORTING", from.NodeID())
	from.Must("CLUSTER", "SETSLOT", number, "MIGRATING", to.NodeID())
	moved := e.layout.place(scope).record(a)
	from.Must("MIGRATE", "127.0.0.1", fmt.Sprint(to.Port()), moved, "0", "5000")
	wantError(t, "a transaction over both nodes", increment(t.Context(), e, a, b), engine.ErrUnavailable)
	wantError(t, "with a key that is nowhere", increment(t.Context(), e, a, key("new")), engine.ErrUnavailable)
	// What is whole on either node can be read, and the other engine's map of the cluster does not matter.
	for k, want := range map[state.Key]int{a: 1, b: 1} {
		if n := count(get(t, e, k)); n != want {
			t.Errorf("%s is %d, want %d", k.ID, n, want)
		}
	}
	to.Must("CLUSTER", "SETSLOT", number, "STABLE")
	from.Must("CLUSTER", "SETSLOT", number, "STABLE")
	to.Must("CLUSTER", "SETSLOT", number, "IMPORTING", from.NodeID())
	from.Must("CLUSTER", "SETSLOT", number, "MIGRATING", to.NodeID())
	cluster.MoveSlot(slot, from, to)
	eventually(t, "the move is over", func() error { return increment(t.Context(), e, a, b) })
	if n := count(get(t, e, a)); n != 2 {
		t.Errorf("two increments made %d", n)
	}
}

// TestClusterOutlivesAMaster kills the master of a scope under load, with the
// replicated guarantee: its replica takes over with everything that was
// acknowledged, and the engine finds it.
func TestClusterOutlivesAMaster(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, 3, 1, testserver.RedisOptions{Binary: "valkey-server"})
	url := "redis://" + strings.Join(cluster.Addrs(), ",")
	must(t, Create(t.Context(), url, replicated(1)))
	e := open(t, url, replicated(1))
	node := open(t, url, Options{})
	l := newLoad(t, e, key("counter"), key("other"))
	l.untilSuccesses(20)
	before := lineageOf(t, node)
	i, _ := ownerOf(t, cluster, e, scope)
	cluster.Masters[i].Kill()
	// The new master has no replica: nothing is acknowledged by the replicated
	// guarantee, and everything by that of the node.
	eventually(t, "the replica has taken over", func() error { return increment(t.Context(), node, key("after")) })
	eventually(t, "both know it", func() error {
		err := increment(t.Context(), e, key("counter"), key("other"))
		if err == nil || !strings.Contains(err.Error(), "exactly 1 replica") {
			return fmt.Errorf("with the replicated guarantee: %w", errors.Join(errors.New("want a refusal for want of a replica"), err))
		}
		return nil
	})
	l.end()
	l.tally.check(t, count(get(t, node, key("counter"))))
	if after := lineageOf(t, node); after.Previous != before.ID || after.ID == before.ID {
		t.Errorf("the lineage became %+v from %+v", after, before)
	}
	cluster.Masters[i].Start() // it comes back as a replica
	eventually(t, "there is a replica again", func() error { return increment(t.Context(), e, key("counter"), key("other")) })
	t.Log(&l.tally)
}

// TestReplicatedGuaranteeFollowsAMove is the same with the connection of its
// own that the replicated guarantee takes.
func TestReplicatedGuaranteeFollowsAMove(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, 3, 1, testserver.RedisOptions{Binary: "valkey-server"})
	url := "redis://" + strings.Join(cluster.Addrs(), ",")
	must(t, Create(t.Context(), url, replicated(1)))
	e := open(t, url, replicated(1))
	must(t, increment(t.Context(), e, key("k")))
	from, slot := ownerOf(t, cluster, e, scope)
	cluster.MoveSlot(slot, cluster.Masters[from], cluster.Masters[(from+1)%3])
	eventually(t, "the move is known", func() error { return set(t.Context(), e, key("k"), item(7)) })
	if n, _, err := look(t.Context(), e, key("k")); err != nil || n != 7 {
		t.Errorf("the moved record is %d (%v)", n, err)
	}
}
