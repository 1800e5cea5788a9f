package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/operation"
)

const (
	lease    = 2 * time.Second
	patience = 400 * time.Millisecond // of a client with the payments API

	killEvery = 1200 * time.Millisecond
	outage    = 200 * time.Millisecond
)

// counts is what happened on the way.
type counts struct {
	asked, charged, replayed, refused, timeouts, notSent, retries, unknown, kills atomic.Int64
}

// pay sends every order twice, in any order, from many clients at once, and
// kills what serves them meanwhile.
func (s *stage) pay(ctx context.Context) (*counts, error) {
	n := &counts{}
	tasks := make(chan string)
	go func() {
		defer close(tasks)
		for _, i := range rand.Perm(2 * orders) { //nolint:gosec // nothing secret depends on it.
			select {
			case tasks <- fmt.Sprintf("order-%04d", i/2):
			case <-ctx.Done():
				return
			}
		}
	}()
	done := make(chan struct{})
	var side sync.WaitGroup
	side.Go(func() { s.kill(done, n) })
	side.Go(func() { progress(done, n) })
	web := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	var crowd sync.WaitGroup
	for range clients {
		crowd.Go(func() {
			for order := range tasks {
				pause(ctx, time.Duration(rand.IntN(500))*time.Millisecond) //nolint:gosec // not all at once; nothing secret depends on it.
				s.payOrder(ctx, web, order, n)
			}
		})
	}
	crowd.Wait()
	close(done)
	side.Wait()
	if ctx.Err() != nil {
		return nil, errors.New("not done within the time limit")
	}
	return n, nil
}

// payOrder pays one order, and asks again until it has an answer.
func (s *stage) payOrder(ctx context.Context, web *http.Client, order string, n *counts) {
	for ctx.Err() == nil {
		n.asked.Add(1)
		ran, err := counterfoil.Run(ctx, s.caller, counterfoil.BeginParams{
			Key: order, Fingerprint: sha256.Sum256(fmt.Appendf(nil, "%s %d", order, price)), Lease: lease,
			Spend: []counterfoil.Entry{{Budget: name, Amount: price}},
		}, func(ctx context.Context, _ counterfoil.Begun) (counterfoil.Result, error) {
			return s.charge(ctx, web, order, n)
		})
		switch {
		case err == nil && ran.Begun.State == counterfoil.Replay:
			n.replayed.Add(1)
			return
		case err == nil && ran.Recorded:
			n.charged.Add(1)
			return
		case errors.Is(err, budget.ErrExceeded):
			n.refused.Add(1)
			return
		case errors.Is(err, operation.ErrOutcomeUnknown):
			n.unknown.Add(1)
			return
		}
		n.retries.Add(1)
		pause(ctx, time.Duration(50+rand.IntN(200))*time.Millisecond) //nolint:gosec // nothing secret depends on it.
	}
}

// charge asks the payments API. Only a connection that was never made proves
// that nothing was charged.
func (s *stage) charge(ctx context.Context, web *http.Client, order string, n *counts) (counterfoil.Result, error) {
	body, err := json.Marshal(map[string]any{"order": order, "amount": price})
	if err != nil {
		return counterfoil.Result{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.apiURL+"/charges", bytes.NewReader(body))
	if err != nil {
		return counterfoil.Result{}, err
	}
	answer, err := web.Do(request)
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		n.notSent.Add(1)
		return counterfoil.Result{}, counterfoil.NotPerformed(err)
	case err != nil:
		n.timeouts.Add(1)
		return counterfoil.Result{}, err
	}
	defer answer.Body.Close()
	receipt, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil || answer.StatusCode != http.StatusCreated {
		n.timeouts.Add(1)
		return counterfoil.Result{}, fmt.Errorf("the payments API answered %d: %w", answer.StatusCode, err)
	}
	return counterfoil.Result{Receipt: operation.Receipt{
		Status: answer.StatusCode, ContentType: answer.Header.Get("Content-Type"), Body: receipt, JSON: true,
	}}, nil
}

// kill ends server and payments API in turn, without warning, and starts them
// again.
func (s *stage) kill(done <-chan struct{}, n *counts) {
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		case <-time.After(killEvery):
		}
		p := []*process{s.server, s.api}[i%2]
		p.end(syscall.SIGKILL)
		n.kills.Add(1)
		<-time.After(outage)
		if err := p.start(); err != nil {
			fmt.Println("a killed process does not start again:", err)
			return
		}
	}
}

// progress prints a line a second.
func progress(done <-chan struct{}, n *counts) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Second):
			fmt.Printf("asked %5d  charged %4d  replayed %4d  refused %4d  no answer %3d  not sent %3d  again %4d  killed %d\n",
				n.asked.Load(), n.charged.Load(), n.replayed.Load(), n.refused.Load(), n.timeouts.Load(), n.notSent.Load(), n.retries.Load(), n.kills.Load())
		}
	}
}
