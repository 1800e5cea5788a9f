package postgres_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/testserver"
)

func open(t *testing.T, dsn string, o postgres.Options) *postgres.Engine {
	t.Helper()
	e, err := postgres.Open(t.Context(), dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// fixture provisions an engine in a database, which it reaches through a proxy
// that can lose what it sends.
func fixture(t *testing.T, dsn string) enginetest.Fixture {
	t.Helper()
	must(t, postgres.Create(t.Context(), dsn, postgres.Options{}))
	u, err := url.Parse(dsn)
	must(t, err)
	proxy := testserver.Proxy(t, u.Host)
	c := clock.NewManual(time.UnixMilli(1_700_000_000_000))
	o := postgres.Options{Connections: 4, Clock: c, CommitTimeout: 6 * time.Second}
	e := open(t, through(t, dsn, proxy.Addr()), o)
	var struck *testserver.Armed
	return enginetest.Fixture{
		Engine: e, Clock: c,
		Second: func(t *testing.T) engine.Engine { t.Helper(); return open(t, dsn, o) },
		Fail: func(t *testing.T, fault enginetest.Fault) {
			t.Helper()
			struck = proxy.Arm(testserver.Fault{In: testserver.Requests, Match: isCommit, Do: actions[fault]})
		},
		Heal: func(t *testing.T) engine.Engine {
			t.Helper()
			<-struck.Fired()
			return e // the same one: it recovers without being opened again
		},
	}
}

// actions are what a proxy does to the request that commits.
var actions = map[enginetest.Fault]testserver.Action{
	enginetest.FailedNotKept: testserver.Cut,
	enginetest.FailedButKept: testserver.CutReply,
	enginetest.ReplyLost:     testserver.SwallowReply,
}

// isCommit finds the request that runs COMMIT, a statement that the driver has
// prepared under a name made of its text. In a Bind message, and in no other,
// a zero byte is before the name.
func isCommit(b []byte) bool {
	sum := sha256.Sum256([]byte("COMMIT"))
	return bytes.Contains(b, []byte("\x00stmtcache_"+hex.EncodeToString(sum[:24])+"\x00"))
}

var databases atomic.Int64

// database makes an empty database on a server and names it.
func database(t *testing.T, s *testserver.PostgresServer) string {
	t.Helper()
	name := fmt.Sprintf("test%d", databases.Add(1))
	s.Exec("CREATE DATABASE " + name)
	u, err := url.Parse(s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func TestEngine(t *testing.T) {
	t.Parallel()
	shared := testserver.Postgres(t, testserver.PostgresOptions{Config: []string{"max_connections = 400"}})
	enginetest.Run(t, enginetest.Factory{
		New: func(t *testing.T) enginetest.Fixture {
			if strings.Contains(t.Name(), "Restart") {
				s := testserver.Postgres(t, testserver.PostgresOptions{})
				f := fixture(t, s.DSN())
				f.Restart = func(t *testing.T) engine.Engine {
					s.Kill()
					s.Start()
					return open(t, s.DSN(), postgres.Options{Clock: f.Clock})
				}
				return f
			}
			return fixture(t, database(t, shared))
		},
	})
}
