package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/store"
)

// permitBench compares what the use of a permit costs, in memory, with the least that it can cost: the canonical JSON of
// its nonce and one verification of its signature.
type permitBench struct {
	permits  *permit.Permits
	expected permit.Expected
	issuer   ed25519.PublicKey
	wires    [][]byte // fresh permits
	bare     []signed // the same, cut up beforehand
	next     atomic.Int64
}

// signed is a nonce as JSON, and its signature.
type signed struct {
	nonce     []byte
	signature [ed25519.SignatureSize]byte
}

// comparePermits prints one line for each number of callers.
func comparePermits(runs, calls int, callers []int) error {
	fmt.Printf("\n%8s %12s %12s %8s %12s %8s   CPU µs a call: bare, check, consume\n", "callers", "bare µs", "check µs", "ratio", "consume µs", "ratio")
	for _, n := range callers {
		var wall, cpu [3][]float64
		for range runs {
			b, closing, err := newPermitBench(calls)
			if err != nil {
				return err
			}
			for i, call := range []func() error{b.verifyBare, b.check, b.consume} {
				b.next.Store(0)
				runtime.GC()
				perCall, perCPU, err := repeat(calls, n, call)
				if err != nil {
					return err
				}
				wall[i], cpu[i] = append(wall[i], perCall), append(cpu[i], perCPU)
			}
			if err := closing(); err != nil {
				return err
			}
		}
		bare, check, consume := median(wall[0]), median(wall[1]), median(wall[2])
		fmt.Printf("%8d %12.1f %12.1f %7.2fx %12.1f %7.2fx %12.1f %8.1f %8.1f\n", n, bare, check, check/bare, consume, consume/bare,
			median(cpu[0]), median(cpu[1]), median(cpu[2]))
	}
	return nil
}

func newPermitBench(n int) (*permitBench, func() error, error) {
	ctx := context.Background()
	keys, err := keyring.NewMemory(keyring.Options{}, scope)
	if err != nil {
		return nil, nil, err
	}
	options := store.Options{Keys: keys.Integrity()}
	engine := memory.New(clock.System{})
	if err := store.Create(ctx, engine, options); err != nil {
		return nil, nil, err
	}
	s, err := store.Open(ctx, engine, options)
	if err != nil {
		return nil, nil, err
	}
	hash, err := permit.ParameterHash([]byte(`{"path":"/workspace/docs/roadmap.md","mode":"read"}`))
	if err != nil {
		return nil, nil, err
	}
	b := &permitBench{permits: permit.New(s, keys, permit.Options{}), issuer: keys.Accepted(scope)[0]}
	b.expected = permit.Expected{
		Subject: "agent-7", Capability: "cap-files", Server: "files.example", Tool: "read_file", RequestID: "req-1", ParameterHash: hash,
	}
	key, err := keys.SigningKey(scope)
	if err != nil {
		return nil, nil, err
	}
	for range n {
		// Signed as by another process: one's own are known to be good without being verified.
		nonce, err := permit.NewNonce(permit.Binding{
			SubjectID: b.expected.Subject, RequestID: b.expected.RequestID, CapabilityID: b.expected.Capability,
			ToolServer: b.expected.Server, ToolName: b.expected.Tool, ParameterHash: b.expected.ParameterHash,
		}, time.Now(), time.Hour, s)
		if err != nil {
			return nil, nil, err
		}
		p, err := permit.Sign(key, nonce)
		if err != nil {
			return nil, nil, err
		}
		wire := permit.Encode(p)
		b.wires = append(b.wires, wire)
		b.bare = append(b.bare, signed{wire[len(`{"nonce":`) : len(wire)-len(`,"signature":""}`)-2*ed25519.SignatureSize], p.Signature})
	}
	return b, s.Close, nil
}

func (b *permitBench) verifyBare() error {
	s := &b.bare[b.next.Add(1)-1]
	text, err := canonical.Transform(nil, s.nonce)
	if err != nil {
		return err
	}
	if !ed25519.Verify(b.issuer, text, s.signature[:]) {
		return permit.ErrInvalidSignature
	}
	return nil
}

func (b *permitBench) check() error {
	_, err := b.permits.Check(context.Background(), permit.CheckParams{Scope: scope, Permit: b.wires[b.next.Add(1)-1], Expected: b.expected})
	return err
}

func (b *permitBench) consume() error {
	_, err := b.permits.Consume(context.Background(), permit.UseParams{
		Scope: scope, Owner: "default", Permit: b.wires[b.next.Add(1)-1], Expected: b.expected,
	})
	return err
}

// repeat makes so many calls from so many callers, and gives the microseconds for one: of the clock, as many callers as
// there are CPUs taken together, and of all CPUs.
func repeat(calls, callers int, call func() error) (wall, cpu float64, err error) {
	var left atomic.Int64
	left.Store(int64(calls))
	var failed atomic.Pointer[error]
	var done sync.WaitGroup
	begin, before := time.Now(), cpuTime()
	for range callers {
		done.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	done.Wait()
	elapsed, used := time.Since(begin), cpuTime()-before
	if err := failed.Load(); err != nil {
		return 0, 0, *err
	}
	return float64(elapsed.Nanoseconds()) / 1000 / float64(calls), float64(used.Nanoseconds()) / 1000 / float64(calls), nil
}
