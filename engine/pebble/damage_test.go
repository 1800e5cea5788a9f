package pebble

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

func FuzzValueIsDecodedAsItWasEncodedOrNotAtAll(f *testing.F) {
	for _, item := range []state.Sealed{{}, {Version: state.Version{1}, Expiry: 1 << 41, Lease: 1, Data: []byte("data")}, {Expiry: -1, Lease: -1 << 63}} {
		value := make([]byte, valueSize(&item))
		putValue(value, &item)
		f.Add(value)
	}
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, value []byte) {
		item, err := parseValue(value)
		if err != nil {
			if d := parseOrDamaged(value); d == nil || !d.Version.IsZero() {
				t.Fatalf("what cannot be decoded is shown as %+v", d)
			}
			return
		}
		again := make([]byte, valueSize(item))
		putValue(again, item)
		twice, err := parseValue(again)
		if err != nil || twice.Version != item.Version || twice.Expiry != item.Expiry || twice.Lease != item.Lease || !bytes.Equal(twice.Data, item.Data) {
			t.Fatalf("%+v became %+v (%v)", item, twice, err)
		}
	})
}

// neverAbsent reads keys that are there, by a transaction and bare, and counts
// those that show as damaged.
func neverAbsent(t *testing.T, e *Engine, keys []state.Key) (hurt int) {
	t.Helper()
	for _, k := range keys {
		err := e.Transact(t.Context(), []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
			switch {
			case s.Items[0] == nil:
				t.Errorf("a transaction takes %s for absent", k.ID)
			case s.Items[0].Version.IsZero():
				hurt++
			}
			return engine.Plan{}, nil
		})
		if err != nil {
			t.Errorf("%s fails others with it: %v", k.ID, err)
		}
		if snap, err := e.Read(t.Context(), []state.Key{k}); err == nil && snap.Items[0] == nil {
			t.Errorf("a bare read takes %s for absent", k.ID)
		}
	}
	if snap, err := e.Read(t.Context(), keys); err == nil {
		for i := range keys {
			if snap.Items[i] == nil {
				t.Errorf("a bare read of all takes %s for absent", keys[i].ID)
			}
		}
	}
	return hurt
}

func holdKeys(n int) []state.Key {
	keys := make([]state.Key, n)
	for i := range keys {
		keys[i] = state.Key{Scope: crashScope, Kind: state.KindHold, ID: fmt.Sprintf("%04d", i)}
	}
	return keys
}

func writeHolds(t *testing.T, e *Engine, keys []state.Key) {
	t.Helper()
	must(t, e.Transact(t.Context(), keys, func(s engine.Snapshot) (engine.Plan, error) {
		p := engine.Plan{NotAfter: s.Now + 60_000}
		for _, k := range keys {
			item := &state.Sealed{Version: state.Version{1}, Data: bytes.Repeat([]byte(k.ID), 100)}
			p.Changes = append(p.Changes, engine.Change{Key: k, Item: item})
		}
		return p, nil
	}))
}

func TestDamagedBlockIsNeverReadAsAbsentAndHurtsOnlyItsKeys(t *testing.T) {
	t.Parallel()
	dir := created(t)
	e := open(t, dir, Options{})
	keys := holdKeys(500)
	writeHolds(t, e, keys)
	must(t, e.db.Flush())
	must(t, e.Close())
	tables, err := filepath.Glob(filepath.Join(dir, dataName, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, table := range tables {
		file, err := os.OpenFile(table, os.O_RDWR, 0)
		must(t, err)
		_, err = file.WriteAt([]byte("damage"), 2000) // in a data block: they come first
		must(t, err)
		must(t, file.Close())
	}
	e = open(t, dir, Options{})
	if hurt := neverAbsent(t, e, keys); hurt == 0 || hurt == len(keys) {
		t.Errorf("%d of %d keys are damaged", hurt, len(keys))
	}
	if found, _, err := e.Scan(t.Context(), crashScope, state.KindHold, "", "", 1000); err == nil && len(found) != len(keys) {
		t.Errorf("the scan lists %d of %d records without an error", len(found), len(keys))
	}
}

func TestValueThatNoEngineWroteIsDamagedNotAbsent(t *testing.T) {
	t.Parallel()
	dir := created(t)
	e := open(t, dir, Options{})
	keys := holdKeys(3)
	writeHolds(t, e, keys)
	must(t, e.db.Set(appendDataKey(nil, keys[1]), []byte("short"), pebble.Sync))
	if hurt := neverAbsent(t, e, keys); hurt != 1 {
		t.Errorf("%d keys are damaged, want the one", hurt)
	}
	found, _, err := e.Scan(t.Context(), crashScope, state.KindHold, "", "", 10)
	if err != nil || len(found) != 3 || string(found[1].Item.Data) != "short" {
		t.Errorf("the scan lists %v (%v)", found, err)
	}
}

// TestDamagedLogIsNotTakenForATornOne: a power loss tears the end of the log,
// of which nothing was acknowledged; damage before it would take back what was.
func TestDamagedLogIsNotTakenForATornOne(t *testing.T) {
	t.Parallel()
	dir := created(t)
	e := open(t, dir, Options{})
	for n := range 200 {
		writeHolds(t, e, holdKeys(1+n%3))
	}
	for name, c := range map[string]struct {
		harm  func(log []byte) []byte
		opens bool
	}{
		"as it is":         {func(log []byte) []byte { return log }, true},
		"torn at its end":  {func(log []byte) []byte { return log[:len(log)-10] }, true},
		"damaged in front": {func(log []byte) []byte { copy(log[len(log)/4:], "damage"); return log }, false},
		"damaged inside":   {func(log []byte) []byte { copy(log[3*len(log)/4:], "damage"); return log }, false},
	} {
		crashed := filepath.Join(t.TempDir(), "store")
		must(t, os.CopyFS(crashed, os.DirFS(dir))) // as a kill leaves it
		must(t, os.Chmod(crashed, 0o700))
		logs, err := filepath.Glob(filepath.Join(crashed, dataName, "*.log"))
		if err != nil || len(logs) != 1 {
			t.Fatalf("logs %v, %v", logs, err)
		}
		log, err := os.ReadFile(logs[0])
		must(t, err)
		must(t, os.WriteFile(logs[0], c.harm(bytes.TrimRight(log, "\x00")), 0o600))
		again, err := Open(crashed, Options{})
		if (err == nil) != c.opens {
			t.Errorf("%s: Open gave %v", name, err)
		}
		if err == nil {
			must(t, again.Close())
		}
	}
}
