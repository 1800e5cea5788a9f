package redis

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

func lineageOf(t *testing.T, e engine.Engine) engine.Lineage {
	t.Helper()
	var l engine.Lineage
	eventually(t, "the server answers", func() (err error) {
		_, l, err = look(t.Context(), e, key("k"))
		return err
	})
	return l
}

func TestLineageChangesWithARestart(t *testing.T) {
	t.Parallel()
	for _, binary := range []string{"redis-server", "valkey-server"} {
		server := testserver.Redis(t, testserver.RedisOptions{Binary: binary})
		must(t, Create(t.Context(), server.URL(), Options{}))
		e := open(t, server.URL(), Options{})
		first := lineageOf(t, e)
		if first.ID == "" || first.Previous != "" {
			t.Fatalf("a new server has the lineage %+v", first)
		}
		if again := lineageOf(t, e); again != first {
			t.Errorf("the lineage changed by itself from %+v to %+v", first, again)
		}
		for _, end := range []func(){server.Restart, func() { server.Kill(); server.Start() }} {
			end()
			next := lineageOf(t, e)
			if next.ID == "" || next.ID == first.ID || next.Previous == first.ID {
				t.Errorf("after a restart the lineage is %+v, before it was %+v", next, first)
			}
			first = next
		}
	}
}

func TestLineageOfAPromotedReplicaNamesThatOfItsPrimary(t *testing.T) {
	t.Parallel()
	for _, binary := range []string{"redis-server", "valkey-server"} {
		primary := testserver.Redis(t, testserver.RedisOptions{Binary: binary})
		replica := testserver.Replica(t, primary, testserver.RedisOptions{})
		proxy := testserver.Proxy(t, primary.Addr())
		must(t, Create(t.Context(), primary.URL(), Options{}))
		e := open(t, "redis://"+proxy.Addr(), Options{})
		before := lineageOf(t, e)
		replica.AwaitReplication()
		primary.Kill()
		replica.Promote()
		proxy.Retarget(replica.Addr())
		after := lineageOf(t, e)
		if after.ID == before.ID || after.Previous != before.ID {
			t.Errorf("%s: the lineage became %+v from %+v", binary, after, before)
		}
	}
}

// TestChangesAreNotAppliedToAnotherLineage lets the server become another copy
// between the reading and the writing of a transaction: it starts again and is
// shown the new lineage.
func TestChangesAreNotAppliedToAnotherLineage(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	must(t, Create(t.Context(), server.URL(), Options{}))
	e := open(t, server.URL(), Options{})
	var seen []engine.Lineage
	err := e.Transact(t.Context(), []state.Key{key("k")}, func(s engine.Snapshot) (engine.Plan, error) {
		if len(seen) == 0 {
			server.Must("REPLICAOF", "127.0.0.1", "1")
			server.Must("REPLICAOF", "NO", "ONE")
		}
		seen = append(seen, s.Lineage)
		return engine.Plan{Changes: []engine.Change{{Key: key("k"), Item: item(len(seen))}}, NotAfter: s.Now + minute}, nil
	})
	must(t, err)
	if len(seen) != 2 || seen[1].Previous != seen[0].ID || count(get(t, e, key("k"))) != 2 {
		t.Fatalf("the function was shown %+v, and %d was written", seen, count(get(t, e, key("k"))))
	}
}

// replicated asks for the replicated guarantee and is told quickly when there
// is none.
func replicated(replicas int) Options {
	o := Options{}
	o.Replicas, o.ReplyTimeout, o.ReplicaTimeout = replicas, 3*time.Second, time.Second
	return o
}

func TestReplicatedGuaranteeNeedsAServerThatWaitsForFiles(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	err := Create(t.Context(), server.URL(), replicated(1))
	if err == nil || !strings.Contains(err.Error(), "7.2") {
		t.Fatalf("Create: %v, want an error that names the version", err)
	}
}

func TestReplicatedGuaranteeIsNoYesThatAReplicaLacks(t *testing.T) {
	t.Parallel()
	primary := testserver.Redis(t, testserver.RedisOptions{Binary: "valkey-server"})
	replica := testserver.Replica(t, primary, testserver.RedisOptions{})
	must(t, Create(t.Context(), primary.URL(), replicated(1)))
	e, node := open(t, primary.URL(), replicated(1)), open(t, primary.URL(), Options{})
	if level := e.Guarantee().Level; level != engine.Replicated {
		t.Errorf("the guarantee is %s", level)
	}
	must(t, set(t.Context(), e, key("k"), item(1)))
	replica.Pause()
	wantError(t, "a write that the replica does not confirm", set(t.Context(), e, key("k"), item(2)), engine.ErrAmbiguous)
	// Somebody else's change is shown, and nothing positive rests on it.
	must(t, set(t.Context(), node, key("other"), item(3)))
	_, _, err := look(t.Context(), e, key("other"))
	wantError(t, "a look at what the replica lacks", err, engine.ErrUnavailable)
	wantError(t, "a change of nothing", set(t.Context(), e, key("absent"), nil), engine.ErrUnavailable)
	replica.Resume()
	eventually(t, "the replica confirms again", func() error { return set(t.Context(), e, key("k"), item(4)) })
	n, _, err := look(t.Context(), e, key("other"))
	if err != nil || n != 3 {
		t.Errorf("a look: %d, %v", n, err)
	}
}

func TestReplicatedGuaranteeWantsAsManyReplicasAsWereDeclared(t *testing.T) {
	t.Parallel()
	primary := testserver.Redis(t, testserver.RedisOptions{Binary: "valkey-server"})
	replica := testserver.Replica(t, primary, testserver.RedisOptions{})
	must(t, Create(t.Context(), primary.URL(), Options{}))
	two := open(t, primary.URL(), replicated(2))
	wantError(t, "a write with one replica of two", set(t.Context(), two, key("k"), item(1)), engine.ErrUnavailable)
	one := open(t, primary.URL(), replicated(1))
	must(t, set(t.Context(), one, key("k"), item(1)))
	replica.Kill()
	eventually(t, "the primary misses its replica", func() error {
		if primary.Info("connected_slaves") != "0" {
			return errors.New("not yet")
		}
		return nil
	})
	wantError(t, "a write without replicas", set(t.Context(), one, key("k"), item(2)), engine.ErrUnavailable)
	_, _, err := look(t.Context(), one, key("k"))
	wantError(t, "a look without replicas", err, engine.ErrUnavailable)
	if n := count(get(t, one, key("k"))); n != 1 {
		t.Errorf("a refused write left %d", n)
	}
}

// TestReplicatedGuaranteeSurvivesThePrimary cuts the replica off under load,
// kills the primary and promotes the replica with what it has: everything that
// was acknowledged is there.
func TestReplicatedGuaranteeSurvivesThePrimary(t *testing.T) {
	t.Parallel()
	primary := testserver.Redis(t, testserver.RedisOptions{Binary: "valkey-server"})
	link := testserver.Proxy(t, primary.Addr())
	_, port, err := net.SplitHostPort(link.Addr())
	must(t, err)
	replica := testserver.Replica(t, primary, testserver.RedisOptions{Config: []string{"replicaof 127.0.0.1 " + port}})
	must(t, Create(t.Context(), primary.URL(), replicated(1)))
	l := newLoad(t, open(t, primary.URL(), replicated(1)), key("counter"), key("other"))
	l.untilSuccesses(50)
	link.Stall(testserver.Replies)
	l.untilFailures(3)
	primary.Kill()
	link.CutAll() // what the link still holds is lost
	replica.Promote()
	l.end()
	e := open(t, replica.URL(), Options{})
	l.tally.check(t, count(get(t, e, key("counter"))))
	if a, b := count(get(t, e, key("counter"))), count(get(t, e, key("other"))); a != b {
		t.Errorf("half of a transaction was replicated: %d and %d", a, b)
	}
	t.Log(&l.tally)
}
