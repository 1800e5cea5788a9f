package pebble

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// BenchmarkCreate measures the CPU that one new record costs, in groups of
// several sizes, without a disk.
func BenchmarkCreate(b *testing.B) {
	for _, group := range []int{1, 32, 128, 512} {
		b.Run(fmt.Sprintf("group=%d", group), func(b *testing.B) {
			o := Options{FS: vfs.NewMem()}
			if err := Create("store", o); err != nil {
				b.Fatal(err)
			}
			e, err := Open("store", o)
			if err != nil {
				b.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 2))
			before := cpu()
			for done := 0; done < b.N; done += group {
				createGroup(b, e, r, group)
			}
			b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/record")
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func createGroup(b *testing.B, e *Engine, r *rand.Rand, n int) {
	b.Helper()
	keys := make([]state.Key, n)
	changes := make([]engine.Change, n)
	for i := range keys {
		var id [32]byte
		for at := 0; at < len(id); at += 8 {
			binary.LittleEndian.PutUint64(id[at:], r.Uint64())
		}
		keys[i] = state.Key{Scope: "default", Kind: state.KindMarker, ID: string(id[:])}
		changes[i] = engine.Change{Key: keys[i], Item: &state.Sealed{
			Version: state.Version(id[:16]), Expiry: start.UnixMilli() + r.Int64N(1000), Data: make([]byte, 320),
		}}
	}
	err := e.Transact(b.Context(), keys, func(s engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{Changes: changes, NotAfter: s.Now + 1000}, nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

func cpu() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
