package testserver

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// shared is the PostgreSQL server that many tests of one binary use, each in a database of its own. It is up as long as any
// test holds it.
var shared struct {
	sync.Mutex
	server  *PostgresServer
	host    *sharedHost
	options PostgresOptions
	users   int      // tests that hold it
	free    []string // databases that no test uses
}

// QuickPostgres spares the disk, for tests that look at rules and whose server never loses its power. What fsync is worth is
// tested by the engine itself.
var QuickPostgres = PostgresOptions{Config: []string{"fsync = off", "full_page_writes = off", "autovacuum = off"}}

// SharedPostgres is a server that the tests of this binary share: the first that asks starts it, with its options, and it is
// gone with its files when the last of those that asked has ended. All must ask with the same options. A test may do nothing to
// it that others would notice, such as restart it; [SharedServer.Database] gives it a place of its own.
func SharedPostgres(t TB, options PostgresOptions) *SharedServer {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		host := &sharedHost{TB: t}
		server := Postgres(host, options)
		shared.server, shared.host, shared.options = server, host, options
	}
	if options.SCRAM != shared.options.SCRAM || !slices.Equal(options.Config, shared.options.Config) || !slices.Equal(options.Env, shared.options.Env) {
		t.Fatalf("the shared PostgreSQL server runs with other options")
	}
	holdShared(t)
	// What goes wrong is for the test that uses it, not for the one that started it.
	lent, process := *shared.server, *shared.server.Server
	process.t, lent.Server = t, &process
	return &SharedServer{&lent}
}

// SharedServer is what one test may do with a server that others use too.
type SharedServer struct{ server *PostgresServer }

// KeepShared lets a shared server, if a subtest of t starts one, stay up until all of t has ended: starting it takes a second.
func KeepShared(t TB) {
	shared.Lock()
	defer shared.Unlock()
	holdShared(t)
}

func holdShared(t TB) {
	shared.users++
	t.Cleanup(func() { leaveShared(t) })
}

func leaveShared(t TB) {
	shared.Lock()
	defer shared.Unlock()
	if shared.users--; shared.users == 0 && shared.server != nil {
		shared.host.TB, shared.server.t = t, t
		shared.host.close()
		shared.server, shared.host, shared.free = nil, nil, nil
	}
}

// Database is a database for this test alone, by its URL. Databases are used again, for making one takes longer than most tests
// do: the schemas counterfoil and public are empty at the start, and nothing else may be made.
func (s *SharedServer) Database() string {
	t := s.server.t
	t.Helper()
	name := takeDatabase()
	if name == "" {
		name = "test" + strconv.FormatInt(databases.Add(1), 10)
		s.server.Exec("CREATE DATABASE " + name)
	}
	location := s.server.dsn("/"+name, url.Values{"sslmode": {"disable"}})
	t.Cleanup(func() {
		s.server.connectedTo(location, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.PgConn().Exec(ctx, "DROP SCHEMA IF EXISTS counterfoil, public CASCADE; CREATE SCHEMA public").ReadAll()
			return err
		})
		shared.Lock()
		defer shared.Unlock()
		shared.free = append(shared.free, name)
	})
	return location
}

var databases atomic.Int64

// takeDatabase gives a database that is free, "" if there is none.
func takeDatabase() string {
	shared.Lock()
	defer shared.Unlock()
	last := len(shared.free) - 1
	if last < 0 {
		return ""
	}
	name := shared.free[last]
	shared.free = shared.free[:last]
	return name
}

// sharedHost keeps what a server needs until the last of several tests has ended.
type sharedHost struct {
	TB       // the test that the server is started or ended in
	cleanups []func()
}

func (h *sharedHost) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

func (h *sharedHost) TempDir() string {
	h.Helper()
	root, err := os.MkdirTemp("", "shared-server")
	if err != nil {
		h.Fatalf("%v", err)
	}
	h.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			h.Logf("%v", err)
		}
	})
	// As in a test, the directory above belongs to this use alone.
	dir := filepath.Join(root, "001")
	if err := os.Mkdir(dir, 0o700); err != nil {
		h.Fatalf("%v", err)
	}
	return dir
}

func (h *sharedHost) close() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}
