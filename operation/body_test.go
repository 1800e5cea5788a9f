package operation

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/state"
)

func bodies() []body {
	return []body{
		{},
		{key: "order-1", metadata: []byte(`{"a":1}`), hold: Hold{"ab", state.Token{1}}, spends: true},
		{key: "order-1", over: []Amount{{"acme/eur", 5}, {"acme", 0}}, unsettled: true, receipt: &Receipt{}},
		{key: "k", receipt: &Receipt{Status: 200, ContentType: "a/b", Body: []byte{}, Headers: map[string][]string{"A": {"1", ""}, "B": {}}}},
		{key: "k", receipt: &Receipt{JSON: true, Body: []byte("null")}},
		{key: "k", notRetained: &NotRetained{Digest: [32]byte{5}, Length: 1 << 40}, resolved: &Resolution{By: "olga", Outcome: Happened, Note: "n"}},
		{key: "k", reason: "r", resolved: &Resolution{By: "olga", Outcome: DidNotHappen}},
	}
}

func TestBodiesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for _, want := range bodies() {
		got, err := decodeBody(want.encode())
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%+v came back as %+v (%v)", want, got, err)
		}
	}
}

func TestTheShortFormAlwaysFitsAndKeepsDigestAndLength(t *testing.T) {
	t.Parallel()
	b := body{
		key: strings.Repeat("k", 256), metadata: make([]byte, MaxMetadata), hold: Hold{strings.Repeat("h", 64), state.Token{1}}, unsettled: true,
		over:     []Amount{{strings.Repeat("b", 500), 1 << 53}},
		resolved: &Resolution{By: strings.Repeat("b", 256), Outcome: Happened, Note: strings.Repeat("n", MaxText)},
		receipt:  &Receipt{Body: make([]byte, 1<<20)},
	}
	short := b.short()
	got, err := decodeBody(short)
	if err != nil || len(short) > state.FreeBodyBytes {
		t.Fatalf("%d bytes, %v", len(short), err)
	}
	if *got.notRetained != *notRetained(b.receipt) || !got.unsettled || got.resolved.Outcome != Happened {
		t.Fatalf("the short form holds %+v", got)
	}
	b.key = "order-1"
	if got, _ := decodeBody(b.short()); got.key != "order-1" {
		t.Fatal("a key that fits is left out")
	}
}

func TestTheGivenDigestTellsEveryDifference(t *testing.T) {
	t.Parallel()
	none, some, other := []Amount{}, []Amount{{"a", 1}}, []Amount{{"a", 2}}
	seen := map[state.Digest]bool{}
	for _, r := range []Receipt{
		{}, {Status: 1}, {JSON: true}, {Body: []byte("a")}, {ContentType: "a"}, {Headers: map[string][]string{"a": {"b"}}}, {Headers: map[string][]string{"a": {"b", ""}}},
	} {
		for _, capture := range []*[]Amount{nil, &none, &some, &other} {
			d := given(Happened, &r, capture)
			if seen[d] {
				t.Fatalf("%+v with %v has the digest of another", r, capture)
			}
			seen[d] = true
		}
	}
}

func FuzzBody(f *testing.F) {
	for _, b := range bodies() {
		f.Add(b.encode())
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		b, err := decodeBody(src)
		if err != nil {
			if !errors.Is(err, state.ErrCorrupt) {
				t.Fatalf("not called damage: %v", err)
			}
			return
		}
		again, err := decodeBody(b.encode())
		if err != nil || !bytes.Equal(again.encode(), b.encode()) {
			t.Fatalf("%+v came back as %+v (%v)", b, again, err)
		}
	})
}
