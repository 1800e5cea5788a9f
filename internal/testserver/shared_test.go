package testserver_test

import (
	"context"
	"net"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil/internal/testserver"
)

// TestSharedServer has the shared server to itself: it is the only test here that asks for one.
func TestSharedServer(t *testing.T) { //nolint:tparallel // one use after the other is what is looked at.
	t.Parallel()
	hosts := map[string]bool{}
	use := func(t *testing.T) {
		dsn := testserver.SharedPostgres(t, testserver.PostgresOptions{}).Database()
		hosts[hostOf(t, dsn)] = true
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // of no matter to the test.
		// It fails if what another test made is still there.
		if _, err := conn.Exec(t.Context(), "CREATE TABLE kept ()"); err != nil {
			t.Error(err)
		}
	}
	t.Run("kept", func(t *testing.T) {
		testserver.KeepShared(t)
		t.Run("first", use)
		t.Run("empty again", use)
	})
	if len(hosts) != 1 {
		t.Errorf("two tests had the servers %v; want one", hosts)
	}
	for host := range hosts {
		if conn, err := net.Dial("tcp", host); err == nil {
			conn.Close()
			t.Error("the server outlives the last test that held it")
		}
	}
	t.Run("after the last has ended", use)
	if len(hosts) != 2 {
		t.Errorf("the servers were %v; want a new one", hosts)
	}
}

func hostOf(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
