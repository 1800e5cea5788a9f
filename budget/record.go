package budget

import (
	"encoding/binary"
	"errors"

	"github.com/counterfoil/counterfoil/state"
)

// stage is where a hold is in its life, as its record's body says. Open and fenced records are pending, the others
// settled.
type stage uint8

const (
	stageOpen     stage = 1
	stageFenced   stage = 2 // by an operation, which settles it
	stageBare     stage = 3 // by a permit that was used without an operation; its token settles it
	stageCaptured stage = 4
	stageVoided   stage = 5
)

// body is what a hold's record says besides the figures that it kept.
type body struct {
	stage   stage
	minted  bool // it was made for a permit
	used    bool // it was fenced
	bare    bool // by a permit that was used without an operation
	until   int64
	entries []Entry
	of      [][]int // for each entry, which of the kept figures it counts in
	permit  []byte  // while open
}

const bodyFormat = 1

var errBody = errors.New("budget: the body of a hold is cut off or out of range")

// append encodes a body: the format, stage and flags in a byte each; the end of the hold's buckets; how many entries, and
// for each its budget, amount and the places of the budgets that it counts in, a byte each; the permit. Lengths and numbers
// are uvarints.
func (h *body) append(dst []byte) []byte {
	flags := byte(0)
	for bit, set := range []bool{h.minted, h.used, h.bare} {
		if set {
			flags |= 1 << bit
		}
	}
	dst = append(dst, bodyFormat, byte(h.stage), flags)
	dst = binary.AppendUvarint(dst, uint64(h.until)) //nolint:gosec // a time after 1970.
	dst = binary.AppendUvarint(dst, uint64(len(h.entries)))
	for i, e := range h.entries {
		dst = appendBytes(dst, e.Budget)
		dst = binary.AppendUvarint(dst, e.Amount)
		dst = binary.AppendUvarint(dst, uint64(len(h.of[i])))
		for _, place := range h.of[i] {
			dst = append(dst, byte(place)) //nolint:gosec // below MaxBudgets.
		}
	}
	return appendBytes(dst, h.permit)
}

// decodeBody is strict: what it takes is what append writes.
func decodeBody(b []byte) (body, error) {
	r := reader{rest: b}
	if r.byte() != bodyFormat {
		return body{}, errBody
	}
	h := body{stage: stage(r.byte())}
	flags := r.byte()
	h.minted, h.used, h.bare = flags&1 != 0, flags&2 != 0, flags&4 != 0
	h.until = int64(r.number(state.MaxAmount)) //nolint:gosec // bounded.
	n := r.number(MaxEntries)
	for range n {
		e := Entry{Budget: string(r.bytes(state.MaxIDBytes)), Amount: r.number(MaxAmount)}
		places := make([]int, r.number(state.MaxBudgetDepth))
		for i := range places {
			if places[i] = int(r.byte()); places[i] >= MaxBudgets {
				r.bad = true
			}
		}
		h.entries, h.of = append(h.entries, e), append(h.of, places)
	}
	h.permit = r.bytes(MaxPermit)
	if r.bad || len(r.rest) > 0 || h.stage < stageOpen || h.stage > stageVoided || flags > 7 || n == 0 {
		return body{}, errBody
	}
	return h, nil
}

func appendBytes[T string | []byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// reader reads an encoding from front to back; after the first fault it gives zero values, and bad tells.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) cut(n uint64) []byte {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	head := r.rest[:n]
	r.rest = r.rest[n:]
	return head
}

func (r *reader) byte() byte {
	if b := r.cut(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.bad || n <= 0 || v > most || n > 1 && r.rest[n-1] == 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) bytes(most uint64) []byte {
	n := r.number(most)
	if n == 0 {
		return nil
	}
	return append([]byte(nil), r.cut(n)...)
}
