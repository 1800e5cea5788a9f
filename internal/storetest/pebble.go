package storetest

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/pebble"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// pebbleMedium keeps its files in memory: what real files do is tested by the
// engine itself.
type pebbleMedium struct{ options pebble.Options }

const pebbleDir = "store"

func onPebble(_ testing.TB, c clock.Clock) medium {
	return pebbleMedium{pebble.Options{Clock: c, FS: vfs.NewCrashableMem(), CacheBytes: 1 << 20, MemtableBytes: 1 << 20}}
}

func (m pebbleMedium) create(t testing.TB) engine.Engine {
	t.Helper()
	if err := pebble.Create(pebbleDir, m.options); err != nil {
		t.Fatalf("create a Pebble store: %v", err)
	}
	return m.again(t)
}

func (m pebbleMedium) again(t testing.TB) engine.Engine {
	t.Helper()
	e, err := pebble.Open(pebbleDir, m.options)
	if err != nil {
		t.Fatalf("open the Pebble store: %v", err)
	}
	return e
}
