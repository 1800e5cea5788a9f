package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/store"
)

// guardClients are how many clients call at once.
var guardClients = []int{1, 32}

// payload is what a client sends and gets.
var payload = []byte(`{"amount":1999,"currency":"eur","reference":"invoice-2026-0815"}`)

// compareGuard prints what the guard of an HTTP API adds to a call, and what its proxy leaves of the rate of a plain one.
func (b bench) compareGuard() error {
	fmt.Printf("\nguard of an HTTP API: a handler called directly and guarded; p50 of a call in µs\n")
	fmt.Printf("%8s %10s %10s %10s %10s %10s %10s %10s %10s   CPU µs a call: direct, in memory, durable, 2 claims\n",
		"clients", "direct", "in memory", "added", "fsync", "2 claims", "durable", "added", "fsyncs")
	for _, n := range guardClients {
		if err := b.guardLatency(n); err != nil {
			return err
		}
	}
	fmt.Printf("\nproxy in front of an HTTP API, in memory, over TCP: requests/s\n")
	fmt.Printf("%8s %14s %14s %8s   CPU µs a request: ReverseProxy, guarded\n", "clients", "ReverseProxy", "guarded", "ratio")
	for _, n := range guardClients {
		if err := b.guardRate(n); err != nil {
			return err
		}
	}
	return nil
}

// latencies are those of the calls of one run.
type latencies struct {
	sync.Mutex
	all []time.Duration
}

func (l *latencies) p50() float64 {
	l.Lock()
	defer l.Unlock()
	if len(l.all) == 0 {
		return 0
	}
	slices.Sort(l.all)
	return float64(l.all[len(l.all)/2].Nanoseconds()) / 1000
}

// timed measures each call of the callers.
func (b bench) timed(callers int, call func(int) func() error) (measure, float64, error) {
	seen := new(latencies)
	m, err := b.rate(callers, func(i int) func() error {
		one := call(i)
		return func() error {
			begin := time.Now()
			err := one()
			took := time.Since(begin)
			seen.Lock()
			seen.all = append(seen.all, took)
			seen.Unlock()
			return err
		}
	})
	return m, seen.p50(), err
}

func (b bench) guardLatency(clients int) error {
	var direct, inMemory, durable, claims, fsync, cpu0, cpu1, cpu2, cpu3 []float64
	for range b.runs {
		m, p50, err := b.timed(clients, serving(payments()))
		if err != nil {
			return err
		}
		direct, cpu0 = append(direct, p50), append(cpu0, m.cpu)
		if m, p50, err = b.guardedBy(clients, b.coreInMemory); err != nil {
			return err
		}
		inMemory, cpu1 = append(inMemory, p50), append(cpu1, m.cpu)
		if m, p50, err = b.guardedBy(clients, b.coreOnDisk); err != nil {
			return err
		}
		durable, cpu2 = append(durable, p50), append(cpu2, m.cpu)
		if m, p50, err = b.claimsOnDisk(clients); err != nil {
			return err
		}
		claims, cpu3 = append(claims, 2*p50), append(cpu3, 2*m.cpu)
		if p50, err = b.oneFsync(); err != nil {
			return err
		}
		fsync = append(fsync, p50)
	}
	d, one := median(direct), median(fsync)
	fmt.Printf("%8d %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f %10.2f   %10.1f %10.1f %10.1f %10.1f\n", clients, d, median(inMemory), median(inMemory)-d,
		one, median(claims), median(durable), median(durable)-d, (median(durable)-d)/one, median(cpu0), median(cpu1), median(cpu2), median(cpu3))
	return nil
}

// claimsOnDisk measures the core's own claim: a guarded call commits twice.
func (b bench) claimsOnDisk(clients int) (m measure, p50 float64, err error) {
	core, remove, err := b.coreOnDisk()
	if err != nil {
		return m, 0, err
	}
	defer remove()
	claim, err := claiming(core)
	if err != nil {
		return m, 0, err
	}
	m, p50, err = b.timed(clients, claim)
	if closeErr := core.Close(); err == nil {
		err = closeErr
	}
	return m, p50, err
}

// oneFsync measures one caller of the bare loop.
func (b bench) oneFsync() (p50 float64, err error) {
	dir, err := os.MkdirTemp(b.dir, "fsync")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	l, err := newBareLoop(dir)
	if err != nil {
		return 0, err
	}
	_, p50, err = b.timed(1, func(int) func() error {
		record := make([]byte, 300)
		return func() error { return l.call(&appending{record: record, answer: make(chan error, 1)}) }
	})
	if closeErr := l.close(); err == nil {
		err = closeErr
	}
	return p50, err
}

// payments is a handler that does nothing but answer.
func payments() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = []string{"application/json"}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(payload)
	})
}

var guardCalls atomic.Int64

// serving makes callers of a handler without a network.
func serving(handler http.Handler) func(int) func() error {
	return func(int) func() error {
		return func() error {
			r := httptest.NewRequest(http.MethodPost, "/v1/payments", bytes.NewReader(payload))
			r.Header["Idempotency-Key"] = []string{"order-" + strconv.FormatInt(guardCalls.Add(1), 10)}
			r.Header["X-Api-Key"] = []string{"secret"}
			r.Header["Content-Type"] = []string{"application/json"}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != http.StatusCreated {
				return fmt.Errorf("answer %d: %s", w.Code, w.Body)
			}
			return nil
		}
	}
}

// guardedBy measures the guarded handler on a core.
func (b bench) guardedBy(clients int, open func() (*counterfoil.Counterfoil, func(), error)) (m measure, p50 float64, err error) {
	core, remove, err := open()
	if err != nil {
		return m, 0, err
	}
	defer remove()
	guard, err := guardOn(core)
	if err != nil {
		return m, 0, err
	}
	stop, err := b.startProfile()
	if err != nil {
		return m, 0, err
	}
	m, p50, err = b.timed(clients, serving(guard.Handler(payments())))
	stop()
	if closeErr := core.Close(); err == nil {
		err = closeErr
	}
	return m, p50, err
}

func guardOn(core *counterfoil.Counterfoil) (*httpguard.Guard, error) {
	return httpguard.New(httpguard.Options{
		As: func(owner string) counterfoil.Caller { return core.As(scope, owner) }, Identify: httpguard.Header("X-Api-Key"),
	})
}

func (b bench) coreInMemory() (*counterfoil.Counterfoil, func(), error) {
	keys, err := keyring.NewMemory(keyring.Options{}, scope)
	if err != nil {
		return nil, nil, err
	}
	engine := memory.New(clock.System{})
	if err := store.Create(context.Background(), engine, store.Options{Keys: keys.Integrity()}); err != nil {
		return nil, nil, err
	}
	core, err := counterfoil.Open(context.Background(), engine, keys, store.Options{}, counterfoil.Options{})
	return core, func() {}, err
}

func (b bench) coreOnDisk() (*counterfoil.Counterfoil, func(), error) {
	dir, err := os.MkdirTemp(b.dir, "guard")
	if err != nil {
		return nil, nil, err
	}
	keys, err := keyring.NewMemory(keyring.Options{}, scope)
	if err != nil {
		return nil, nil, err
	}
	core, _, err := openCore(dir, keys)
	return core, func() { _ = os.RemoveAll(dir) }, err // a temporary directory
}

// guardRate compares both proxies in front of one server.
func (b bench) guardRate(clients int) error {
	upstream := httptest.NewServer(payments())
	defer upstream.Close()
	to, err := url.Parse(upstream.URL)
	if err != nil {
		return err
	}
	var plain, guarded series
	for range b.runs {
		transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
		m, err := b.over(clients, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport})
		transport.CloseIdleConnections()
		if err != nil {
			return err
		}
		plain.add(m)
		if m, err = b.proxied(clients, to); err != nil {
			return err
		}
		guarded.add(m)
	}
	fmt.Printf("%8d %14.0f %14.0f %7.0f%% %14.1f %10.1f\n", clients, plain.rate(), guarded.rate(), 100*guarded.rate()/plain.rate(), plain.cpu(), guarded.cpu())
	return nil
}

// proxied measures the guard in front of the server.
func (b bench) proxied(clients int, to *url.URL) (m measure, err error) {
	core, _, err := b.coreInMemory()
	if err != nil {
		return m, err
	}
	guard, err := guardOn(core)
	if err != nil {
		return m, err
	}
	proxy, err := httpguard.NewProxy(httpguard.ProxyOptions{Upstream: to})
	if err != nil {
		return m, err
	}
	stop, err := b.startProfile()
	if err != nil {
		return m, err
	}
	m, err = b.over(clients, guard.Handler(proxy))
	stop()
	if closeErr := core.Close(); err == nil {
		err = closeErr
	}
	return m, err
}

// over measures a handler over TCP, each client with a connection of its own.
func (b bench) over(clients int, handler http.Handler) (measure, error) {
	front := httptest.NewServer(handler)
	defer front.Close()
	return b.rate(clients, func(int) func() error {
		transport := &http.Transport{DialContext: (&net.Dialer{}).DialContext, DisableCompression: true}
		return func() error {
			r, err := http.NewRequest(http.MethodPost, front.URL+"/v1/payments", bytes.NewReader(payload))
			if err != nil {
				return err
			}
			r.Header["Idempotency-Key"] = []string{"order-" + strconv.FormatInt(guardCalls.Add(1), 10)}
			r.Header["X-Api-Key"] = []string{"secret"}
			r.Header["Content-Type"] = []string{"application/json"}
			answer, err := transport.RoundTrip(r)
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			if answer.StatusCode != http.StatusCreated {
				err = fmt.Errorf("answer %d", answer.StatusCode)
			}
			_ = answer.Body.Close()
			return err
		}
	})
}
