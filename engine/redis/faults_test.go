package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

// quick makes a lost reply cost a test little time.
var quick = Options{DialTimeout: 500 * time.Millisecond, ReplyTimeout: 500 * time.Millisecond}

// load is a number of callers who raise one counter, and look at it, until they
// are stopped.
type load struct {
	t     *testing.T
	tally tally
	stop  context.CancelFunc
	work  sync.WaitGroup
}

func newLoad(t *testing.T, e engine.Engine, keys ...state.Key) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{t: t, stop: stop}
	for range 8 {
		l.work.Go(func() {
			for ctx.Err() == nil {
				// A caller's patience, so that none waits for the end of the fault.
				call, cancel := context.WithTimeout(t.Context(), 2*quick.ReplyTimeout)
				l.tally.add(t, increment(call, e, keys...))
				_, _, err := look(call, e, keys[0])
				if err != nil && !errors.Is(err, engine.ErrUnavailable) {
					t.Errorf("look: %v", err)
				}
				cancel()
			}
		})
	}
	return l
}

// untilFailures returns when some more increments have failed.
func (l *load) untilFailures(n int64) {
	l.t.Helper()
	failed := func() int64 { return l.tally.no.Load() + l.tally.unknown.Load() }
	begin := failed()
	eventually(l.t, "increments fail", func() error {
		if failed() < begin+n {
			return fmt.Errorf("%v", &l.tally)
		}
		return nil
	})
}

// untilSuccesses returns when some more increments have succeeded.
func (l *load) untilSuccesses(n int64) {
	l.t.Helper()
	begin := l.tally.yes.Load()
	eventually(l.t, "increments succeed", func() error {
		if l.tally.yes.Load() < begin+n {
			return fmt.Errorf("%v", &l.tally)
		}
		return nil
	})
}

// end stops the callers.
func (l *load) end() {
	l.stop()
	l.work.Wait()
}

// TestUnderEveryFaultNoAnswerIsWrong lets callers work through a fault and its
// end: what was acknowledged is there, what was refused is not, and the same
// engine goes on.
func TestUnderEveryFaultNoAnswerIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fail  func(*testserver.RedisServer, *testserver.FaultProxy)
		fails bool // calls fail until heal
		heal  func(*testserver.RedisServer, *testserver.FaultProxy)
	}{
		{"killed", func(s *testserver.RedisServer, _ *testserver.FaultProxy) { s.Kill() }, true,
			func(s *testserver.RedisServer, _ *testserver.FaultProxy) { s.Start() }},
		{"restarted", func(s *testserver.RedisServer, _ *testserver.FaultProxy) { s.Restart() }, false, nil},
		{"stopped like by a debugger", func(s *testserver.RedisServer, _ *testserver.FaultProxy) { s.Pause() }, true,
			func(s *testserver.RedisServer, _ *testserver.FaultProxy) { s.Resume() }},
		{"connections cut", func(_ *testserver.RedisServer, p *testserver.FaultProxy) { p.CutAll() }, false, nil},
		{"connections refused", func(_ *testserver.RedisServer, p *testserver.FaultProxy) { p.Refuse(); p.CutAll() }, true,
			func(_ *testserver.RedisServer, p *testserver.FaultProxy) { p.Accept() }},
		{"replies stalled", func(_ *testserver.RedisServer, p *testserver.FaultProxy) { p.Stall(testserver.Replies) }, true,
			func(_ *testserver.RedisServer, p *testserver.FaultProxy) { p.Flow(testserver.Replies) }},
		{"requests stalled", func(_ *testserver.RedisServer, p *testserver.FaultProxy) { p.Stall(testserver.Requests) }, true,
			func(_ *testserver.RedisServer, p *testserver.FaultProxy) { p.Flow(testserver.Requests) }},
		{"scripts forgotten", func(s *testserver.RedisServer, _ *testserver.FaultProxy) { s.Must("SCRIPT", "FLUSH") }, false, nil},
		{"out of memory", func(s *testserver.RedisServer, _ *testserver.FaultProxy) { s.Must("CONFIG", "SET", "maxmemory", "1") }, true,
			func(s *testserver.RedisServer, _ *testserver.FaultProxy) { s.Must("CONFIG", "SET", "maxmemory", "0") }},
		{"made a replica", func(s *testserver.RedisServer, _ *testserver.FaultProxy) { s.Must("REPLICAOF", "127.0.0.1", "1") }, true,
			func(s *testserver.RedisServer, _ *testserver.FaultProxy) { s.Must("REPLICAOF", "NO", "ONE") }},
		{"without the replicas it demands", func(s *testserver.RedisServer, _ *testserver.FaultProxy) {
			s.Must("CONFIG", "SET", "min-replicas-to-write", "1")
		}, true,
			func(s *testserver.RedisServer, _ *testserver.FaultProxy) {
				s.Must("CONFIG", "SET", "min-replicas-to-write", "0")
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t, testserver.RedisOptions{})
			proxy := testserver.Proxy(t, server.Addr())
			must(t, Create(t.Context(), server.URL(), Options{}))
			l := newLoad(t, open(t, "redis://"+proxy.Addr(), quick), key("counter"))
			l.untilSuccesses(20)
			for range 2 {
				c.fail(server, proxy)
				if c.fails {
					l.untilFailures(10)
					c.heal(server, proxy)
				}
				l.untilSuccesses(20)
			}
			l.end()
			l.tally.check(t, count(get(t, open(t, server.URL(), Options{}), key("counter"))))
			t.Log(&l.tally)
		})
	}
}

func TestServerThatIsLoadingIsUnavailableUntilItHasLoaded(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{Config: []string{"key-load-delay 2000", "loading-process-events-interval-bytes 1024"}})
	must(t, Create(t.Context(), server.URL(), Options{}))
	e := open(t, server.URL(), Options{})
	for i := range 300 {
		must(t, set(t.Context(), e, key(fmt.Sprint(i)), item(i)))
	}
	server.Must("BGREWRITEAOF") // loading is slowed down for what is in the base file
	eventually(t, "the file is rewritten", func() error {
		if server.Info("aof_rewrite_in_progress") != "0" || server.Info("aof_base_size") == "0" {
			return errors.New("not yet")
		}
		return nil
	})
	server.Kill()
	up := make(chan error, 1)
	go func() { up <- server.Launch() }()
	eventually(t, "the server answers that it is loading", func() error {
		err := increment(t.Context(), e, key("counter"))
		if err == nil {
			return nil // it was too quick: the other tests of faults cover that
		}
		if !isReply(err, "LOADING") {
			return err // such as the end of the connection that it had
		}
		wantError(t, "increment", err, engine.ErrUnavailable)
		return nil
	})
	must(t, <-up)
	eventually(t, "the server has loaded", func() error { return increment(t.Context(), e, key("counter")) })
}

func TestFullServerRefusesWhatGrowsAndTakesWhatFreesMemory(t *testing.T) {
	t.Parallel()
	for _, binary := range []string{"redis-server", "valkey-server"} {
		server := testserver.Redis(t, testserver.RedisOptions{Binary: binary})
		must(t, Create(t.Context(), server.URL(), Options{}))
		e := open(t, server.URL(), Options{})
		must(t, set(t.Context(), e, key("old"), item(1)))
		server.Must("CONFIG", "SET", "maxmemory", "1")
		err := set(t.Context(), e, key("new"), item(1))
		wantError(t, "a new record", err, engine.ErrUnavailable)
		if !isReply(err, "OOM") {
			t.Errorf("a new record: %v, want the server's reason", err)
		}
		if n, _, err := look(t.Context(), e, key("old")); err != nil || n != 1 {
			t.Errorf("a look at an old record: %d, %v", n, err)
		}
		must(t, set(t.Context(), e, key("old"), nil))
		if got := get(t, e, key("new")); got != nil {
			t.Errorf("the refused record is there: %v", got)
		}
	}
}

func TestReplicaAnswersNothing(t *testing.T) {
	t.Parallel()
	for _, readOnly := range []string{"yes", "no"} {
		server := testserver.Redis(t, testserver.RedisOptions{Config: []string{"replica-read-only " + readOnly}})
		must(t, Create(t.Context(), server.URL(), Options{}))
		e := open(t, server.URL(), Options{})
		must(t, set(t.Context(), e, key("k"), item(1)))
		server.Must("REPLICAOF", "127.0.0.1", "1")
		wantError(t, "a write", set(t.Context(), e, key("k"), item(2)), engine.ErrUnavailable)
		_, _, err := look(t.Context(), e, key("k"))
		wantError(t, "a transaction without changes", err, engine.ErrUnavailable)
		_, err = e.Read(t.Context(), []state.Key{key("k")})
		wantError(t, "a read", err, engine.ErrUnavailable)
		if !isReply(err, "READONLY") {
			t.Errorf("a read: %v, want the server's reason", err)
		}
	}
}

func TestServerThatIsBusyWithAnotherScriptIsUnavailable(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{Config: []string{"busy-reply-threshold 10"}})
	must(t, Create(t.Context(), server.URL(), Options{}))
	e := open(t, server.URL(), Options{})
	ended := make(chan error, 1)
	go func() { ended <- server.Do("EVAL", "while true do end", "0").Error() }()
	eventually(t, "the server says that it is busy", func() error {
		err := set(t.Context(), e, key("k"), item(1))
		if !isReply(err, "BUSY") {
			return fmt.Errorf("not yet: %w", err)
		}
		wantError(t, "a write", err, engine.ErrUnavailable)
		return nil
	})
	server.Must("SCRIPT", "KILL")
	if err := <-ended; err == nil {
		t.Error("the endless script has ended by itself")
	}
	must(t, set(t.Context(), e, key("k"), item(1)))
}

func TestCallsUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	proxy := testserver.Proxy(t, server.Addr())
	must(t, Create(t.Context(), server.URL(), Options{}))
	e := open(t, "redis://"+proxy.Addr(), Options{calls: 2})
	must(t, set(t.Context(), e, key("k"), item(1)))
	proxy.Stall(testserver.Replies)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	var refused sync.Map
	for i := range 10 {
		wg.Go(func() {
			_, err := e.Read(ctx, []state.Key{key("k")})
			refused.Store(i, err)
			var unsent *notSentError
			if !errors.Is(err, engine.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a read while nothing answers: %v", err)
			} else if errors.As(err, &unsent) {
				refused.Delete(i)
			}
		})
	}
	wg.Wait()
	sent := 0
	refused.Range(func(any, any) bool { sent++; return true })
	// At the deadline one that waits may find the place of one that leaves.
	if sent > 4 {
		t.Errorf("%d of 10 calls were sent, want 2", sent)
	}
	proxy.Flow(testserver.Replies)
	must(t, set(t.Context(), e, key("k"), item(2)))
}

func TestNoCallOutlivesItsDeadline(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	must(t, Create(t.Context(), server.URL(), Options{}))
	e := open(t, server.URL(), Options{ReplyTimeout: time.Minute})
	must(t, set(t.Context(), e, key("k"), item(1)))
	e.guess.Doubt() // so that a transaction begins with reading: what it wrote would not end with the deadline
	server.Pause()
	for name, call := range map[string]func(context.Context) error{
		"Transact": func(ctx context.Context) error { return increment(ctx, e, key("k")) },
		"Read":     func(ctx context.Context) error { _, err := e.Read(ctx, []state.Key{key("k")}); return err },
		"Due": func(ctx context.Context) error {
			_, _, err := e.Due(ctx, scope, engine.ByLease, state.KindHold, 5, "", 5)
			return err
		},
		"Scan": func(ctx context.Context) error {
			_, _, err := e.Scan(ctx, scope, state.KindHold, "", "", 5)
			return err
		},
		"Scopes": func(ctx context.Context) error { _, _, err := e.Scopes(ctx, "", 5); return err },
		"Now":    func(ctx context.Context) error { _, err := e.Now(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case err := <-ended:
			wantError(t, name, err, engine.ErrUnavailable)
		case <-time.After(10 * time.Second):
			t.Errorf("%s goes on 10 s after its deadline", name)
		}
		cancel()
	}
	server.Resume()
}

// TestDamageIsNeverTakenForAbsence: what another program has written to a
// record's place is shown as a record that no seal fits, or refused.
func TestDamageIsNeverTakenForAbsence(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	must(t, Create(t.Context(), server.URL(), Options{}))
	e := open(t, server.URL(), Options{})
	place := e.layout.place(scope)
	for _, value := range []string{"", "x", "0123456789abcdef", "0123456789abcdef0123456789abcde"} {
		must(t, set(t.Context(), e, key("k"), item(1)))
		server.Must("HSET", place.record(key("k")), "k", value)
		if got := get(t, e, key("k")); got == nil || string(got.Data) != value {
			t.Errorf("the value %q is read as %v", value, got)
		}
		// A transaction that has read it can be written, and so can its repair.
		must(t, set(t.Context(), e, key("other"), item(1)))
		err := e.Transact(t.Context(), []state.Key{key("k"), key("other")}, func(s engine.Snapshot) (engine.Plan, error) {
			return engine.Plan{Changes: []engine.Change{{Key: key("other"), Item: item(2)}}, NotAfter: s.Now + minute}, nil
		})
		must(t, err)
		must(t, set(t.Context(), e, key("k"), nil))
	}
	server.Must("SET", place.due(engine.ByExpiry, state.KindOperation), "no index")
	it := item(1)
	it.Expiry = 5
	err := set(t.Context(), e, key("new"), it)
	wantError(t, "a record whose index is damaged", err, engine.ErrUnavailable)
	if got := get(t, e, key("new")); got != nil {
		t.Errorf("half of a change was written: %v", got)
	}
	server.Must("SET", place.record(key("new")), "no bucket")
	_, err = e.Read(t.Context(), []state.Key{key("new")})
	wantError(t, "a record whose bucket is damaged", err, engine.ErrUnavailable)
}

func TestClockOfTheServerIsComparedWhenTheChangesAreApplied(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	must(t, Create(t.Context(), server.URL(), Options{}))
	e := open(t, server.URL(), Options{})
	err := e.Transact(t.Context(), []state.Key{key("k")}, func(s engine.Snapshot) (engine.Plan, error) {
		limit := s.Now + 20
		eventually(t, "the server's clock passes the limit", func() error {
			now, err := e.Now(t.Context())
			if err == nil && now <= limit {
				err = errors.New("not yet")
			}
			return err
		})
		return engine.Plan{Changes: []engine.Change{{Key: key("k"), Item: item(1)}}, NotAfter: limit}, nil
	})
	wantError(t, "a change past its limit", err, engine.ErrLate)
	if got := get(t, e, key("k")); got != nil {
		t.Errorf("it was written: %v", got)
	}
}
