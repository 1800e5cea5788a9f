package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/engine/pebble"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// hotBudgets are shared by all callers.
const hotBudgets = 4

// compareGuarded prints what a whole guarded call costs beside three claims, which is as many commits.
func (b bench) compareGuarded(callers []int) error {
	fmt.Printf("\n%8s %16s %16s %8s   CPU µs a call: 3 claims, guarded\n", "callers", "3 claims µs", "guarded call µs", "ratio")
	for _, n := range callers {
		var claims, calls, claimsCPU, callsCPU []float64
		for range b.runs {
			m, err := b.onStore(n, claiming)
			if err != nil {
				return err
			}
			claims, claimsCPU = append(claims, 3e6*float64(n)/m.rate), append(claimsCPU, 3*m.cpu)
			if m, err = b.onStore(n, guarding); err != nil {
				return err
			}
			calls, callsCPU = append(calls, 1e6*float64(n)/m.rate), append(callsCPU, m.cpu)
		}
		fmt.Printf("%8d %16.0f %16.0f %7.2fx %13.1f %8.1f\n", n, median(claims), median(calls), median(calls)/median(claims), median(claimsCPU), median(callsCPU))
	}
	return nil
}

// onStore measures one kind of call on a fresh store on Pebble.
func (b bench) onStore(callers int, kind func(*counterfoil.Counterfoil) (func(int) func() error, error)) (m measure, err error) {
	dir, err := os.MkdirTemp(b.dir, "store")
	if err != nil {
		return m, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	keys, err := keyring.NewMemory(keyring.Options{}, scope)
	if err != nil {
		return m, err
	}
	c, engine, err := openCore(dir, keys)
	if err != nil {
		return m, err
	}
	caller, err := kind(c)
	if err != nil {
		return m, err
	}
	stop, err := b.startProfile()
	if err != nil {
		return m, err
	}
	defer stop()
	before := logBytes(engine)
	m, err = b.rate(callers, caller)
	m.bytes = (logBytes(engine) - before) / m.calls
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	return m, err
}

// openCore makes a fresh store on Pebble.
func openCore(dir string, keys *keyring.Keyring) (*counterfoil.Counterfoil, *pebble.Engine, error) {
	ctx := context.Background()
	engine, err := openPebble(dir)
	if err != nil {
		return nil, nil, err
	}
	if err := store.Create(ctx, engine, store.Options{Keys: keys.Integrity()}); err != nil {
		return nil, nil, err
	}
	c, err := counterfoil.Open(ctx, engine, keys, store.Options{}, counterfoil.Options{})
	return c, engine, err
}

// startProfile begins the CPU profile if one is asked for.
func (b bench) startProfile() (stop func(), err error) {
	if b.profile == "" {
		return func() {}, nil
	}
	file, err := os.Create(b.profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: the profile:", err)
		}
	}, nil
}

// claiming makes callers of the core's claim: a marker with a body of 150 bytes.
func claiming(c *counterfoil.Counterfoil) (func(int) func() error, error) {
	expires := time.Now().Add(time.Hour).UnixMilli()
	return func(int) func() error {
		r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		return func() error {
			claim := state.Claim{
				Key: state.Key{Scope: scope, Kind: state.KindMarker}, Owner: "bench", State: state.Settled, Expires: expires, Body: make([]byte, 150),
			}
			var id [32]byte
			for i := 0; i < len(id); i += 8 {
				binary.LittleEndian.PutUint64(id[i:], r.Uint64())
			}
			claim.Key.ID = string(id[:])
			copy(claim.Token[:], id[:])
			out, err := c.Store().Do(context.Background(), &state.Batch{Scope: scope, Ops: []state.Op{claim}})
			if err == nil && !out.Applied {
				err = fmt.Errorf("claim: %s", out.Refusals[0].Reason)
			}
			return err
		}
	}, nil
}

// guarding makes callers of whole guarded calls: a permit with a hold on a hot budget, the begin that uses it, and the
// complete that captures it.
func guarding(c *counterfoil.Counterfoil) (func(int) func() error, error) {
	ctx := context.Background()
	for n := range hotBudgets {
		_, err := c.Budgets.Define(ctx, budget.DefineParams{Scope: scope, Definition: budget.Definition{
			Name: hot(n), Unit: "cent", Limit: budget.MaxAmount, Window: budget.Window{Kind: budget.Lifetime},
		}})
		if err != nil {
			return nil, err
		}
	}
	hash, err := permit.ParameterHash([]byte(`{"amount":1999,"currency":"eur"}`))
	if err != nil {
		return nil, err
	}
	var calls atomic.Int64
	caller := c.As(scope, "bench")
	return func(int) func() error {
		return func() error { return guard(ctx, caller, calls.Add(1), hash) }
	}, nil
}

func hot(n int) string { return "hot/" + strconv.Itoa(n) }

func guard(ctx context.Context, caller counterfoil.Caller, n int64, hash string) error {
	request := "order-" + strconv.FormatInt(n, 10)
	call := permit.Expected{Subject: "agent-7", Capability: "pay", Server: "bank.example", Tool: "transfer", RequestID: request, ParameterHash: hash}
	a, err := caller.Authorize(ctx, counterfoil.AuthorizeParams{Call: call, Hold: []counterfoil.Entry{{Budget: hot(int(n % hotBudgets)), Amount: 20}}})
	if err != nil {
		return err
	}
	begun, err := caller.Begin(ctx, counterfoil.BeginParams{
		Key: request, Fingerprint: counterfoil.Fingerprint{1}, Permit: a.Permit, Expected: call,
	})
	if err != nil {
		return err
	}
	_, err = caller.Complete(ctx, counterfoil.CompleteParams{
		ID: begun.ID, Token: begun.Token, Receipt: operation.Receipt{Status: 200, Body: []byte(`{"paid":true}`)},
		Capture: &[]counterfoil.Entry{{Budget: hot(int(n % hotBudgets)), Amount: 15}},
	})
	return err
}
