package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

func TestURLNamesServersOrIsRefusedWithoutBeingRepeated(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]target{
		"redis://h":                   {hosts: []string{"h:6379"}},
		"redis://h:7000/":             {hosts: []string{"h:7000"}},
		"redis://h/3":                 {hosts: []string{"h:6379"}, database: 3},
		"rediss://u:p%40w@h":          {hosts: []string{"h:6379"}, tls: true, username: "u", password: "p@w"},
		"redis://a,b:7001,[::1]:7002": {hosts: []string{"a:6379", "b:7001", "[::1]:7002"}},
		"redis://[::1]":               {hosts: []string{"[::1]:6379"}},
		"redis://:secret@h":           {hosts: []string{"h:6379"}, password: "secret"},
		"":                            {},
		"h":                           {},
		"http://secret@h":             {},
		"redis://":                    {},
		"redis://:secret@":            {},
		"redis://a,,b":                {},
		"redis://a,":                  {},
		"redis://h:0":                 {},
		"redis://h:65536":             {},
		"redis://h:secret":            {},
		"redis://h/secret":            {},
		"redis://h/-1":                {},
		"redis://a,b/1":               {},
		"redis://h?password=secret":   {},
		"redis://h#secret":            {},
		"redis://u:sec%zzret@h":       {},
		"redis://secret\x7f@h":        {},
	} {
		got, err := parseURL(url)
		if want.hosts == nil {
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: %+v, %v, want an error that does not repeat it", url, got, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v, want %+v", url, got, err, want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("redis://u:p@a:1,b:2/0")
	f.Add("rediss://[::1]:6379")
	f.Fuzz(func(t *testing.T, url string) {
		got, err := parseURL(url)
		if err != nil {
			return
		}
		if len(got.hosts) == 0 || got.database < 0 {
			t.Fatalf("%q: %+v", url, got)
		}
		for _, h := range got.hosts {
			if name, port, err := net.SplitHostPort(h); err != nil || name == "" || port == "" {
				t.Fatalf("%q names the host %q", url, h)
			}
		}
	})
}

func TestOpeningNeverCreates(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	_, err := Open(t.Context(), server.URL(), Options{})
	wantError(t, "Open of nothing", err, engine.ErrNoStore)
	if size, err := server.Must("DBSIZE").AsInt64(); err != nil || size != 0 {
		t.Fatalf("opening left %d keys (%v)", size, err)
	}
	must(t, Create(t.Context(), server.URL(), Options{}))
	wantError(t, "Create again", Create(t.Context(), server.URL(), Options{}), engine.ErrStoreExists)
	server.Must("HSET", "cf:format", "format", "counterfoil store, redis, version 2")
	_, err = Open(t.Context(), server.URL(), Options{})
	wantError(t, "Open of a newer version", err, engine.ErrForeign)
	wantError(t, "Create over a newer version", Create(t.Context(), server.URL(), Options{}), engine.ErrForeign)
}

func TestDatabasesAreStoresOfTheirOwn(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{Config: []string{"databases 2"}})
	for _, path := range []string{"/0", "/1"} {
		must(t, Create(t.Context(), server.URL()+path, Options{}))
	}
	a, b := open(t, server.URL(), Options{}), open(t, server.URL()+"/1", Options{})
	must(t, set(t.Context(), a, key("k"), item(1)))
	if got := get(t, b, key("k")); got != nil {
		t.Errorf("the other database has %v", got)
	}
}

func TestWrongPlacesAreRefused(t *testing.T) {
	t.Parallel()
	primary := testserver.Redis(t, testserver.RedisOptions{Password: "right-one"})
	replica := testserver.Replica(t, primary, testserver.RedisOptions{})
	other := testserver.Redis(t, testserver.RedisOptions{Password: "right-one"})
	down := testserver.Redis(t, testserver.RedisOptions{})
	down.Stop()
	silent := testserver.Redis(t, testserver.RedisOptions{})
	silent.Pause()
	o := Options{Password: "right-one", DialTimeout: 200 * time.Millisecond, ReplyTimeout: 200 * time.Millisecond}
	for name, c := range map[string]struct {
		url      string
		password string
		says     string
	}{
		"a replica":                {"redis://" + replica.Addr(), "right-one", "replica"},
		"two servers, no cluster":  {"redis://" + primary.Addr() + "," + other.Addr(), "right-one", "no cluster"},
		"a server that is down":    {"redis://" + down.Addr(), "right-one", "cannot connect"},
		"a server that is silent":  {"redis://" + silent.Addr(), "right-one", "unavailable"},
		"a wrong password":         {"redis://" + primary.Addr(), "wrong-one", "password"},
		"no password where one is": {"redis://" + primary.Addr(), "", "password"},
	} {
		o := o
		o.Password = c.password
		_, err := Open(t.Context(), c.url, o)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "-one") {
			t.Errorf("%s: %v, want an error about %q without a password", name, err, c.says)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx, "redis://"+silent.Addr(), o)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

// TestLeastPrivilegesAreEnough runs with the ACL that docs/engines.md gives.
func TestLeastPrivilegesAreEnough(t *testing.T) {
	t.Parallel()
	for _, binary := range []string{"redis-server", "valkey-server"} {
		server := testserver.Redis(t, testserver.RedisOptions{Binary: binary})
		must(t, Create(t.Context(), server.URL(), Options{}))
		server.Must(append([]string{"ACL", "SETUSER", "counterfoil", "on", ">its-password"}, leastPrivileges...)...)
		e := open(t, server.URL(), Options{Username: "counterfoil", Password: "its-password"})
		useAll(t, e)
		// Without one of them a change is refused as a whole, before anything of it is written.
		for _, command := range []string{"hset", "hdel", "zadd", "zrem"} {
			server.Must("ACL", "SETUSER", "counterfoil", "-"+command)
			before := get(t, e, key("k"))
			err := e.Transact(t.Context(), []state.Key{key("k"), key("new")}, func(s engine.Snapshot) (engine.Plan, error) {
				next := item(9)
				next.Expiry, next.Lease = 5, 6
				return engine.Plan{Changes: []engine.Change{{Key: key("k"), Item: nil}, {Key: key("new"), Item: next}}, NotAfter: s.Now + minute}, nil
			})
			wantError(t, "without "+command, err, engine.ErrUnavailable)
			if got := get(t, e, key("k")); !reflect.DeepEqual(got, before) {
				t.Errorf("without %s: the record became %v", command, got)
			}
			server.Must("ACL", "SETUSER", "counterfoil", "+"+command)
		}
		useAll(t, e)
	}
}

func TestLeastPrivilegesAreEnoughForTheReplicatedGuarantee(t *testing.T) {
	t.Parallel()
	primary := testserver.Redis(t, testserver.RedisOptions{Binary: "valkey-server"})
	testserver.Replica(t, primary, testserver.RedisOptions{})
	must(t, Create(t.Context(), primary.URL(), Options{}))
	rights := append([]string{"ACL", "SETUSER", "counterfoil", "on", ">its-password", "+set", "+wait", "+waitaof"}, leastPrivileges...)
	primary.Must(rights...)
	e := open(t, primary.URL(), Options{Username: "counterfoil", Password: "its-password", Replicas: 1})
	useAll(t, e)
	_, _, err := look(t.Context(), e, key("k"))
	must(t, err)
}

var leastPrivileges = []string{
	"~cf*", "+hello", "+ping", "+info", "+config|get", "+cluster|slots", "+cluster|shards", "+evalsha", "+eval", "+time", "+type",
	"+hget", "+exists", "+hexists", "+hkeys", "+hset", "+hdel", "+zadd", "+zrem", "+zrangebylex",
}

// useAll does one of everything.
func useAll(t *testing.T, e *Engine) {
	t.Helper()
	it := item(1)
	it.Expiry, it.Lease = 10, 20
	must(t, set(t.Context(), e, key("k"), it))
	must(t, set(t.Context(), e, state.ScopeKey(scope), item(1)))
	must(t, set(t.Context(), e, key("gone"), item(1)))
	must(t, set(t.Context(), e, key("gone"), nil))
	due, _, err := e.Due(t.Context(), scope, engine.ByLease, state.KindOperation, 20, "", 5)
	if err != nil || len(due) != 1 {
		t.Fatalf("Due: %v, %v", due, err)
	}
	for _, kind := range []state.Kind{state.KindOperation, state.KindScope} {
		found, _, err := e.Scan(t.Context(), scope, kind, "", "", 5)
		if err != nil || len(found) != 1 {
			t.Fatalf("Scan of %v: %v, %v", kind, found, err)
		}
	}
	scopes, _, err := e.Scopes(t.Context(), "", 5)
	if err != nil || len(scopes) != 1 {
		t.Fatalf("Scopes: %v, %v", scopes, err)
	}
	_, err = e.Now(t.Context())
	must(t, err)
	_, err = e.Settings(t.Context())
	must(t, err)
}

func TestTLSIsSpokenAndTheServersNameChecked(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	address, config := secured(t, server.Addr())
	o := Options{TLS: config}
	must(t, Create(t.Context(), "rediss://"+address, o))
	e := open(t, "rediss://"+address, o)
	must(t, set(t.Context(), e, key("k"), item(1)))
	_, err := Open(t.Context(), "rediss://"+address, Options{})
	wantError(t, "a certificate that nobody knows", err, engine.ErrUnavailable)
	_, err = Open(t.Context(), "redis://"+address, Options{DialTimeout: 500 * time.Millisecond})
	wantError(t, "without TLS", err, engine.ErrUnavailable)
}

// secured puts TLS before a server, with a certificate that the configuration
// trusts.
func secured(t *testing.T, server string) (address string, config *tls.Config) {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12})
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				backend, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer backend.Close()
				go io.Copy(backend, client) //nolint:errcheck // ends with either
				io.Copy(client, backend)    //nolint:errcheck // ends with either
			}()
		}
	}()
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	return listener.Addr().String(), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}
