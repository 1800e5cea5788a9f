package budget_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// distant lets others run before a transaction, as an engine does that waits for a disk or a network.
type distant struct{ engine.Engine }

func (e distant) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	runtime.Gosched()
	return e.Engine.Transact(ctx, keys, fn)
}

// BenchmarkSpend is a spend from budgets that everybody spends from, in memory: what it costs beside the disk.
func BenchmarkSpend(b *testing.B) {
	e := distant{memory.New(clock.System{})}
	o := store.Options{Keys: storetest.Keys(b)}
	if err := store.Create(ctx(), e, o); err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(ctx(), e, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	r := &rig{Budgets: budget.New(s, budget.Options{}), t: b}
	for _, name := range []string{"a", "b", "c", "d"} {
		r.define(name, budget.MaxAmount, "")
	}
	parent := ""
	for _, name := range []string{"acme", "acme/dev", "acme/dev/ci", "acme/dev/ci/nightly"} {
		r.define(name, budget.MaxAmount, parent)
		parent = name
	}
	b.Run("from four budgets", func(b *testing.B) { benchmarkSpend(b, r, entries("a", 1, "b", 1, "c", 1, "d", 1)) })
	b.Run("from one with three above", func(b *testing.B) { benchmarkSpend(b, r, entries(parent, 1)) })
}

func benchmarkSpend(b *testing.B, r *rig, list []budget.Entry) {
	var n atomic.Uint64
	spend := func() {
		id := b.Name() + strconv.FormatUint(n.Add(1), 10)
		_, err := r.Spend(ctx(), budget.SpendParams{Scope: scope, Owner: owner, RequestID: id, Entries: list})
		if err != nil {
			b.Error(err)
		}
	}
	b.Run("1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			spend()
		}
	})
	b.Run("64", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				spend()
			}
		})
	})
}
