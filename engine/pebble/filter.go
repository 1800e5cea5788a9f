package pebble

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// filter knows in memory which keys are present, so that the look-up of an
// absent key, half of what a claim costs otherwise, needs no search of the
// tables. It may take an absent key for a present one, which costs that search;
// it must never take a present key for an absent one, which would grant a claim
// twice. Each key is a 64-bit hash in an open-addressing table; two keys of one
// hash are two entries, so that removing one leaves the other.
//
// Callers add a key exactly when it goes from absent to present and remove it
// exactly when it goes back. What the filter cannot keep within its bound it
// answers with maybe. It is safe for concurrent use.
type filter struct {
	seed   maphash.Seed
	shards [filterShards]filterShard
	// filling is set while keys from before the start are still being added:
	// everything is maybe, and nothing is removed, since the key to remove may
	// not be in yet and another one of its hash might go instead.
	filling atomic.Bool
	bytes   atomic.Int64 // of all tables
	limit   int64
}

const (
	filterShards    = 256 // each grows by itself, so that no commit waits for all of them
	filterShardBits = 8
	firstSlots      = 16
)

type filterShard struct {
	mu    sync.Mutex
	slots []uint64 // 0 is empty; len is a power of two
	used  int
	full  bool // the table was given up: everything is maybe
}

// newFilter makes a filter of at most limit bytes that waits to be filled.
func newFilter(limit int64) *filter {
	f := &filter{seed: maphash.MakeSeed(), limit: limit}
	f.filling.Store(true)
	return f
}

// filled ends the filling: from now on an absent key can be told.
func (f *filter) filled() { f.filling.Store(false) }

func (f *filter) hash(key []byte) uint64 { return max(1, maphash.Bytes(f.seed, key)) }

func (f *filter) shard(hash uint64) *filterShard { return &f.shards[hash>>(64-filterShardBits)] }

// mayHave reports false only if no key of that hash is present.
func (f *filter) mayHave(hash uint64) bool {
	if f.filling.Load() {
		return true
	}
	s := f.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full || len(s.slots) == 0 {
		return s.full
	}
	_, found := s.find(hash)
	return found
}

// add records a key that became present.
func (f *filter) add(hash uint64) {
	s := f.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full || !f.grow(s) {
		return
	}
	s.insert(hash)
}

// remove records that a key became absent.
func (f *filter) remove(hash uint64) {
	if f.filling.Load() {
		return // it stays, and costs a search if the key is asked for again
	}
	s := f.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full || len(s.slots) == 0 {
		return
	}
	if at, found := s.find(hash); found {
		s.erase(at)
	}
}

// grow makes room for one more entry, or gives the shard up if the bound is
// reached.
func (f *filter) grow(s *filterShard) bool {
	if s.used < len(s.slots)*4/5 {
		return true
	}
	size := max(firstSlots, 2*len(s.slots))
	added := int64(size-len(s.slots)) * 8
	if f.bytes.Add(added) > f.limit {
		f.bytes.Add(-added - int64(len(s.slots))*8)
		s.slots, s.used, s.full = nil, 0, true
		return false
	}
	old := s.slots
	s.slots, s.used = make([]uint64, size), 0
	for _, hash := range old {
		if hash != 0 {
			s.insert(hash)
		}
	}
	return true
}

// home is where the search for a hash begins: by its low bits, since the high
// ones chose the shard.
func (s *filterShard) home(hash uint64) int { return int(hash & uint64(len(s.slots)-1)) } //nolint:gosec // below len

func (s *filterShard) find(hash uint64) (at int, found bool) {
	mask := len(s.slots) - 1
	for at = s.home(hash); s.slots[at] != 0; at = (at + 1) & mask {
		if s.slots[at] == hash {
			return at, true
		}
	}
	return at, false
}

func (s *filterShard) insert(hash uint64) {
	mask := len(s.slots) - 1
	at := s.home(hash)
	for s.slots[at] != 0 {
		at = (at + 1) & mask
	}
	s.slots[at] = hash
	s.used++
}

// erase empties a slot and moves later entries of the same run back, so that a
// search that ends at an empty slot has missed nothing.
func (s *filterShard) erase(at int) {
	mask := len(s.slots) - 1
	s.used--
	for next := (at + 1) & mask; s.slots[next] != 0; next = (next + 1) & mask {
		// An entry may move back to the hole unless its home lies behind the hole.
		if fromHome := (next - s.home(s.slots[next])) & mask; fromHome >= (next-at)&mask {
			s.slots[at] = s.slots[next]
			at = next
		}
	}
	s.slots[at] = 0
}

// size reports the keys that are in the tables, their bytes, and how many of
// the shards answer everything with maybe.
func (f *filter) size() (keys, bytes int64, maybe int) {
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		keys += int64(s.used)
		if s.full {
			maybe++
		}
		s.mu.Unlock()
	}
	return keys, f.bytes.Load(), maybe
}
