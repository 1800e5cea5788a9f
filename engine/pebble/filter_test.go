package pebble

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestFilterNeverTakesAPresentKeyForAnAbsentOne runs random programs on few
// distinct hashes, so that runs of the table wrap around, hashes are equal and
// shards grow, and compares with the keys that are present.
func TestFilterNeverTakesAPresentKeyForAnAbsentOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.SampledFrom([]int64{0, 8 * firstSlots, 8 * firstSlots * 5, 1 << 20}).Draw(r, "limit")
		f := newFilter(limit)
		drawHash := rapid.Custom(func(r *rapid.T) uint64 {
			shard := uint64(rapid.IntRange(0, 2).Draw(r, "shard")) << (64 - filterShardBits)
			low := rapid.OneOf(rapid.Uint64Range(1, 8), rapid.Uint64Range(firstSlots-3, firstSlots+3), rapid.Uint64Range(1, 400)).Draw(r, "low")
			return shard | rapid.Uint64Range(0, 1).Draw(r, "other key, same home")<<40 | low
		})
		present := map[string]uint64{}
		before := rapid.SliceOfN(drawHash, 0, 30).Draw(r, "keys from before the start")
		for i, hash := range before {
			present[fmt.Sprint("before", i)] = hash
		}
		created := 0
		exact := true
		steps := map[string]func(*rapid.T){
			"add": func(r *rapid.T) {
				hash := drawHash.Draw(r, "hash")
				present[fmt.Sprint("key", created)] = hash
				created++
				f.add(hash)
			},
			"remove": func(r *rapid.T) {
				if len(present) == 0 {
					return
				}
				name := rapid.SampledFrom(names(present)).Draw(r, "name")
				exact = exact && !f.filling.Load()
				f.remove(present[name])
				delete(present, name)
			},
			"fill": func(*rapid.T) {
				for _, hash := range before {
					f.add(hash) // whether it is still present or not
				}
				before = nil
				f.filled()
			},
			"": func(r *rapid.T) {
				for name, hash := range present {
					if !f.mayHave(hash) {
						r.Fatalf("%s (%x) is present and was taken for absent", name, hash)
					}
				}
				keys, bytes, maybe := f.size()
				if bytes > limit || bytes < 8*keys {
					r.Fatalf("%d bytes for %d keys with a limit of %d", bytes, keys, limit)
				}
				if exact && before == nil && maybe == 0 && int(keys) != len(present) {
					r.Fatalf("%d entries for %d keys", keys, len(present))
				}
			},
		}
		r.Repeat(steps)
	})
}

func names(present map[string]uint64) []string {
	var all []string
	for name := range present {
		all = append(all, name)
	}
	return all
}

func TestFilterTellsAbsentKeys(t *testing.T) {
	t.Parallel()
	f := newFilter(1 << 30)
	f.filled()
	const n = 100_000
	key := func(i int) uint64 { return f.hash(fmt.Appendf(nil, "key %d", i)) }
	for i := range n {
		f.add(key(i))
	}
	for i := range n {
		if !f.mayHave(key(i)) {
			t.Fatalf("key %d was taken for absent", i)
		}
		if f.mayHave(key(n + i)) {
			t.Fatalf("key %d was taken for present", n+i)
		}
	}
	for i := range n / 2 {
		f.remove(key(i))
	}
	for i := range n {
		if f.mayHave(key(i)) != (i >= n/2) {
			t.Fatalf("after removing half, key %d is present: %v", i, f.mayHave(key(i)))
		}
	}
}

// TestFilterHoldsTenMillionKeysInTwoHundredMegabytes fills 4 of the 256 shards
// with their part of ten million keys, as any hash spreads them.
func TestFilterHoldsTenMillionKeysInTwoHundredMegabytes(t *testing.T) {
	t.Parallel()
	const part = 4
	f := newFilter(200 << 20 * part / filterShards)
	r := rand.New(rand.NewPCG(1, 2))
	for shard := range uint64(part) {
		for range 10_000_000/filterShards + 600 { // three standard deviations more
			f.add(shard<<(64-filterShardBits) | r.Uint64()>>filterShardBits)
		}
	}
	if keys, bytes, maybe := f.size(); maybe != 0 {
		t.Fatalf("%d keys in %d MB, %d shards were given up", keys, bytes>>20, maybe)
	}
}

func BenchmarkFilterMayHaveAbsentKey(b *testing.B) {
	f := newFilter(1 << 30)
	f.filled()
	for i := range 1_000_000 {
		f.add(f.hash(fmt.Appendf(nil, "%d", i)))
	}
	key := []byte("a key that is as long as a claim's key is usually, sixty bytes")
	b.ResetTimer()
	for i := range b.N {
		key[0], key[1], key[2] = byte(i), byte(i>>8), byte(i>>16)
		if f.mayHave(f.hash(key)) {
			b.Fatal("present")
		}
	}
}
