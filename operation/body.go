package operation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/counterfoil/counterfoil/state"
)

// body is what an operation's record holds besides the fields that all records have. Which parts are there depends on
// how far the operation has come; an absent part is its zero value.
type body struct {
	key         string
	metadata    []byte
	hold        Hold
	spends      bool // the claim's kept outcome holds spends
	unsettled   bool
	over        []Amount // asked above the hold
	resolved    *Resolution
	reason      string // of an abort
	receipt     *Receipt
	notRetained *NotRetained
}

// The encoding: a version byte, the parts that are there as bits of one number, then the parts in the order of the bits.
// Lengths and numbers are unsigned varints.
const bodyVersion = 1

const (
	partKey = 1 << iota
	partMetadata
	partHold
	partSpends
	partUnsettled
	partOver
	partResolved
	partReason
	partReceipt
	partNotRetained
	partsEnd
)

func (b *body) encode() []byte {
	parts := bit(b.key != "", partKey) | bit(b.metadata != nil, partMetadata) | bit(b.hold != Hold{}, partHold) |
		bit(b.spends, partSpends) | bit(b.unsettled, partUnsettled) | bit(len(b.over) > 0, partOver) |
		bit(b.resolved != nil, partResolved) | bit(b.reason != "", partReason) |
		bit(b.receipt != nil, partReceipt) | bit(b.notRetained != nil, partNotRetained)
	dst := binary.AppendUvarint([]byte{bodyVersion}, parts)
	if b.key != "" {
		dst = appendBytes(dst, b.key)
	}
	if b.metadata != nil {
		dst = appendBytes(dst, b.metadata)
	}
	if b.hold != (Hold{}) {
		dst = appendBytes(dst, b.hold.ID)
		dst = append(dst, b.hold.Token[:]...)
	}
	if len(b.over) > 0 {
		dst = appendAmounts(dst, b.over)
	}
	if b.resolved != nil {
		dst = append(dst, byte(bit(b.resolved.Outcome == Happened, 1))) //nolint:gosec // 0 or 1.
		dst = appendBytes(appendBytes(dst, b.resolved.By), b.resolved.Note)
	}
	if b.reason != "" {
		dst = appendBytes(dst, b.reason)
	}
	if b.receipt != nil {
		dst = appendReceipt(dst, b.receipt)
	}
	if b.notRetained != nil {
		dst = append(dst, b.notRetained.Digest[:]...)
		dst = binary.AppendUvarint(dst, uint64(b.notRetained.Length)) //nolint:gosec // a length.
	}
	return dst
}

// decodeBody reads what encode wrote. Anything else is damage that its seal did not show.
func decodeBody(src []byte) (*body, error) {
	d := decoder{b: src}
	b := &body{}
	if d.byte() != bodyVersion {
		return nil, fmt.Errorf("operation: a body of an unknown version: %w", state.ErrCorrupt)
	}
	parts := d.uvarint()
	b.spends, b.unsettled = parts&partSpends != 0, parts&partUnsettled != 0
	if parts&partKey != 0 {
		b.key = string(d.bytes())
	}
	if parts&partMetadata != 0 {
		b.metadata = d.bytes()
	}
	if parts&partHold != 0 {
		b.hold.ID = string(d.bytes())
		copy(b.hold.Token[:], d.cut(len(b.hold.Token)))
	}
	if parts&partOver != 0 {
		b.over = d.amounts()
	}
	if parts&partResolved != 0 {
		b.resolved = &Resolution{Outcome: DidNotHappen}
		if d.byte() == 1 {
			b.resolved.Outcome = Happened
		}
		b.resolved.By, b.resolved.Note = string(d.bytes()), string(d.bytes())
	}
	if parts&partReason != 0 {
		b.reason = string(d.bytes())
	}
	if parts&partReceipt != 0 {
		b.receipt = d.receipt()
	}
	if parts&partNotRetained != 0 {
		b.notRetained = &NotRetained{}
		copy(b.notRetained.Digest[:], d.cut(len(b.notRetained.Digest)))
		b.notRetained.Length = int(d.uvarint() & (1<<53 - 1))
	}
	if d.err != nil || len(d.b) > 0 || parts >= partsEnd {
		return nil, fmt.Errorf("operation: a body that does not decode: %w", state.ErrCorrupt)
	}
	return b, nil
}

// short is the encoding of b within [state.FreeBodyBytes], for a receipt that finds no room: only digest and length are
// left of the receipt, and of the rest what fits.
func (b *body) short() []byte {
	s := body{unsettled: b.unsettled, notRetained: b.notRetained}
	if b.receipt != nil {
		s.notRetained = notRetained(b.receipt)
	}
	if b.resolved != nil {
		s.resolved = &Resolution{Outcome: b.resolved.Outcome}
	}
	for _, add := range []func(){
		func() { s.key = b.key },
		func() { s.hold = b.hold },
		func() { s.over = b.over },
	} {
		before := s
		if add(); len(s.encode()) > state.FreeBodyBytes {
			s = before
		}
	}
	return s.encode()
}

func appendReceipt(dst []byte, r *Receipt) []byte {
	dst = binary.AppendUvarint(dst, uint64(r.Status))             //nolint:gosec // validated.
	dst = append(dst, byte(bit(r.JSON, 1)|bit(r.Body != nil, 2))) //nolint:gosec // two bits.
	dst = appendBytes(dst, r.ContentType)
	dst = binary.AppendUvarint(dst, uint64(len(r.Headers)))
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		dst = appendBytes(dst, name)
		dst = binary.AppendUvarint(dst, uint64(len(r.Headers[name])))
		for _, value := range r.Headers[name] {
			dst = appendBytes(dst, value)
		}
	}
	return appendBytes(dst, r.Body)
}

func (d *decoder) receipt() *Receipt {
	r := &Receipt{Status: int(d.uvarint() & 0xffff)}
	flags := d.byte()
	r.JSON = flags&1 != 0
	r.ContentType = string(d.bytes())
	if n := d.count(); n > 0 {
		r.Headers = make(map[string][]string, n)
		for range n {
			name := string(d.bytes())
			values := make([]string, d.count())
			for i := range values {
				values[i] = string(d.bytes())
			}
			r.Headers[name] = values
		}
	}
	if body := d.bytes(); flags&2 != 0 {
		r.Body = body
	}
	return r
}

func appendAmounts(dst []byte, list []Amount) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, a := range list {
		dst = binary.AppendUvarint(appendBytes(dst, a.Budget), a.Amount)
	}
	return dst
}

func (d *decoder) amounts() []Amount {
	list := make([]Amount, d.count())
	for i := range list {
		list[i] = Amount{string(d.bytes()), d.uvarint()}
	}
	return list
}

func bit(set bool, b uint64) uint64 {
	if set {
		return b
	}
	return 0
}

func appendBytes[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// decoder reads an encoding from front to back; after the first error it gives zero values.
type decoder struct {
	b   []byte
	err error
}

var errCutOff = errors.New("cut off")

func (d *decoder) cut(n int) []byte {
	if d.err != nil || n > len(d.b) {
		d.err = errCutOff
		return make([]byte, min(n, 32))
	}
	part := d.b[:n:n]
	d.b = d.b[n:]
	return part
}

func (d *decoder) byte() byte { return d.cut(1)[0] }

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.b)
	if d.err != nil || size <= 0 {
		d.err = errCutOff
		return 0
	}
	d.b = d.b[size:]
	return n
}

// count reads the length of a list, each element of which takes at least a byte.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.err = errCutOff
		return 0
	}
	return int(n) //nolint:gosec // bounded by what is left.
}

func (d *decoder) bytes() []byte { return d.cut(d.count()) }
