package engine_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

func FuzzDueKeyIsDecodedAsItWasEncoded(f *testing.F) {
	f.Add([]byte("\x00\x00\x01\x8bcutoff"))
	f.Add([]byte("\x00\x00\x01\x8b\xcf\xe5h\x00an id"))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, rest []byte) {
		d, err := engine.ParseDueKey("scope", state.KindHold, rest)
		if err != nil {
			return
		}
		prefix := engine.AppendDuePrefix(nil, "scope", state.KindHold)
		if again := d.Append(nil); !bytes.Equal(again, append(prefix, rest...)) {
			t.Fatalf("%x became %x", rest, again)
		}
	})
}

// TestDueKeysAreOrderedByTimeThenID within one scope and kind, and differ where
// anything differs.
func TestDueKeysAreOrderedByTimeThenID(t *testing.T) {
	t.Parallel()
	draw := rapid.Custom(func(r *rapid.T) engine.DueKey {
		return engine.DueKey{
			Key: state.Key{Scope: rapid.SampledFrom([]string{"a", "ab", "b"}).Draw(r, "scope"), Kind: rapid.SampledFrom(state.Kinds()).Draw(r, "kind"), ID: rapid.StringN(1, 4, -1).Draw(r, "id")},
			At:  rapid.Int64Range(1, 1<<62).Draw(r, "at"),
		}
	})
	rapid.Check(t, func(r *rapid.T) {
		a, b := draw.Draw(r, "a"), draw.Draw(r, "b")
		order := bytes.Compare(a.Append(nil), b.Append(nil))
		switch {
		case (order == 0) != (a == b):
			r.Fatalf("%v and %v compare %d", a, b, order)
		case a.Key.Scope != b.Key.Scope || a.Key.Kind != b.Key.Kind:
		case a.At < b.At && order >= 0, a.At == b.At && a.Key.ID < b.Key.ID && order >= 0:
			r.Fatalf("%v is not before %v", a, b)
		}
	})
}

func TestPositionsFindsEachChangeOrRefuses(t *testing.T) {
	t.Parallel()
	key := func(id string) state.Key { return state.Key{Scope: "s", Kind: state.KindHold, ID: id} }
	keys := []state.Key{key("a"), key("b"), key("c")}
	for _, c := range []struct {
		name    string
		changes []string
		at      []int // nil: refused
	}{
		{"none", nil, []int{}},
		{"in order", []string{"a", "c"}, []int{0, 2}},
		{"out of order", []string{"c", "a", "b"}, []int{2, 0, 1}},
		{"not read", []string{"a", "d"}, nil},
		{"twice", []string{"a", "b", "a"}, nil},
	} {
		var changes []engine.Change
		for _, id := range c.changes {
			changes = append(changes, engine.Change{Key: key(id)})
		}
		at, err := engine.Positions(keys, changes)
		if (err == nil) != (c.at != nil) || !slices.Equal(at, c.at) {
			t.Errorf("%s: %v, %v, want %v", c.name, at, err, c.at)
		}
	}
}

func TestKeysOfOneTransactionAreBounded(t *testing.T) {
	t.Parallel()
	keys := slices.Repeat([]state.Key{{Scope: "s", Kind: state.KindHold, ID: "k"}}, engine.MaxKeys)
	if err := engine.CheckKeys(keys); err != nil {
		t.Errorf("%d keys: %v", len(keys), err)
	}
	if err := engine.CheckKeys(append(keys, keys[0])); err == nil {
		t.Errorf("%d keys were taken", len(keys)+1)
	}
}

func TestErrorsCanBeToldApart(t *testing.T) {
	t.Parallel()
	all := []error{
		engine.ErrConflict, engine.ErrUnavailable, engine.ErrAmbiguous, engine.ErrBroken, engine.ErrLate,
		engine.ErrNoStore, engine.ErrStoreExists, engine.ErrForeign, engine.ErrLocked, engine.ErrClosed,
	}
	for i, a := range all {
		for j, b := range all {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("%v and %v cannot be told apart", a, b)
			}
		}
	}
}
