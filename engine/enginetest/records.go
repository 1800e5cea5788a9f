package enginetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

const (
	scope  = "enginetest"
	second = 1_000 // milliseconds
	minute = 60 * second
)

var lastVersion atomic.Uint64

// version draws a version that no other commit of this process carries.
func version() (v state.Version) {
	binary.BigEndian.PutUint64(v[8:], lastVersion.Add(1))
	return v
}

func key(id string) state.Key { return state.Key{Scope: scope, Kind: state.KindOperation, ID: id} }

func keys(n int) []state.Key {
	all := make([]state.Key, n)
	for i := range all {
		all[i] = key(fmt.Sprintf("%06d", i))
	}
	return all
}

func item(data string) *state.Sealed {
	return &state.Sealed{Version: version(), Data: []byte(data)}
}

func due(expiry, lease int64) *state.Sealed {
	return &state.Sealed{Version: version(), Expiry: expiry, Lease: lease, Data: []byte("due")}
}

func set(k state.Key, it *state.Sealed) engine.Change { return engine.Change{Key: k, Item: it} }

// write applies the changes, whatever was there before.
func write(ctx context.Context, e engine.Engine, changes ...engine.Change) error {
	ks := make([]state.Key, len(changes))
	for i, c := range changes {
		ks[i] = c.Key
	}
	return e.Transact(ctx, ks, func(s engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{Changes: changes, NotAfter: s.Now + minute}, nil
	})
}

func mustWrite(t *testing.T, e engine.Engine, changes ...engine.Change) {
	t.Helper()
	if err := write(t.Context(), e, changes...); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func read(t *testing.T, e engine.Engine, ks ...state.Key) []*state.Sealed {
	t.Helper()
	snap, err := e.Read(t.Context(), ks)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if len(snap.Items) != len(ks) {
		t.Fatalf("read %d keys and got %d items", len(ks), len(snap.Items))
	}
	return snap.Items
}

// want checks that k has that item, nil being absent.
func want(t *testing.T, e engine.Engine, k state.Key, it *state.Sealed) {
	t.Helper()
	if got := read(t, e, k)[0]; !same(got, it) {
		t.Fatalf("key %q has %s, want %s", k.ID, show(got), show(it))
	}
}

func same(a, b *state.Sealed) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Version == b.Version && a.Expiry == b.Expiry && a.Lease == b.Lease && string(a.Data) == string(b.Data)
}

func show(it *state.Sealed) string {
	if it == nil {
		return "nothing"
	}
	return fmt.Sprintf("{version %x, expiry %d, lease %d, %d bytes %.40q}", it.Version, it.Expiry, it.Lease, len(it.Data), it.Data)
}

// count reads a number that increment keeps, 0 if absent.
func count(it *state.Sealed) int {
	if it == nil {
		return 0
	}
	return int(binary.BigEndian.Uint32(it.Data))
}

func counted(n int) *state.Sealed {
	return &state.Sealed{Version: version(), Data: binary.BigEndian.AppendUint32(nil, uint32(n))}
}
