package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/testserver"
)

const killBackends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'counterfoil'"

// TestUnderEveryFaultNoAnswerIsWrong lets callers work through a fault and its
// end: what was acknowledged is there, what was refused is not, and the same
// engine goes on.
func TestUnderEveryFaultNoAnswerIsWrong(t *testing.T) {
	t.Parallel()
	type fault func(*testserver.PostgresServer, *testserver.FaultProxy)
	for _, c := range []struct {
		name string
		fail fault
		heal fault // nil: it heals by itself
	}{
		{"killed", func(s *testserver.PostgresServer, _ *testserver.FaultProxy) { s.Kill() },
			func(s *testserver.PostgresServer, _ *testserver.FaultProxy) { s.Start() }},
		{"restarted", func(s *testserver.PostgresServer, _ *testserver.FaultProxy) { s.Restart() }, nil},
		{"stopped as by a debugger", func(s *testserver.PostgresServer, _ *testserver.FaultProxy) { s.Pause() },
			func(s *testserver.PostgresServer, _ *testserver.FaultProxy) { s.Resume() }},
		{"sessions ended", func(s *testserver.PostgresServer, _ *testserver.FaultProxy) { s.Exec(killBackends) }, nil},
		{"connections cut", func(_ *testserver.PostgresServer, p *testserver.FaultProxy) { p.CutAll() }, nil},
		{"connections refused", func(_ *testserver.PostgresServer, p *testserver.FaultProxy) { p.Refuse(); p.CutAll() },
			func(_ *testserver.PostgresServer, p *testserver.FaultProxy) { p.Accept() }},
		{"replies stalled", func(_ *testserver.PostgresServer, p *testserver.FaultProxy) { p.Stall(testserver.Replies) },
			func(_ *testserver.PostgresServer, p *testserver.FaultProxy) { p.Flow(testserver.Replies) }},
		{"requests stalled", func(_ *testserver.PostgresServer, p *testserver.FaultProxy) { p.Stall(testserver.Requests) },
			func(_ *testserver.PostgresServer, p *testserver.FaultProxy) { p.Flow(testserver.Requests) }},
		{"made read-only", func(s *testserver.PostgresServer, _ *testserver.FaultProxy) {
			s.Exec("ALTER SYSTEM SET default_transaction_read_only = on")
			s.Exec("SELECT pg_reload_conf()")
		}, func(s *testserver.PostgresServer, _ *testserver.FaultProxy) {
			s.Exec("ALTER SYSTEM RESET default_transaction_read_only")
			s.Exec("SELECT pg_reload_conf()")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := newStore(t, testserver.PostgresOptions{})
			proxy := testserver.Proxy(t, server.Addr())
			l := newLoad(t, open(t, through(t, server.DSN(), proxy.Addr()), quick))
			l.until("increments succeed", l.yes.Load, 20)
			for range 2 {
				c.fail(server, proxy)
				if c.heal != nil {
					l.until("increments fail", l.failed, 6)
					c.heal(server, proxy)
				}
				l.until("increments succeed", l.yes.Load, 20)
			}
			e := open(t, server.DSN(), postgres.Options{})
			l.check(func() int { return count(read(t, e, key("counter")).Items[0]) })
		})
	}
}

// TestCallerWhoLeavesDuringACommitDoesNotKnow: the commit itself goes on.
func TestCallerWhoLeavesDuringACommitDoesNotKnow(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{})
	proxy := testserver.Proxy(t, server.Addr())
	e := open(t, through(t, server.DSN(), proxy.Addr()), postgres.Options{})
	must(t, increment(t.Context(), e, key("counter")))
	ctx, leave := context.WithCancel(t.Context())
	held := proxy.Arm(testserver.Fault{In: testserver.Requests, Match: isCommit, Do: testserver.Hold})
	ended := make(chan error, 1)
	go func() { ended <- increment(ctx, e, key("counter")) }()
	<-held.Fired()
	leave()
	wantError(t, "the caller who left", <-ended, engine.ErrAmbiguous)
	held.Release()
	eventually(t, "the commit arrives", func() error {
		if n := count(read(t, e, key("counter")).Items[0]); n != 2 {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestWaitForAConnectionIsBounded: one connection, held by a commit that waits
// for a lock of somebody else.
func TestWaitForAConnectionIsBounded(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{})
	proxy := testserver.Proxy(t, server.Addr())
	e := open(t, through(t, server.DSN(), proxy.Addr()), postgres.Options{Connections: 1, ReadTimeout: 300 * time.Millisecond})
	must(t, increment(t.Context(), e, key("counter")))
	held := proxy.Arm(testserver.Fault{In: testserver.Requests, Match: isCommit, Do: testserver.Hold})
	ended := make(chan error, 1)
	go func() { ended <- increment(t.Context(), e, key("counter")) }()
	<-held.Fired()
	wantError(t, "a write without a connection", increment(t.Context(), e, key("other")), engine.ErrUnavailable)
	_, err := look(t.Context(), e, key("counter"))
	wantError(t, "a look without a connection", err, engine.ErrUnavailable)
	held.Release()
	must(t, <-ended)
	must(t, increment(t.Context(), e, key("other")))
	if n := count(read(t, e, key("other")).Items[0]); n != 1 {
		t.Errorf("the refused increment was applied: %d", n)
	}
}

// TestPromotedStandbyIsAnotherHistory: what was read on a server is never
// applied to the standby that took its place.
func TestPromotedStandbyIsAnotherHistory(t *testing.T) {
	t.Parallel()
	primary := newStore(t, testserver.PostgresOptions{})
	standby := testserver.PostgresStandby(t, primary, testserver.PostgresOptions{})
	proxy := testserver.Proxy(t, primary.Addr())
	e := open(t, through(t, primary.DSN(), proxy.Addr()), quick)
	must(t, increment(t.Context(), e, key("counter")))
	before := read(t, e, key("counter")).Lineage
	primary.Restart()
	eventually(t, "the restarted server answers", func() error { _, err := look(t.Context(), e, key("counter")); return err })
	if after := read(t, e, key("counter")).Lineage; after != before {
		t.Errorf("a restart changed the lineage from %v to %v", before, after)
	}
	primary.AwaitSynchronous("standby")
	calls := 0
	err := e.Transact(t.Context(), keysOf("counter"), func(s engine.Snapshot) (engine.Plan, error) {
		if calls++; calls == 1 {
			primary.Kill()
			standby.Promote()
			proxy.Retarget(standby.Addr())
			proxy.CutAll()
			eventually(t, "the promoted server answers", func() error { _, err := e.Now(t.Context()); return err })
		}
		return engine.Plan{NotAfter: s.Now + minute, Changes: []engine.Change{{Key: key("counter"), Item: item(count(s.Items[0]) + 1)}}}, nil
	})
	must(t, err)
	after := read(t, e, key("counter"))
	if calls < 2 || after.Lineage.ID == before.ID || after.Lineage.Previous != before.ID || count(after.Items[0]) != 2 {
		t.Errorf("%d decisions, lineage %v after %v, counter %d", calls, after.Lineage, before, count(after.Items[0]))
	}
}

// TestNoAnswerIsGivenThatTheStandbyCouldLose stops the standby under load,
// kills the primary and promotes the standby.
func TestNoAnswerIsGivenThatTheStandbyCouldLose(t *testing.T) {
	t.Parallel()
	primary := newStore(t, testserver.PostgresOptions{})
	standby := testserver.PostgresStandby(t, primary, testserver.PostgresOptions{})
	o := quick
	o.Replicated = true
	e := open(t, primary.DSN(), o)
	if g := e.Guarantee(); g.Level != engine.Replicated || len(g.Unsafe) != 0 {
		t.Fatalf("the guarantee is %v", g)
	}
	l := newLoad(t, e)
	l.until("increments succeed", l.yes.Load, 20)
	standby.Pause()
	l.until("increments fail", l.failed, 12)
	primary.Kill()
	standby.Resume()
	standby.Promote()
	l.until("increments fail", l.failed, 6)
	_, err := postgres.Open(t.Context(), standby.DSN(), o)
	wantError(t, "a promoted server without a standby of its own", err, engine.ErrUnsafe)
	after := open(t, standby.DSN(), postgres.Options{})
	l.check(func() int { return count(read(t, after, key("counter")).Items[0]) })
}

// TestCancelledCommitIsUnknownAndWhatItWroteIsNotAnswered: the server reports
// such a commit as done, with a warning, and shows its rows to everybody.
func TestCancelledCommitIsUnknownAndWhatItWroteIsNotAnswered(t *testing.T) {
	t.Parallel()
	primary := newStore(t, testserver.PostgresOptions{})
	standby := testserver.PostgresStandby(t, primary, testserver.PostgresOptions{})
	e := open(t, primary.DSN(), postgres.Options{Replicated: true})
	must(t, increment(t.Context(), e, key("counter")))
	standby.Pause()
	ended := make(chan error, 1)
	go func() { ended <- increment(t.Context(), e, key("counter")) }()
	eventually(t, "the commit waits for the standby and is cancelled", func() error {
		if primary.Value("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "0" {
			return errors.New("not yet")
		}
		return nil
	})
	wantError(t, "the cancelled commit", <-ended, engine.ErrAmbiguous)
	if n := count(read(t, e, key("counter")).Items[0]); n != 2 {
		t.Fatalf("the counter is %d: the cancelled commit shows as 2", n)
	}
	hasty := open(t, primary.DSN(), postgres.Options{Replicated: true, CommitTimeout: 500 * time.Millisecond})
	_, err := look(t.Context(), hasty, key("counter"))
	wantError(t, "a look at what the standby lacks", err, engine.ErrAmbiguous)
	standby.Resume()
	if n, err := look(t.Context(), e, key("counter")); n != 2 || err != nil {
		t.Errorf("with the standby back: %d, %v", n, err)
	}
	// Named standbys that are taken away make no more promises.
	primary.Exec("ALTER SYSTEM SET synchronous_standby_names = ''")
	primary.Exec("SELECT pg_reload_conf()")
	eventually(t, "the missing names are noticed", func() error {
		if err := increment(t.Context(), e, key("other")); !errors.Is(err, engine.ErrUnavailable) {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})
}
