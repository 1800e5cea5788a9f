package testserver_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil/internal/testserver"
)

func TestPostgresKeepsCommitsThroughRestartAndKill(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	server.Exec("CREATE TABLE kept (step text)")
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"restart", server.Restart},
		{"kill", func() { server.Kill(); server.Start() }},
		{"kill while paused", func() { server.Pause(); server.Kill(); server.Start() }},
		{"stop while paused", func() { server.Pause(); server.Restart() }},
	} {
		server.Exec("INSERT INTO kept VALUES ($1)", step.name)
		step.do()
		if got := server.Value("SELECT max(step) FROM kept WHERE step = $1", step.name); got != step.name {
			t.Errorf("after %s: the row is %q", step.name, got)
		}
	}
}

func TestKillEndsOpenSessionsAtOnce(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	conn := connect(t, server)
	result := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT pg_sleep(60)")
		result <- err
	}()
	await(t, "the session sleeps", func() bool {
		return server.Value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
	})
	server.Kill()
	select {
	case err := <-result:
		if err == nil {
			t.Error("a session went on without its server")
		}
	case <-time.After(10 * time.Second):
		t.Error("the session's process outlived the kill")
	}
	if _, err := net.Dial("tcp", server.Addr()); err == nil {
		t.Error("a killed server still accepts connections")
	}
}

func TestPausedPostgresAnswersAfterwards(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	conn := connect(t, server)
	server.Pause()
	result := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		result <- err
	}()
	select {
	case err := <-result:
		t.Errorf("a paused server answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	server.Resume()
	if err := <-result; err != nil {
		t.Errorf("after resume: %v", err)
	}
}

func TestPostgresSettingsAndPassword(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.PostgresOptions{SCRAM: true, Config: []string{"fsync = off"}})
	for setting, want := range map[string]string{"fsync": "off", "full_page_writes": "on", "unix_socket_directories": "", "listen_addresses": "127.0.0.1"} {
		if got := server.Value("SELECT current_setting($1)", setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	wrong := strings.Replace(server.DSN(), "only-on-loopback", "wrong", 1)
	if conn, err := pgx.Connect(t.Context(), wrong); err == nil {
		conn.Close(t.Context()) //nolint:errcheck // The test has failed anyway.
		t.Error("a wrong password was let in")
	}
	if entries, err := filepath.Glob("/tmp/.s.PGSQL.*"); err != nil || len(entries) > 0 {
		t.Errorf("sockets outside the test's directory: %v, %v", entries, err)
	}
}

func TestServersOfOneTestAreApart(t *testing.T) {
	t.Parallel()
	one, two := testserver.Postgres(t, testserver.PostgresOptions{}), testserver.Postgres(t, testserver.PostgresOptions{})
	one.Exec("CREATE TABLE mine ()")
	if found := two.Value("SELECT count(*) FROM pg_tables WHERE tablename = 'mine'"); found != "0" {
		t.Error("two servers share a table")
	}
}

func TestCommitsWaitForTheStandby(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t, testserver.PostgresOptions{SCRAM: true})
	standby := testserver.PostgresStandby(t, primary, testserver.PostgresOptions{})
	primary.Exec("CREATE TABLE kept (step text)")
	if got := standby.Value("SELECT pg_is_in_recovery()"); got != "true" {
		t.Fatalf("pg_is_in_recovery is %s on the standby", got)
	}

	standby.Stop()
	conn := connect(t, primary)
	result := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "INSERT INTO kept VALUES ('late')")
		result <- err
	}()
	await(t, "the commit waits", func() bool {
		return primary.Value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "1"
	})
	standby.Start()
	if err := <-result; err != nil {
		t.Fatalf("the commit that waited: %v", err)
	}

	primary.Kill()
	standby.Promote()
	if got := standby.Value("SELECT step FROM kept"); got != "late" {
		t.Errorf("the promoted standby has %q, want the acknowledged row", got)
	}
	standby.Exec("INSERT INTO kept VALUES ('after')")
}

func TestNothingIsLeftBehind(t *testing.T) { //nolint:tparallel // The test looks at what the ended subtest left.
	t.Parallel()
	var pid int
	var dir string
	t.Run("server", func(t *testing.T) {
		server := testserver.Postgres(t, testserver.PostgresOptions{})
		pid, dir = server.PID(), server.Dir()
	})
	if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); err == nil {
		t.Errorf("process %d is still there after its test", pid)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there after its test", dir)
	}
}

func connect(t *testing.T, server *testserver.PostgresServer) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // The server may be gone.
	return conn
}
