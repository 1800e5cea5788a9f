package testserver_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/internal/testserver"
)

// both are the programs that every Redis test runs with.
var both = []string{"redis-server", "valkey-server"}

func TestRedisKeepsAcknowledgedWritesThroughRestartAndKill(t *testing.T) {
	t.Parallel()
	for _, binary := range both {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t, testserver.RedisOptions{Binary: binary, Password: "secret"})
			addr := server.Addr()
			for _, step := range []struct {
				name string
				do   func()
			}{
				{"restart", server.Restart},
				{"kill", func() { server.Kill(); server.Start() }},
			} {
				server.Must("SET", "key", step.name)
				before := server.PID()
				step.do()
				if server.PID() == before {
					t.Errorf("after %s: still process %d", step.name, before)
				}
				if got, err := server.Must("GET", "key").ToString(); err != nil || got != step.name {
					t.Errorf("after %s: key is %q (%v), want %q", step.name, got, err, step.name)
				}
			}
			if server.Addr() != addr {
				t.Errorf("moved from %s to %s", addr, server.Addr())
			}
			if want := "redis://default:secret@" + addr; server.URL() != want {
				t.Errorf("URL is %s, want %s", server.URL(), want)
			}
		})
	}
}

func TestRedisRunsWithSafeSettingsUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	safe := testserver.Redis(t, testserver.RedisOptions{})
	weak := testserver.Redis(t, testserver.RedisOptions{Config: []string{"appendfsync everysec", "maxmemory 50mb"}})
	for _, c := range []struct {
		server        *testserver.RedisServer
		setting, want string
	}{
		{safe, "appendonly", "yes"},
		{safe, "appendfsync", "always"},
		{safe, "no-appendfsync-on-rewrite", "no"},
		{safe, "aof-load-truncated", "no"},
		{safe, "maxmemory-policy", "noeviction"},
		{weak, "appendonly", "yes"},
		{weak, "appendfsync", "everysec"},
		{weak, "maxmemory", strconv.Itoa(50 << 20)},
	} {
		got, err := c.server.Must("CONFIG", "GET", c.setting).AsStrMap()
		if err != nil || got[c.setting] != c.want {
			t.Errorf("%s is %q (%v), want %q", c.setting, got[c.setting], err, c.want)
		}
	}
}

func TestPausedRedisIsSilentAndGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	server.Pause()
	conn := dial(t, server.Addr())
	send(t, conn, "PING\r\n")
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 16)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a paused server's read ended with %v, want the deadline", err)
	}
	server.Resume()
	expect(t, conn, "+PONG\r\n")
	server.Pause()
	server.Kill() // A paused server can be killed too.
	if _, err := net.Dial("tcp", server.Addr()); err == nil {
		t.Error("a killed server still accepts connections")
	}
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	server.Stop()
	if err := os.WriteFile(server.Dir()+"/redis.conf", []byte("no-such-setting yes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Launch(); err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("Launch says %v, want the server's own words", err)
	}
}

func TestReplicaFollowsAndIsPromoted(t *testing.T) {
	t.Parallel()
	for _, binary := range both {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			primary := testserver.Redis(t, testserver.RedisOptions{Binary: binary, Password: "secret"})
			primary.Must("SET", "early", "1")
			replica := testserver.Replica(t, primary, testserver.RedisOptions{})
			if got, _ := replica.Must("GET", "early").ToString(); got != "1" {
				t.Errorf("the replica started without what was there: %q", got)
			}
			conn := dial(t, primary.Addr())
			send(t, conn, "AUTH secret\r\nSET late 1\r\n")
			expect(t, conn, "+OK\r\n+OK\r\n")
			if binary == "valkey-server" { // Redis 7.0 has no WAITAOF.
				send(t, conn, "WAITAOF 1 1 5000\r\n")
				expect(t, conn, "*2\r\n:1\r\n:1\r\n")
			} else {
				send(t, conn, "WAIT 1 5000\r\n")
				expect(t, conn, ":1\r\n")
			}
			oldID := primary.Info("master_replid")
			primary.Kill()
			replica.Promote()
			replica.Must("SET", "after", "1")
			if got, _ := replica.Must("GET", "late").ToString(); got != "1" {
				t.Errorf("the promoted replica lost an acknowledged key: %q", got)
			}
			if replica.Info("master_replid2") != oldID || replica.Info("master_replid") == oldID {
				t.Errorf("promotion did not change the replication id: %s", oldID)
			}
		})
	}
}

func TestClusterServesMovesASlotAndSurvivesAMaster(t *testing.T) {
	t.Parallel()
	for _, binary := range both {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			cluster := testserver.RedisCluster(t, 3, 1, testserver.RedisOptions{
				Binary: binary, Config: []string{"cluster-node-timeout 500", "cluster-replica-validity-factor 0"},
			})
			slot := cluster.Slot("key") // 12539: the third master's
			from, to := cluster.Masters[2], cluster.Masters[0]
			from.Must("SET", "key", "1")
			cluster.MoveSlot(slot, from, to)
			if got, err := to.Must("GET", "key").ToString(); err != nil || got != "1" {
				t.Errorf("the key did not move with its slot: %q, %v", got, err)
			}
			if err := from.Do("GET", "key").Error(); err == nil || !strings.HasPrefix(err.Error(), "MOVED "+strconv.Itoa(slot)) {
				t.Errorf("the old owner says %v, want MOVED", err)
			}

			replica := cluster.Replicas[1] // of the master that is killed
			cluster.Masters[1].Kill()
			await(t, "the replica takes over", func() bool { return replica.Info("role") == "master" })
			cluster.AwaitHealthy()
		})
	}
}

// await asks until done says yes, at most 20 s.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !done() {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatalf("send %q: %v", text, err)
	}
}
