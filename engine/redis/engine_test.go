package redis

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/testserver"
)

var start = time.UnixMilli(1_700_000_000_000)

// serversClock says why a suite that has no clock of its own leaves clauses out.
var serversClock = map[string]string{
	"NowFollowsTheClock":                         "the clock is the server's own: TestEngineOnRedis",
	"NotAfterIsComparedWhenTheChangesAreApplied": "the clock is the server's own: TestClockOfTheServerIsComparedWhenTheChangesAreApplied",
}

func TestEngineOnRedis(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.Factory{New: func(t *testing.T) enginetest.Fixture {
		t.Helper()
		c := clock.NewManual(start)
		f := onServer(t, testserver.RedisOptions{}, Options{Clock: c})
		f.Clock = c
		return f
	}})
}

func TestEngineOnValkey(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.Factory{
		New: func(t *testing.T) enginetest.Fixture {
			t.Helper()
			return onServer(t, testserver.RedisOptions{Binary: "valkey-server", Password: "only-on-loopback"}, Options{})
		},
		Exceptions: serversClock,
	})
}

// actions are what a proxy does to the request that writes.
var actions = map[enginetest.Fault]testserver.Action{
	enginetest.FailedNotKept: testserver.Cut,
	enginetest.FailedButKept: testserver.CutReply,
	enginetest.ReplyLost:     testserver.SwallowReply,
}

// cuts are actions that end at once.
var cuts = map[enginetest.Fault]testserver.Action{
	enginetest.FailedNotKept: testserver.Cut,
	enginetest.FailedButKept: testserver.CutReply,
	enginetest.ReplyLost:     testserver.CutReply,
}

// onServer is an engine on a server of its own, which it reaches through a
// proxy that can lose what it sends.
func onServer(t *testing.T, so testserver.RedisOptions, o Options) enginetest.Fixture {
	t.Helper()
	server := testserver.Redis(t, so)
	proxy := testserver.Proxy(t, server.Addr())
	o.Password = so.Password
	o.ReplyTimeout = time.Second
	direct, through := "redis://"+server.Addr(), "redis://"+proxy.Addr()
	must(t, Create(t.Context(), direct, o))
	e := open(t, through, o)
	var struck *testserver.Armed
	return enginetest.Fixture{
		Engine: e,
		Second: func(t *testing.T) engine.Engine { t.Helper(); return open(t, direct, o) },
		Restart: func(t *testing.T) engine.Engine {
			t.Helper()
			server.Kill()
			server.Start()
			return open(t, through, o)
		},
		Fail: func(t *testing.T, fault enginetest.Fault) {
			t.Helper()
			struck = proxy.Arm(testserver.Fault{In: testserver.Requests, Match: isSwap, Do: actions[fault]})
		},
		Heal: func(t *testing.T) engine.Engine {
			t.Helper()
			<-struck.Fired()
			return e // the same one: it recovers without being opened again
		},
	}
}

// isSwap finds the request that writes.
func isSwap(b []byte) bool {
	return bytes.Contains(b, []byte(growScript.sha)) || bytes.Contains(b, []byte(shrinkScript.sha))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, url string, o Options) *Engine {
	t.Helper()
	e, err := Open(t.Context(), url, o)
	must(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

func TestEngineOnACluster(t *testing.T) {
	t.Parallel()
	const alone = "one server cannot be restarted under the others' tests: TestEngineOnRedis"
	exceptions := map[string]string{
		"RestartKeepsEverything":                             alone,
		"RestartKeepsWhatATransactionWithoutChangesHasShown": alone,
	}
	maps.Copy(exceptions, serversClock)
	cluster := testserver.RedisCluster(t, 3, 0, testserver.RedisOptions{})
	var stores atomic.Int64
	enginetest.Run(t, enginetest.Factory{
		New: func(t *testing.T) enginetest.Fixture {
			t.Helper()
			return onCluster(t, cluster, fmt.Sprintf("-%d-", stores.Add(1)))
		},
		Exceptions: exceptions,
	})
}

// onCluster is an engine on a cluster that it shares with others, which reaches
// each node through a proxy.
func onCluster(t *testing.T, cluster *testserver.Cluster, space string) enginetest.Fixture {
	t.Helper()
	proxies := map[string]*testserver.FaultProxy{}
	for _, node := range cluster.Masters {
		proxies[node.Addr()] = testserver.Proxy(t, node.Addr())
	}
	url := "redis://" + strings.Join(cluster.Addrs(), ",")
	o := Options{ReplyTimeout: 2 * time.Second, space: space}
	must(t, Create(t.Context(), url, o))
	direct := o
	o.dial = func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", proxies[address].Addr())
	}
	e := open(t, url, o)
	var armed []*testserver.Armed
	return enginetest.Fixture{
		Engine: e,
		Second: func(t *testing.T) engine.Engine { t.Helper(); return open(t, url, direct) },
		Fail: func(t *testing.T, fault enginetest.Fault) {
			t.Helper()
			armed = nil
			for _, proxy := range proxies {
				armed = append(armed, proxy.Arm(testserver.Fault{In: testserver.Requests, Match: isSwap, Do: actions[fault]}))
			}
		},
		Heal: func(t *testing.T) engine.Engine {
			t.Helper()
			select { // the scope is on one of the nodes
			case <-armed[0].Fired():
			case <-armed[1].Fired():
			case <-armed[2].Fired():
			}
			for _, a := range armed {
				a.Release()
			}
			return e
		},
	}
}

func TestEngineReplicated(t *testing.T) {
	t.Parallel()
	const alone = "one server cannot be restarted under the others' tests: TestReplicatedGuaranteeSurvivesThePrimary"
	exceptions := map[string]string{
		"RestartKeepsEverything":                             alone,
		"RestartKeepsWhatATransactionWithoutChangesHasShown": alone,
	}
	maps.Copy(exceptions, serversClock)
	primary := testserver.Redis(t, testserver.RedisOptions{Binary: "valkey-server"})
	testserver.Replica(t, primary, testserver.RedisOptions{})
	var stores atomic.Int64
	enginetest.Run(t, enginetest.Factory{
		New: func(t *testing.T) enginetest.Fixture {
			t.Helper()
			proxy := testserver.Proxy(t, primary.Addr())
			// On a busy machine a replica may take its time: a lost reply is one whose connection was cut.
			o := Options{Replicas: 1, ReplyTimeout: 20 * time.Second, ReplicaTimeout: 9 * time.Second, space: fmt.Sprintf("-%d-", stores.Add(1))}
			must(t, Create(t.Context(), primary.URL(), o))
			e := open(t, "redis://"+proxy.Addr(), o)
			var struck *testserver.Armed
			return enginetest.Fixture{
				Engine: e,
				Second: func(t *testing.T) engine.Engine { t.Helper(); return open(t, primary.URL(), o) },
				Fail: func(t *testing.T, fault enginetest.Fault) {
					t.Helper()
					struck = proxy.Arm(testserver.Fault{In: testserver.Requests, Match: isSwap, Do: cuts[fault]})
				},
				Heal: func(t *testing.T) engine.Engine { t.Helper(); <-struck.Fired(); return e },
			}
		},
		Exceptions: exceptions,
	})
}
