package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/server"
)

// connections are open to the server at a time, each with one request in progress.
const connections = 64

// compareHTTP prints how many pairs of begin and complete a server answers, durable on Pebble, beside a Go server that
// only parses and answers the same bodies. The clients run in this process too.
func (b bench) compareHTTP() error {
	var bare, whole series
	var bareTimes, wholeTimes [2][]float64
	for range b.runs {
		m, t, err := b.onBareServer()
		if err != nil {
			return err
		}
		bare.add(m)
		bareTimes[0], bareTimes[1] = append(bareTimes[0], t.at(0.50)), append(bareTimes[1], t.at(0.99))
		if m, t, err = b.onServer(); err != nil {
			return err
		}
		whole.add(m)
		wholeTimes[0], wholeTimes[1] = append(wholeTimes[0], t.at(0.50)), append(wholeTimes[1], t.at(0.99))
	}
	fmt.Printf("\nHTTP begin + complete, %d connections, ms a pair\n%14s %8s %8s %14s %8s %8s %8s   CPU µs a pair, clients included: bare server, pairs\n",
		connections, "bare server/s", "p50", "p99", "pairs/s", "p50", "p99", "ratio")
	fmt.Printf("%14.0f %8.1f %8.1f %14.0f %8.1f %8.1f %7.0f%% %12.0f %8.0f\n",
		bare.rate(), median(bareTimes[0]), median(bareTimes[1]), whole.rate(), median(wholeTimes[0]), median(wholeTimes[1]),
		100*whole.rate()/bare.rate(), bare.cpu(), whole.cpu())
	return nil
}

// onServer measures pairs on a server as counterfoil serve runs it, with a fresh store on Pebble.
func (b bench) onServer() (m measure, t times, err error) {
	dir, err := os.MkdirTemp(b.dir, "store")
	if err != nil {
		return m, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	keys, err := keyring.NewMemory(keyring.Options{}, scope)
	if err != nil {
		return m, nil, err
	}
	c, _, err := openCore(dir, keys)
	if err != nil {
		return m, nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	tokens, err := access.New(c.Store(), keys, nil)
	if err != nil {
		return m, nil, err
	}
	operator, err := access.Operator(scope, "bench")
	if err != nil {
		return m, nil, err
	}
	_, token, err := tokens.Create(context.Background(), operator, access.Grant{
		Name: "bench", Scope: scope, Owner: "bench", Roles: []access.Role{access.Operate},
	})
	if err != nil {
		return m, nil, err
	}
	s, err := server.New(server.Options{Access: tokens, Store: c.Store(), Keys: keys, Core: c})
	if err != nil {
		return m, nil, err
	}
	stop, err := b.startProfile()
	if err != nil {
		return m, nil, err
	}
	defer stop()
	return b.pairs(token.Reveal(), s.Serve)
}

// onBareServer measures pairs on a server that parses the bodies and answers as many bytes, and keeps nothing.
func (b bench) onBareServer() (measure, times, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/operations", func(w http.ResponseWriter, r *http.Request) {
		bareAnswer(w, r, http.StatusCreated, func(req *api.BeginRequest) any {
			now := api.TimeOf(time.Now().UnixMilli())
			return &api.BeginAnswer{State: api.StateExecute, Operation: api.Grant{
				ID: bareID, Key: req.Key, Token: bareToken, Fence: uint64(time.Now().UnixMicro()), LeaseUntil: now, CreatedAt: now,
			}}
		})
	})
	mux.HandleFunc("POST /v1/operations/{id}/complete", func(w http.ResponseWriter, r *http.Request) {
		bareAnswer(w, r, http.StatusOK, func(*api.CompleteRequest) any {
			return &api.CompleteAnswer{Recorded: true, ReceiptExpiresAt: api.TimeOf(time.Now().UnixMilli())}
		})
	})
	return b.pairs("cf_0123456789012345678901234567890123456789012", func(ctx context.Context, l net.Listener) error {
		h := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		closed := make(chan error, 1)
		go func() { closed <- h.Serve(l) }()
		<-ctx.Done()
		if err := h.Close(); err != nil {
			return err
		}
		if err := <-closed; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// What a bare server answers, of the lengths that a real one has.
const (
	bareID    api.Digest = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	bareToken api.Token  = "000102030405060708090a0b0c0d0e0f"
)

func bareAnswer[T any](w http.ResponseWriter, r *http.Request, status int, answer func(*T) any) {
	body, err := io.ReadAll(r.Body)
	req := new(T)
	if err == nil {
		err = json.Unmarshal(body, req)
	}
	if err == nil {
		body, err = json.Marshal(answer(req))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client finds out
}

// pairs serves on loopback and measures clients that begin and complete one operation after another.
func (b bench) pairs(token string, serve func(context.Context, net.Listener) error) (m measure, all times, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return m, nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- serve(ctx, l) }()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
	}()
	clients := make([]*pairClient, connections)
	for i := range clients {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return m, nil, err
		}
		defer conn.Close()
		clients[i] = &pairClient{conn: conn, in: bufio.NewReader(conn), head: "Host: bench\r\nAuthorization: Bearer " + token + "\r\nContent-Type: application/json\r\n"}
	}
	var keys atomic.Int64
	var mu sync.Mutex
	m, err = b.rate(connections, func(i int) func() error {
		return func() error {
			began := time.Now()
			if err := clients[i].pair(keys.Add(1)); err != nil {
				return err
			}
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took)
			return nil
		}
	})
	return m, all, err
}

// pairClient sends requests over one connection. It does as little as a client can: what it uses of the CPU the server
// lacks.
type pairClient struct {
	conn net.Conn
	in   *bufio.Reader
	head string
	out  bytes.Buffer
}

func (c *pairClient) pair(n int64) error {
	body, err := c.post("/v1/operations", `{"key":"order-`+strconv.FormatInt(n, 10)+`","request":{"amount":1999,"currency":"eur","to":"acct-77"}}`, http.StatusCreated)
	if err != nil {
		return err
	}
	var begun struct{ Operation struct{ ID, Token string } }
	if err := json.Unmarshal(body, &begun); err != nil {
		return err
	}
	_, err = c.post("/v1/operations/"+begun.Operation.ID+"/complete",
		`{"token":"`+begun.Operation.Token+`","receipt":{"status":200,"body":{"paid":true,"reference":"tr-000001"}}}`, http.StatusOK)
	return err
}

func (c *pairClient) post(path, body string, want int) ([]byte, error) {
	c.out.Reset()
	c.out.WriteString("POST " + path + " HTTP/1.1\r\n" + c.head + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	if _, err := c.conn.Write(c.out.Bytes()); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != want {
		err = fmt.Errorf("%s answers %d: %s", path, res.StatusCode, answer)
	}
	return answer, err
}

// times are how long each pair took.
type times []time.Duration

// at gives the time within which that part of the pairs was answered, in ms.
func (t times) at(part float64) float64 {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return float64(sorted[int(part*float64(len(sorted)-1))].Microseconds()) / 1000
}
