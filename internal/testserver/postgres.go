package testserver

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions says how to start a server.
type PostgresOptions struct {
	SCRAM  bool     // ask for a password (SCRAM-SHA-256); else whoever reaches the port is trusted
	Config []string // lines of postgresql.conf after ours; the last line about a setting counts
	Env    []string // NAME=VALUE, beside a PATH
}

// PostgresServer is a PostgreSQL server with its own data directory: a cluster, in PostgreSQL's own words.
type PostgresServer struct {
	*Server
	options  PostgresOptions
	programs string // directory of the programs
}

// superuser owns everything in a new server; the password counts where SCRAM asks for one.
const (
	superuser = "postgres"
	password  = "only-on-loopback"
)

// Everything that decides what a crash leaves behind is PostgreSQL's own default.
var postgresDefaults = []string{
	"listen_addresses = '127.0.0.1'",
	"unix_socket_directories = ''",
	"max_connections = 300",
	"wal_keep_size = 64MB",
	// Under POSIX shared memory, kill -9 would leave files outside the server's directory.
	"dynamic_shared_memory_type = mmap",
	"log_line_prefix = '%m [%p] '",
}

// Postgres starts a new, empty server. As root it runs under the account postgres, for it refuses to run as root.
func Postgres(t TB, options PostgresOptions) *PostgresServer {
	t.Helper()
	s := &PostgresServer{options: options, programs: postgresPrograms(t)}
	dir := ownedDir(t)
	if err := writeTemplate(t, s.programs, dir); err != nil {
		t.Fatalf("lay out a PostgreSQL data directory: %v", err)
	}
	s.start(t, dir)
	return s
}

// start runs the server on a data directory.
func (s *PostgresServer) start(t TB, dir string) {
	t.Helper()
	t.Cleanup(func() { removeSegment(dir) }) // after the server's own clean-up
	s.Server = start(t, kind{
		name:    "postgres",
		command: func(int) *exec.Cmd { return s.command("postgres", dir, "-D", dir) },
		ready:   "database system is ready to accept", // "connections", or on a standby "read-only connections"
		stop:    syscall.SIGINT,                       // fast shutdown: open sessions are ended
	}, dir, func(port int) {
		lines := append([]string{fmt.Sprintf("port = %d", port)}, postgresDefaults...)
		lines = append(lines, s.options.Config...)
		method := "trust"
		if s.options.SCRAM {
			method = "scram-sha-256"
		}
		access := fmt.Sprintf("host all all 127.0.0.1/32 %[1]s\nhost replication all 127.0.0.1/32 %[1]s\n", method)
		for name, text := range map[string]string{
			"postgresql.conf": strings.Join(lines, "\n") + "\n",
			"pg_hba.conf":     access,
		} {
			if err := writeOwned(filepath.Join(dir, name), []byte(text)); err != nil {
				t.Fatalf("configure PostgreSQL: %v", err)
			}
		}
	})
}

// DSN is the URL under which the superuser reaches the database postgres.
func (s *PostgresServer) DSN() string {
	return s.dsn("/postgres", url.Values{"sslmode": {"disable"}})
}

func (s *PostgresServer) dsn(path string, query url.Values) string {
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Host: s.Addr(), Path: path, RawQuery: query.Encode()}
	if s.options.SCRAM {
		u.User = url.UserPassword(superuser, password)
	}
	return u.String()
}

// Exec runs statements as superuser, within 30 s; several at once (without arguments) run as one transaction.
func (s *PostgresServer) Exec(sql string, args ...any) {
	s.t.Helper()
	s.connected(func(ctx context.Context, conn *pgx.Conn) error {
		if len(args) == 0 {
			_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
			return err
		}
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// Value runs a query as superuser and returns its one value as text, "" for NULL.
func (s *PostgresServer) Value(sql string, args ...any) string {
	s.t.Helper()
	var value string
	s.connected(func(ctx context.Context, conn *pgx.Conn) error {
		var err error
		value, err = oneValue(ctx, conn, sql, args...)
		return err
	})
	return value
}

func oneValue(ctx context.Context, conn *pgx.Conn, sql string, args ...any) (string, error) {
	var value *string
	err := conn.QueryRow(ctx, "SELECT ("+sql+")::text", args...).Scan(&value)
	if err != nil || value == nil {
		return "", err
	}
	return *value, nil
}

func (s *PostgresServer) connected(work func(context.Context, *pgx.Conn) error) {
	s.t.Helper()
	s.connectedTo(s.DSN(), work)
}

func (s *PostgresServer) connectedTo(dsn string, work func(context.Context, *pgx.Conn) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		s.t.Fatalf("connect to PostgreSQL on %s: %v", s.Addr(), err)
	}
	defer conn.Close(ctx) //nolint:errcheck // The work is done or has failed.
	if err := work(ctx, conn); err != nil {
		s.t.Fatalf("PostgreSQL on %s: %v", s.Addr(), err)
	}
}

// PostgresStandby starts a streaming standby of a primary, makes the primary wait for it in every commit (under the name
// "standby", which replaces what synchronous_standby_names said), and returns when the primary does. The standby has the
// primary's Config, then that of options.
func PostgresStandby(t TB, primary *PostgresServer, options PostgresOptions) *PostgresServer {
	t.Helper()
	const name = "standby"
	options.SCRAM = primary.options.SCRAM
	options.Config = append(append([]string(nil), primary.options.Config...), options.Config...)
	s := &PostgresServer{options: options, programs: primary.programs}
	dir := ownedDir(t)
	source := primary.dsn("", url.Values{"sslmode": {"disable"}, "application_name": {name}})
	backup := s.command("pg_basebackup", dir, "-D", dir, "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", source)
	if out, err := backup.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup from %s: %v\n%s", primary.Addr(), err, out)
	}
	s.start(t, dir)
	primary.Exec("ALTER SYSTEM SET synchronous_standby_names = " + name)
	primary.Exec("SELECT pg_reload_conf()")
	primary.AwaitSynchronous(name)
	return s
}

// AwaitSynchronous returns when a standby of that application_name is synchronous and has all that this primary wrote.
func (s *PostgresServer) AwaitSynchronous(name string) {
	s.t.Helper()
	s.connected(func(ctx context.Context, conn *pgx.Conn) error {
		await(s.t, startLimit, "standby "+name+" of "+s.Addr()+" is synchronous", func() (bool, error) {
			found, err := oneValue(ctx, conn, `SELECT count(*) FROM pg_stat_replication
				WHERE application_name = $1 AND sync_state = 'sync' AND replay_lsn >= pg_current_wal_lsn()`, name)
			return found == "1", err
		})
		return nil
	})
}

// Promote makes a standby a primary, and returns when it takes writes.
func (s *PostgresServer) Promote() {
	s.t.Helper()
	if promoted := s.Value("SELECT pg_promote(true, 30)"); promoted != "true" {
		s.t.Fatalf("PostgreSQL on %s was not promoted within 30 s", s.Addr())
	}
}

// command prepares one of PostgreSQL's programs to run under its account, in a directory that it may enter.
func (s *PostgresServer) command(name, dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.programs, name), args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}, s.options.Env...)
	if account, err := postgresAccount(); err == nil && account != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: account.uid, Gid: account.gid}}
	}
	return cmd
}

// postgresPrograms is the directory of the newest PostgreSQL; Debian keeps the programs out of PATH.
func postgresPrograms(t TB) string {
	t.Helper()
	if _, err := postgresAccount(); err != nil {
		t.Fatalf("%v", err)
	}
	return filepath.Dir(program(t, "postgres", "/usr/lib/postgresql/*/bin/postgres"))
}

type account struct{ uid, gid uint32 }

// postgresAccount is whom PostgreSQL runs as: nil means as this process.
var postgresAccount = sync.OnceValues(func() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	found, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no account postgres (%w); run make test (scripts/setup.sh installs it)", err)
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &account{uid: uint32(uid), gid: uint32(gid)}, nil
})

// ownedDir is a temporary directory that belongs to PostgreSQL's account and that it can reach.
func ownedDir(t TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := own(dir, 0o700); err != nil {
		t.Fatalf("%v", err)
	}
	if account, err := postgresAccount(); err == nil && account != nil {
		// Go makes the directory above for this user alone; passing through it is all that PostgreSQL needs.
		if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return dir
}

// own gives a file or directory to PostgreSQL's account.
func own(path string, mode fs.FileMode) error {
	account, err := postgresAccount()
	if err != nil {
		return err
	}
	if account != nil {
		if err := os.Chown(path, int(account.uid), int(account.gid)); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}

func writeOwned(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	return own(path, 0o600)
}
