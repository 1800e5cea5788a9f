package pebble

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// horizons remember, for each time index of a scope and kind, a time before
// which it has no entry. What a sweeper has deleted stays in the tables as
// tombstones until they are compacted; a listing that began at time 0 would
// step over all of them again each time.
type horizons struct {
	mu    sync.Mutex
	lists map[dueList]*horizon
}

// dueList is one time index of a scope and kind.
type dueList struct {
	scope string
	index engine.Index
	kind  state.Kind
}

type horizon struct {
	from    int64 // there is no entry before it
	reading int   // listings under way
	lowest  int64 // of what was added since the first of those began
}

// begin says from which time a listing has to read. Entries that are added from
// now on count at its end.
func (h *horizons) begin(l dueList) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lists == nil {
		h.lists = map[dueList]*horizon{}
	}
	z := h.lists[l]
	if z == nil {
		z = &horizon{}
		h.lists[l] = z
	}
	if z.reading == 0 {
		z.lowest = math.MaxInt64
	}
	z.reading++
	return z.from
}

// end notes the time of the first entry that a listing found, MaxInt64 for
// none, if it found out.
func (h *horizons) end(l dueList, first int64, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	z := h.lists[l]
	z.reading--
	if known {
		z.from = min(first, z.lowest)
	}
}

// added notes an entry that can be read by now. One that is noted later than a
// listing could have read it only makes that listing miss what was not yet
// acknowledged.
func (h *horizons) added(l dueList, at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if z := h.lists[l]; z != nil {
		z.from, z.lowest = min(z.from, at), min(z.lowest, at)
	}
}

// cursorAt is the cursor of a listing that begins at that time.
func cursorAt(time int64) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(time))) //nolint:gosec // never negative
}
