package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

const (
	scope  = "default"
	minute = 60_000 // milliseconds
)

// quick makes a lost reply cost a test little time.
var quick = postgres.Options{ReadTimeout: time.Second, CommitTimeout: time.Second, Connections: 8}

func key(id string) state.Key { return state.Key{Scope: scope, Kind: state.KindOperation, ID: id} }

var versions atomic.Uint64

// item is a record that counts, with a version of its own.
func item(n int) *state.Sealed {
	it := &state.Sealed{Data: binary.BigEndian.AppendUint32(nil, uint32(n))}
	binary.BigEndian.PutUint64(it.Version[:], versions.Add(1))
	return it
}

func count(it *state.Sealed) int {
	if it == nil {
		return 0
	}
	return int(binary.BigEndian.Uint32(it.Data))
}

// increment raises the counter under a key.
func increment(ctx context.Context, e engine.Engine, k state.Key) error {
	return e.Transact(ctx, []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{NotAfter: s.Now + minute, Changes: []engine.Change{{Key: k, Item: item(count(s.Items[0]) + 1)}}}, nil
	})
}

// look is a transaction that changes nothing: what it gives must be durable.
func look(ctx context.Context, e engine.Engine, k state.Key) (n int, err error) {
	err = e.Transact(ctx, []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
		n = count(s.Items[0])
		return engine.Plan{}, nil
	})
	return n, err
}

func read(t *testing.T, e engine.Engine, k state.Key) engine.Snapshot {
	t.Helper()
	snap, err := e.Read(t.Context(), []state.Key{k})
	must(t, err)
	return snap
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks an error against the one that it must be, and that it does
// not also say something else about what was written.
func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
	if !errors.Is(want, engine.ErrAmbiguous) && errors.Is(err, engine.ErrAmbiguous) {
		t.Fatalf("%s: %v is ambiguous too", what, err)
	}
}

// eventually tries until it works.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	limit, again := time.NewTimer(60*time.Second), time.NewTicker(20*time.Millisecond)
	defer limit.Stop()
	defer again.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-limit.C:
			t.Fatalf("%s: still %v", what, err)
		}
	}
}

// through gives the URL of a server as it is reached by another address.
func through(t *testing.T, dsn, address string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	must(t, err)
	u.Host = address
	return u.String()
}

// load is a number of callers who raise one counter until they are stopped.
type load struct {
	t                *testing.T
	yes, unknown, no atomic.Int64
	stop             context.CancelFunc
	work             sync.WaitGroup
}

func newLoad(t *testing.T, e engine.Engine) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{t: t, stop: stop}
	for range 6 {
		l.work.Go(func() {
			for ctx.Err() == nil {
				call, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				l.add(increment(call, e, key("counter")))
				cancel()
			}
		})
	}
	return l
}

func (l *load) add(err error) {
	switch {
	case err == nil:
		l.yes.Add(1)
	case errors.Is(err, engine.ErrAmbiguous):
		l.unknown.Add(1)
	case errors.Is(err, engine.ErrUnavailable), errors.Is(err, engine.ErrConflict):
		l.no.Add(1)
	default:
		l.t.Errorf("increment: %v", err)
	}
}

func (l *load) failed() int64 { return l.no.Load() + l.unknown.Load() }

// until returns when a number has grown by n.
func (l *load) until(what string, number func() int64, n int64) {
	l.t.Helper()
	begin := number()
	eventually(l.t, what, func() error {
		if number() < begin+n {
			return errors.New(l.String())
		}
		return nil
	})
}

// check ends the callers and compares the counter with what was answered.
func (l *load) check(counter func() int) {
	l.t.Helper()
	l.stop()
	l.work.Wait()
	yes, unknown, n := int(l.yes.Load()), int(l.unknown.Load()), counter()
	if n < yes || n > yes+unknown {
		l.t.Errorf("%d increments were acknowledged and %d unknown, the counter is %d", yes, unknown, n)
	}
	l.t.Log(l)
}

func (l *load) String() string {
	return fmt.Sprintf("%d acknowledged, %d unknown, %d refused", l.yes.Load(), l.unknown.Load(), l.no.Load())
}

// newStore makes a store on a server of its own.
func newStore(t *testing.T, so testserver.PostgresOptions) *testserver.PostgresServer {
	t.Helper()
	server := testserver.Postgres(t, so)
	must(t, postgres.Create(t.Context(), server.DSN(), postgres.Options{UnsafeDurability: true}))
	return server
}
