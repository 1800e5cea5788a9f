package storetest

import (
	"context"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/testserver"
)

// postgresMedium is a database of its own on the server that all tests of the
// binary share.
type postgresMedium struct {
	url     string
	options postgres.Options
}

func onPostgres(t testing.TB, c clock.Clock) medium {
	t.Helper()
	server := testserver.SharedPostgres(t, testserver.QuickPostgres)
	return postgresMedium{server.Database(), postgres.Options{Clock: c, Connections: 4, UnsafeDurability: true}}
}

func (m postgresMedium) create(t testing.TB) engine.Engine {
	t.Helper()
	if err := postgres.Create(context.Background(), m.url, m.options); err != nil {
		t.Fatalf("create a store on PostgreSQL: %v", err)
	}
	return m.again(t)
}

func (m postgresMedium) again(t testing.TB) engine.Engine {
	t.Helper()
	e, err := postgres.Open(context.Background(), m.url, m.options)
	if err != nil {
		t.Fatalf("open the store on PostgreSQL: %v", err)
	}
	return e
}
