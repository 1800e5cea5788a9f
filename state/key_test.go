package state_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/state"
)

func TestKeyEncodingIsInjectiveAndOrdered(t *testing.T) {
	t.Parallel()
	if bytes.Equal(state.Key{Scope: "a", Kind: state.KindHold, ID: "bc"}.Append(nil), state.Key{Scope: "ab", Kind: state.KindHold, ID: "c"}.Append(nil)) {
		t.Error(`("a","bc") is encoded as ("ab","c")`)
	}
	draw := rapid.Custom(func(t *rapid.T) state.Key {
		return state.Key{
			Scope: rapid.SampledFrom([]string{"a", "ab", "b", "é", "_store", strings.Repeat("z", 256)}).Draw(t, "scope"),
			Kind:  rapid.SampledFrom(state.Kinds()).Draw(t, "kind"),
			ID:    rapid.OneOf(rapid.StringN(1, 8, 64), rapid.SampledFrom([]string{"\x00", "\xff", "a", "a\x00"})).Draw(t, "id"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		x, y := a.Append(nil), b.Append(nil)
		if c := a.Compare(b); c != bytes.Compare(x, y) || (c == 0) != (a == b) || c != -b.Compare(a) {
			t.Fatalf("%v and %v compare as %d, their encodings as %d", a, b, c, bytes.Compare(x, y))
		}
		if back, err := state.ParseKey(x); err != nil || back != a {
			t.Fatalf("%v comes back as %v, %v", a, back, err)
		}
		if !bytes.HasPrefix(x, state.AppendScopePrefix(nil, a.Scope)) {
			t.Fatal("the encoding does not begin with its scope's prefix")
		}
	})
}

func TestKeyEncodingIsStable(t *testing.T) {
	t.Parallel()
	for want, k := range map[string]state.Key{
		"\x00\x01a\x09id":          {Scope: "a", Kind: state.KindOperation, ID: "id"},
		"\x00\x06_store\x04k":      {Scope: state.StoreScope, Kind: state.KindKeyCheck, ID: "k"},
		"\x00\x01a\x01scope":       state.ScopeKey("a"),
		"\x00\x01a\x02\x01\x02":    state.WriterKey("a", 0x102),
		"\x00\x02\xc3\xa9\x0e\xff": {Scope: "é", Kind: state.KindCounter, ID: "\xff"},
	} {
		if got := string(k.Append(nil)); got != want {
			t.Errorf("%v is encoded as %q, want %q", k, got, want)
		}
	}
}

func TestKeysThatAreInvalid(t *testing.T) {
	t.Parallel()
	for _, k := range []state.Key{
		{Scope: "", Kind: state.KindHold, ID: "x"}, {Scope: "_other", Kind: state.KindHold, ID: "x"}, {Scope: "a\nb", Kind: state.KindHold, ID: "x"},
		{Scope: "a", Kind: 0, ID: "x"}, {Scope: "a", Kind: 15, ID: "x"}, {Scope: "a", Kind: state.KindHold}, {Scope: "a", Kind: state.KindHold, ID: strings.Repeat("x", 1025)},
		{Scope: strings.Repeat("s", 257), Kind: state.KindHold, ID: "x"}, {Scope: "\xff", Kind: state.KindHold, ID: "x"},
	} {
		if k.Validate() == nil {
			t.Errorf("%q is valid", k)
		}
		if _, err := state.ParseKey(k.Append(nil)); err == nil {
			t.Errorf("%q is parsed", k)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, k := range []state.Key{state.ScopeKey("a"), {Scope: "é", Kind: state.KindCounter, ID: "\xff"}, state.WriterKey(state.StoreScope, 3)} {
		f.Add(k.Append(nil))
	}
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff, 'a'})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := state.ParseKey(slices.Clone(b))
		if err != nil {
			return
		}
		if err := k.Validate(); err != nil {
			t.Errorf("a key that does not validate was parsed: %v", err)
		}
		if got := k.Append(nil); !bytes.Equal(got, b) {
			t.Errorf("%x was parsed, and is encoded as %x", b, got)
		}
	})
}
