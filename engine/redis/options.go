package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
)

// Options of an engine. The zero value of each is a good default.
type Options struct {
	// Clock tells the time. Nil: each server's own clock (TIME) does, and is
	// compared in the step that writes. A clock of one's own is for tests.
	Clock clock.Clock
	// UnsafeDurability accepts settings by which a server may lose what it has
	// acknowledged. [engine.Guarantee] lists them.
	UnsafeDurability bool
	// ManagedConfig declares that the servers are a managed service which hides
	// its settings (CONFIG). What can still be seen is checked, and the rest is
	// taken on the service's word, as [engine.Guarantee] says.
	ManagedConfig bool
	// Replicas is how many replicas of each primary may be promoted, all of
	// which must have a change on disk before it is acknowledged (WAITAOF, from
	// Redis 7.2 on and in Valkey). 0: the guarantee is that of one node.
	Replicas int
	// Username and Password log in; they come before those of the URL.
	Username, Password string
	// TLS configures rediss:// connections beyond the default: the system's
	// roots, TLS 1.2 or newer, each host checked by its name.
	TLS *tls.Config
	// DialTimeout bounds connecting and logging in; 2 s by default.
	DialTimeout time.Duration
	// ReplyTimeout bounds the wait for one reply, after which the outcome of a
	// change is unknown; 5 s by default.
	ReplyTimeout time.Duration
	// ReplicaTimeout is how long replicas may take to receive a change, and once
	// more to have it on disk; 2 s by default, and less than half of ReplyTimeout.
	ReplicaTimeout time.Duration

	space string                                                      // of keys: tests keep many stores in one cluster
	calls int                                                         // under way at once
	dial  func(ctx context.Context, address string) (net.Conn, error) // in tests
}

const (
	defaultDialTimeout    = 2 * time.Second
	defaultReplyTimeout   = 5 * time.Second
	defaultReplicaTimeout = 2 * time.Second
	defaultCalls          = 256
	maxReplicas           = 16
)

func (o Options) withDefaults() (Options, error) {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&o.DialTimeout, defaultDialTimeout}, {&o.ReplyTimeout, defaultReplyTimeout}, {&o.ReplicaTimeout, min(defaultReplicaTimeout, o.ReplyTimeout/3)}} {
		if *d.value < 0 {
			return o, errors.New("redis: a timeout is negative")
		}
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	switch {
	case o.Replicas < 0 || o.Replicas > maxReplicas:
		return o, fmt.Errorf("redis: the number of replicas must be 0 to %d", maxReplicas)
	case o.Replicas > 0 && 2*o.ReplicaTimeout >= o.ReplyTimeout:
		return o, errors.New("redis: ReplicaTimeout must be less than half of ReplyTimeout")
	}
	if o.calls == 0 {
		o.calls = defaultCalls
	}
	return o, nil
}

// target is what a URL names.
type target struct {
	hosts              []string // with ports
	tls                bool
	username, password string
	database           int
}

// parseURL reads redis://[user[:password]@]host[:port][,host[:port]…][/database]
// or the same with rediss:// (TLS). Several hosts are nodes of one cluster. Its
// errors do not repeat the URL, which may hold a password.
func parseURL(raw string) (target, error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	if scheme != "redis" && scheme != "rediss" {
		return target{}, errors.New("redis: the URL must begin with redis:// or rediss://")
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	login, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		login, hosts = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse(scheme + "://" + login + "hosts" + path)
	if err != nil {
		return target{}, errors.New("redis: the URL cannot be read; write redis://user@host:port, and the password apart or percent-encoded")
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return target{}, errors.New("redis: the URL has parameters, and none are known")
	}
	t := target{tls: scheme == "rediss", username: u.User.Username()}
	t.password, _ = u.User.Password()
	for host := range strings.SplitSeq(hosts, ",") {
		address, err := withPort(host)
		if err != nil {
			return target{}, err
		}
		t.hosts = append(t.hosts, address)
	}
	if db := strings.TrimPrefix(u.Path, "/"); db != "" {
		if t.database, err = strconv.Atoi(db); err != nil || t.database < 0 {
			return target{}, errors.New("redis: the path of the URL must be the number of a database")
		}
	}
	if t.database != 0 && len(t.hosts) > 1 {
		return target{}, errors.New("redis: a cluster has database 0 only")
	}
	return t, nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

func withPort(host string) (string, error) {
	name, port := host, "6379"
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		name, port = host[:i], host[i+1:]
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if net.ParseIP(name) == nil && !hostName.MatchString(name) {
		return "", errors.New("redis: the URL names no host, or one that is neither a name nor an address")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", errors.New("redis: the URL has a port that is not 1 to 65535")
	}
	return net.JoinHostPort(name, port), nil
}
