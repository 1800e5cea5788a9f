package budget

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/state"
)

func TestPermitsOfEveryLengthShareFewBuckets(t *testing.T) {
	t.Parallel()
	// One permit of every length in every second of an hour and more: what is open at the end.
	const seconds = 3700
	ends := map[int64]bool{}
	now := int64(1_900_000_000_000)
	for s := range int64(seconds) {
		for ttl := int64(1); ttl <= 3600; ttl++ {
			at := now + s*1000
			expires := at + ttl*1000
			until := permitUntil(at, expires)
			if late := until - expires; late < 0 || late*64 > ttl*1000 || ttl <= 300 && late != 0 {
				t.Fatalf("a permit of %d s is counted %d ms too long", ttl, late)
			}
			ends[until] = true
		}
	}
	open := 0
	for until := range ends {
		if until > now+seconds*1000 {
			open++
		}
	}
	if open > 640 {
		t.Fatalf("%d different ends are open at a time", open)
	}
}

func genBody(t *rapid.T) body {
	h := body{
		stage:  stage(rapid.IntRange(1, 5).Draw(t, "stage")),
		minted: rapid.Bool().Draw(t, "minted"), used: rapid.Bool().Draw(t, "used"), bare: rapid.Bool().Draw(t, "bare"),
		until: rapid.Int64Range(0, state.MaxAmount).Draw(t, "until"),
	}
	for range rapid.IntRange(1, MaxEntries).Draw(t, "entries") {
		h.entries = append(h.entries, Entry{
			Budget: rapid.StringMatching(`[a-z]{1,8}(/[a-z]{1,8}){0,3}`).Draw(t, "budget"), Amount: rapid.Uint64Range(0, MaxAmount).Draw(t, "amount"),
		})
		h.of = append(h.of, rapid.SliceOfN(rapid.IntRange(0, MaxBudgets-1), 0, state.MaxBudgetDepth).Draw(t, "places"))
	}
	h.permit = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "permit")
	return h
}

func TestABodyDecodesToWhatWasEncoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := genBody(t)
		encoded := h.append(nil)
		got, err := decodeBody(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if got.stage != h.stage || got.until != h.until || got.minted != h.minted || got.used != h.used || got.bare != h.bare ||
			!slices.Equal(got.entries, h.entries) || !slices.EqualFunc(got.of, h.of, slices.Equal) || !bytes.Equal(got.permit, h.permit) {
			t.Fatalf("%+v became %+v", h, got)
		}
		cut := rapid.IntRange(0, len(encoded)-1).Draw(t, "cut")
		if _, err := decodeBody(encoded[:cut]); err == nil {
			t.Fatalf("a body cut to %d of %d bytes decodes", cut, len(encoded))
		}
	})
}

// FuzzDecodeBody: whatever decodes is what append writes, byte for byte.
func FuzzDecodeBody(f *testing.F) {
	h := body{stage: stageOpen, until: time.UnixMilli(1_900_000_000_000).UnixMilli(), entries: []Entry{{"a/b", 7}}, of: [][]int{{0, 1}}, permit: []byte("p")}
	f.Add(h.append(nil))
	h.stage, h.used, h.bare, h.minted = stageBare, true, true, true
	f.Add(h.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := decodeBody(data)
		if err != nil {
			return
		}
		if again := h.append(nil); !bytes.Equal(again, data) {
			t.Fatalf("%x decodes to %+v, which is %x", data, h, again)
		}
	})
}
