package testserver

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// RedisOptions says which server to start, and how.
type RedisOptions struct {
	Binary   string   // "redis-server", which is the default, or "valkey-server"
	Password string   // of the user "default"; empty: none is asked for
	Config   []string // lines of redis.conf after ours; the last line about a setting counts
	Env      []string // NAME=VALUE, beside a PATH
}

// RedisServer is a Redis or Valkey server.
type RedisServer struct {
	*Server
	options RedisOptions
	primary *RedisServer // of a replica
}

// redisDefaults lose nothing that was acknowledged, and make replication and shutdown quick.
var redisDefaults = []string{
	"bind 127.0.0.1",
	"protected-mode no",
	"daemonize no",
	"databases 1",
	`save ""`,
	"appendonly yes",
	"appendfsync always",
	"no-appendfsync-on-rewrite no",
	"aof-load-truncated no",
	"maxmemory-policy noeviction",
	"repl-diskless-sync-delay 0",
	"shutdown-timeout 0",
}

// Redis starts a server that writes and fsyncs every command before it answers.
func Redis(t TB, options RedisOptions) *RedisServer {
	t.Helper()
	if options.Binary == "" {
		options.Binary = "redis-server"
	}
	binary := program(t, options.Binary)
	dir := t.TempDir()
	file := filepath.Join(dir, "redis.conf")
	s := &RedisServer{options: options}
	s.Server = start(t, kind{
		name: options.Binary,
		command: func(int) *exec.Cmd {
			cmd := exec.Command(binary, file)
			cmd.Dir = dir
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}, options.Env...)
			return cmd
		},
		ready: "Ready to accept connections",
		stop:  syscall.SIGTERM,
	}, dir, func(port int) {
		lines := append([]string{fmt.Sprintf("port %d", port), fmt.Sprintf("dir %q", dir)}, redisDefaults...)
		if options.Password != "" {
			lines = append(lines, fmt.Sprintf("requirepass %q", options.Password), fmt.Sprintf("masterauth %q", options.Password))
		}
		lines = append(lines, options.Config...)
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatalf("write %s: %v", file, err)
		}
	})
	return s
}

// URL is redis://127.0.0.1:port, with the password if there is one.
func (s *RedisServer) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.options.Password != "" {
		u.User = url.UserPassword("default", s.options.Password)
	}
	return u.String()
}

// Do sends one command on a connection of its own, to this very node, and returns its reply, within 10 s.
func (s *RedisServer) Do(args ...string) rueidis.RedisResult {
	s.t.Helper()
	client, err := s.client()
	if err != nil {
		s.t.Fatalf("connect to %s on %s: %v", s.kind.name, s.Addr(), err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.Do(ctx, client.B().Arbitrary(args...).Build())
}

// Must is Do for a command whose failure fails the test.
func (s *RedisServer) Must(args ...string) *rueidis.RedisMessage {
	s.t.Helper()
	message, err := s.Do(args...).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		s.t.Fatalf("%s on %s: %v", args[0], s.Addr(), err)
	}
	return &message
}

// Info returns one figure of INFO, "" if there is none of that name.
func (s *RedisServer) Info(name string) string {
	s.t.Helper()
	return s.infos()[name]
}

func (s *RedisServer) infos() map[string]string {
	s.t.Helper()
	text, err := s.Must("INFO", "everything").ToString()
	if err != nil {
		s.t.Fatalf("INFO on %s: %v", s.Addr(), err)
	}
	figures := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			figures[name] = value
		}
	}
	return figures
}

func (s *RedisServer) client() (rueidis.Client, error) {
	option := rueidis.ClientOption{
		InitAddress:       []string{s.Addr()},
		Password:          s.options.Password,
		ForceSingleClient: true,
		DisableCache:      true,
		DisableRetry:      true,
		ClientSetInfo:     rueidis.DisableClientSetInfo,
	}
	option.Dialer.Timeout = 5 * time.Second
	option.ConnWriteTimeout = 10 * time.Second
	return rueidis.NewClient(option)
}

// Replica starts a replica of a primary, with the primary's program and password where options name none, and returns when it
// has everything and follows.
func Replica(t TB, primary *RedisServer, options RedisOptions) *RedisServer {
	t.Helper()
	if options.Binary == "" {
		options.Binary = primary.options.Binary
	}
	if options.Password == "" {
		options.Password = primary.options.Password
	}
	options.Config = append([]string{fmt.Sprintf("replicaof 127.0.0.1 %d", primary.Port())}, options.Config...)
	replica := Redis(t, options)
	replica.primary = primary
	replica.AwaitReplication()
	return replica
}

// AwaitReplication returns when this replica has received everything that its primary has by now, follows it, and has its own
// file complete (which is what WAITAOF asks for).
func (s *RedisServer) AwaitReplication() {
	s.t.Helper()
	written, err := strconv.Atoi(s.primary.Info("master_repl_offset"))
	if err != nil {
		s.t.Fatalf("the offset of %s: %v", s.primary.Addr(), err)
	}
	await(s.t, startLimit, "replica on "+s.Addr()+" follows its primary", func() (bool, error) {
		info := s.infos()
		received, err := strconv.Atoi(info["slave_repl_offset"]) // right after the first copy the link is up, and nothing comes yet
		return received >= written && info["master_link_status"] == "up" && info["master_sync_in_progress"] == "0" &&
			info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0", err
	})
}

// Promote makes a replica a primary.
func (s *RedisServer) Promote() {
	s.t.Helper()
	s.Must("REPLICAOF", "NO", "ONE")
}
