// Package faults loses machines under the product, and looks for an answer that was wrong.
package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/engine/redis"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

const (
	scope = "default"
	owner = "acme"
	calls = 8 // of each sort
)

// pair is a primary with its replica, and the product on them.
type pair struct {
	t                *testing.T
	primary, replica *testserver.RedisServer
	link             *testserver.FaultProxy // from the replica to its primary
	address          *testserver.FaultProxy // of the primary, for the product
	clock            *clock.Manual
	*counterfoil.Counterfoil
	counterfoil.Caller
	granted map[string]int // what was allowed, by name, and how often
}

func newPair(t *testing.T, binary string, replicas int) *pair {
	t.Helper()
	p := &pair{t: t, clock: clock.NewManual(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), granted: map[string]int{}}
	p.primary = testserver.Redis(t, testserver.RedisOptions{Binary: binary})
	p.link = testserver.Proxy(t, p.primary.Addr())
	host, port, err := net.SplitHostPort(p.link.Addr())
	p.must(err)
	p.replica = testserver.Replica(t, p.primary, testserver.RedisOptions{Config: []string{"replicaof " + host + " " + port}})
	p.address = testserver.Proxy(t, p.primary.Addr())
	url := "redis://" + p.address.Addr()
	o := redis.Options{Clock: p.clock, Replicas: replicas, ReplyTimeout: 4 * time.Second, ReplicaTimeout: time.Second}
	p.must(redis.Create(t.Context(), url, o))
	e, err := redis.Open(t.Context(), url, o)
	p.must(err)
	keys, err := keyring.NewMemory(keyring.Options{Clock: p.clock, Entropy: entropy.Seeded(1)}, scope)
	p.must(err)
	so := store.Options{Keys: keys.Integrity(), Clock: p.clock, Entropy: entropy.Seeded(2)}
	p.must(store.Create(t.Context(), e, so))
	p.Counterfoil, err = counterfoil.Open(t.Context(), e, keys, so, counterfoil.Options{})
	p.must(err)
	t.Cleanup(func() { p.must(p.Counterfoil.Close()) })
	p.Caller = p.As(scope, owner)
	return p
}

func (p *pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func call(name string, n int) permit.Expected {
	return permit.Expected{
		Subject: "agent", Capability: "pay", Server: "bank", Tool: "transfer", RequestID: fmt.Sprint(name, n), ParameterHash: strings.Repeat("0", 64),
	}
}

// authorize mints permits.
func (p *pair) authorize(name string) [][]byte {
	p.t.Helper()
	permits := make([][]byte, calls)
	for n := range permits {
		a, err := p.Authorize(p.t.Context(), counterfoil.AuthorizeParams{Call: call(name, n), TTL: time.Hour})
		p.must(err)
		permits[n] = a.Permit
	}
	return permits
}

// consume uses permits up, and counts each grant.
func (p *pair) consume(ctx context.Context, name string, permits [][]byte) []error {
	return together(func(n int) error {
		_, err := p.Consume(ctx, counterfoil.ConsumeParams{Permit: permits[n], Expected: call(name, n)})
		return err
	}, func(n int, err error) {
		if err == nil {
			p.granted[fmt.Sprint("permit ", name, n)]++
		}
	})
}

// execute begins operations, and completes those that it may execute.
func (p *pair) execute(ctx context.Context, name string) []error {
	states := make([]counterfoil.State, calls)
	return together(func(n int) error {
		begun, err := p.Begin(ctx, counterfoil.BeginParams{Key: fmt.Sprint(name, n), Fingerprint: counterfoil.Fingerprint{byte(n + 1)}})
		if err != nil {
			return err
		}
		if states[n] = begun.State; begun.State != counterfoil.Execute {
			return errReplay
		}
		_, err = p.Complete(ctx, counterfoil.CompleteParams{ID: begun.ID, Token: begun.Token, Receipt: operation.Receipt{Status: 200}})
		return err
	}, func(n int, _ error) {
		if states[n] == counterfoil.Execute {
			p.granted[fmt.Sprint("operation ", name, n)]++
		}
	})
}

var errReplay = errors.New("replayed")

// together makes the calls side by side, and counts their results one by one.
func together(act func(n int) error, result func(n int, err error)) []error {
	errs := make([]error, calls)
	var wg sync.WaitGroup
	for n := range errs {
		wg.Go(func() { errs[n] = act(n) })
	}
	wg.Wait()
	for n, err := range errs {
		result(n, err)
	}
	return errs
}

// all checks that every call ended in the same way; nil is success.
func (p *pair) all(what string, errs []error, want error) {
	p.t.Helper()
	for n, err := range errs {
		if !errors.Is(err, want) {
			p.t.Errorf("%s %d: %v, want %v", what, n, err, want)
		}
	}
}

// failOver kills the primary, and makes the replica take its place as it is.
func (p *pair) failOver() {
	p.t.Helper()
	p.primary.Kill()
	p.link.CutAll() // what the link still holds is lost
	p.replica.Promote()
	p.address.Retarget(p.replica.Addr())
	p.address.CutAll()
}

// answered repeats calls until none of them ends because the server is out of reach.
func (p *pair) answered(act func() []error) []error {
	p.t.Helper()
	limit := time.NewTimer(40 * time.Second)
	defer limit.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		errs := act()
		away := 0
		for _, err := range errs {
			if errors.Is(err, state.ErrUnavailable) || errors.Is(err, state.ErrUnknown) || errors.Is(err, permit.ErrUnavailable) || errors.Is(err, permit.ErrUnknown) {
				away++
			}
		}
		if away == 0 {
			return errs
		}
		select {
		case <-again.C:
		case <-limit.C:
			p.t.Fatalf("still out of reach: %v", errs)
		}
	}
}

// once checks that nothing was ever allowed twice.
func (p *pair) once() {
	p.t.Helper()
	for what, times := range p.granted {
		if times > 1 {
			p.t.Errorf("%s was granted %d times", what, times)
		}
	}
}

// TestFailoverThatLosesAcknowledgedStateGrantsNothingAgain has a replica take over that lacks the last changes, under the
// guarantee of one node: what was lost is refused, at the price of valid permits, until an operator has reconciled.
func TestFailoverThatLosesAcknowledgedStateGrantsNothingAgain(t *testing.T) {
	t.Parallel()
	for _, binary := range []string{"redis-server", "valkey-server"} {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			p := newPair(t, binary, 0)
			kept, lost, unused := p.authorize("kept"), p.authorize("lost"), p.authorize("unused")
			p.all("consume", p.consume(ctx, "kept", kept), nil)
			p.all("execute", p.execute(ctx, "kept"), nil)
			p.replica.AwaitReplication()
			p.link.Stall(testserver.Replies)
			p.all("consume", p.consume(ctx, "lost", lost), nil)
			p.all("execute", p.execute(ctx, "lost"), nil)
			p.failOver()

			p.all("begin again what was lost", p.answered(func() []error { return p.execute(ctx, "lost") }), state.ErrRecovering)
			p.all("begin again what was kept", p.execute(ctx, "kept"), errReplay)
			p.all("consume again what was lost", p.consume(ctx, "lost", lost), permit.ErrRevoked)
			p.notGranted("consume again what was kept", p.consume(ctx, "kept", kept))
			refused := p.consume(ctx, "unused", unused)
			p.all("consume a valid permit", refused, permit.ErrRevoked)
			t.Logf("%d acknowledged uses and %d operations were lost, none was granted again; %d of %d valid permits were refused", calls, calls, len(refused), calls)

			body, err := p.Store().Scope(ctx, scope)
			p.must(err)
			if body.Quarantine == "" {
				t.Error("the scope is not in quarantine")
			}
			// Permits from after the floor work at once, and everything once the operator has reconciled.
			p.clock.Advance(10 * time.Second)
			p.all("consume a permit from after the failover", p.consume(ctx, "after", p.authorize("after")), nil)
			p.must(p.Store().Lift(ctx, scope, "looked up in the bank's books", 0))
			p.all("execute after the quarantine", p.execute(ctx, "after"), nil)
			p.once()
		})
	}
}

func (p *pair) notGranted(what string, errs []error) {
	p.t.Helper()
	for n, err := range errs {
		if !errors.Is(err, permit.ErrReplayed) && !errors.Is(err, permit.ErrRevoked) {
			p.t.Errorf("%s %d: %v", what, n, err)
		}
	}
}

// TestFailoverUnderTheReplicatedGuaranteeLosesNothing has the same happen where an answer waits for the replica: there is
// no yes that it lacks, and no valid permit is refused.
func TestFailoverUnderTheReplicatedGuaranteeLosesNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, "valkey-server", 1)
	ctx := t.Context()
	kept, late, unused := p.authorize("kept"), p.authorize("late"), p.authorize("unused")
	p.all("consume", p.consume(ctx, "kept", kept), nil)
	p.all("execute", p.execute(ctx, "kept"), nil)
	p.link.Stall(testserver.Replies)
	brief, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for n, err := range append(p.consume(brief, "late", late), p.execute(brief, "late")...) {
		if err == nil || errors.Is(err, errReplay) {
			t.Errorf("call %d was answered without the replica: %v", n, err)
		}
	}
	p.failOver()
	testserver.Replica(t, p.replica, testserver.RedisOptions{}) // the operator gives the new primary a replica

	p.all("begin again", p.answered(func() []error { return p.execute(ctx, "kept") }), errReplay)
	p.all("consume again", p.consume(ctx, "kept", kept), permit.ErrReplayed)
	p.all("consume a valid permit", p.consume(ctx, "unused", unused), nil)
	p.consume(ctx, "late", late) // was unknown: it may be granted now, if it was not before
	p.execute(ctx, "late")
	body, err := p.Store().Scope(ctx, scope)
	p.must(err)
	if body.Quarantine != "" {
		t.Errorf("the scope is in quarantine: %s", body.Quarantine)
	}
	p.once()
}

// TestRestartOfTheServerIsNoLoss restarts the server, as by kill -9: its lineage changes, and nothing is refused.
func TestRestartOfTheServerIsNoLoss(t *testing.T) {
	t.Parallel()
	p := newPair(t, "redis-server", 0)
	ctx := t.Context()
	used, unused := p.authorize("used"), p.authorize("unused")
	p.all("consume", p.consume(ctx, "used", used), nil)
	p.all("execute", p.execute(ctx, "used"), nil)
	p.primary.Kill()
	p.primary.Start()
	p.all("begin again", p.answered(func() []error { return p.execute(ctx, "used") }), errReplay)
	p.all("consume again", p.consume(ctx, "used", used), permit.ErrReplayed)
	p.all("consume a valid permit", p.consume(ctx, "unused", unused), nil)
	p.all("execute", p.execute(ctx, "new"), nil)
	p.once()
}
