// Package testserver starts real Redis, Valkey and PostgreSQL servers for tests, and a proxy that loses, delays and cuts what
// passes through it. Each server listens on a free port of 127.0.0.1, keeps its files in a temporary directory of the test and
// is gone, with its files, when the test ends, even when the test binary dies.
//
// A server can be restarted, killed as by kill -9, and paused as by SIGSTOP; it keeps its address and its files through all of
// these:
//
//	server := testserver.Redis(t, testserver.RedisOptions{})
//	server.Kill()
//	server.Start()
//
// Whatever goes wrong with a server ends the test with the server's own last lines. A missing program is a failure that names
// the command which installs it, never a skip.
//
// It is for tests and measurements on Linux only. A server's methods are for one goroutine at a time, the proxy's for any
// number.
package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// TB is the part of testing.TB that servers need, so that a program which measures can offer it too.
type TB interface {
	Helper()
	Cleanup(f func())
	TempDir() string
	Failed() bool
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Limits on waiting. They are far above what an idle machine needs: they end a test that would otherwise hang.
const (
	startLimit = 30 * time.Second
	stopLimit  = 30 * time.Second
	pollEvery  = 2 * time.Millisecond
)

// program finds an executable by name in PATH or by pattern (the last match, so the newest version of several).
func program(t TB, name string, patterns ...string) string {
	t.Helper()
	for _, pattern := range patterns {
		if matches, err := filepath.Glob(pattern); err == nil && len(matches) > 0 {
			return slices.Max(matches)
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not installed; run make test (scripts/setup.sh installs it)", name)
	}
	return path
}

// Servers get ports below the range from which Linux serves outgoing connections, so that nobody else takes one while its
// server is down.
const (
	firstPort = 20000
	lastPort  = 32000
)

var ports = struct {
	sync.Mutex
	given map[int]bool
}{given: map[int]bool{}}

// freePort returns a port of 127.0.0.1 on which nobody listens and which no other server of this process was given.
func freePort(t TB) int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if ports.given[port] {
			continue
		}
		listener, err := net.Listen("tcp4", loopback(port))
		if err != nil {
			continue
		}
		listener.Close()
		ports.given[port] = true
		return port
	}
	t.Fatalf("no free port between %d and %d on 127.0.0.1", firstPort, lastPort)
	return 0
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// await asks until done says yes, and fails the test with done's last error, or with what it waited for, at the limit.
func await(t TB, limit time.Duration, what string, done func() (bool, error)) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	again := time.NewTicker(pollEvery)
	defer again.Stop()
	for {
		ok, err := done()
		if ok && err == nil {
			return
		}
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s (last error: %v)", limit, what, err)
		}
	}
}
