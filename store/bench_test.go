package store_test

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// BenchmarkClaim is a claim of an absent key in memory: what the store and the
// decision cost by themselves.
func BenchmarkClaim(b *testing.B) {
	e := memory.New(clock.System{})
	o := store.Options{Keys: keysOf(b, 1)}
	if err := store.Create(context.Background(), e, o); err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(context.Background(), e, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	var n atomic.Uint64
	body := make([]byte, 150)
	claimOne := func() {
		var id [16]byte
		binary.BigEndian.PutUint64(id[:], n.Add(1))
		out, err := s.Do(context.Background(), batch(state.Claim{
			Key: opKey(string(id[:])), Owner: "o", Token: state.Token(id), State: state.Pending, Body: body,
		}))
		if err != nil || !out.Applied {
			b.Error(err, out.Refusals)
		}
	}
	b.Run("1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			claimOne()
		}
	})
	b.Run("64", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				claimOne()
			}
		})
	})
}
