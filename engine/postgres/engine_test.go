package postgres_test

import (
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

// fixture provisions an engine in a database.
func fixture(t *testing.T, dsn string) enginetest.Fixture {
	t.Helper()
	if err := postgres.Create(t.Context(), dsn, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	c := clock.NewManual(time.UnixMilli(1_700_000_000_000))
	o := postgres.Options{Connections: 4, Clock: c}
	return enginetest.Fixture{
		Engine: open(t, dsn, o), Clock: c,
		Second: func(t *testing.T) engine.Engine { return open(t, dsn, o) },
	}
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
		Exceptions: map[string]string{
			"CommitThatFailedAndWasNotKeptIsNeverAYes": "a server's commits fail through a proxy: see faults_test.go",
			"CommitThatFailedButWasKeptIsNeverANo":     "a server's commits fail through a proxy: see faults_test.go",
			"CommitWhoseReplyWasLostIsUnknown":         "a server's commits fail through a proxy: see faults_test.go",
		},
	})
}
