package pebble

import (
	"encoding/binary"
	"errors"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// Everything in the database begins with a byte that says what it is:
//
//	d key                       the record of a key: version, expiry, lease, data
//	e scope kind time id        a record that is in the expiry index
//	l scope kind time id        a record that is in the lease index
//	s name                      a scope that has a scope record
//
// Keys and index entries are encoded as [state.Key.Append] and
// [engine.DueKey.Append] do; index entries and scopes have no value.
const (
	dataSpace   = 'd'
	expirySpace = 'e'
	leaseSpace  = 'l'
	scopeSpace  = 's'
)

var indexes = [...]struct {
	index engine.Index
	space byte
}{{engine.ByExpiry, expirySpace}, {engine.ByLease, leaseSpace}}

func indexSpace(x engine.Index) byte {
	if x == engine.ByLease {
		return leaseSpace
	}
	return expirySpace
}

func appendDataKey(dst []byte, k state.Key) []byte {
	return k.Append(append(dst, dataSpace))
}

// after gives the first key behind all that begin with prefix, which is never
// empty and never all 0xff, since it begins with one of the spaces.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; ; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
}

// valueSize is the exact length of an item's encoding.
func valueSize(item *state.Sealed) int {
	return len(item.Version) + uvarintSize(item.Expiry) + uvarintSize(item.Lease) + len(item.Data)
}

func uvarintSize(v int64) int {
	n := 1
	for u := uint64(v); u >= 0x80; u >>= 7 { //nolint:gosec // times are encoded by their bits
		n++
	}
	return n
}

// putValue writes an item's encoding to dst, which has exactly its size: the
// version, expiry and lease as unsigned varints, and the data.
func putValue(dst []byte, item *state.Sealed) {
	dst = dst[:0]
	dst = append(dst, item.Version[:]...)
	dst = binary.AppendUvarint(dst, uint64(item.Expiry)) //nolint:gosec // as above
	dst = binary.AppendUvarint(dst, uint64(item.Lease))  //nolint:gosec // as above
	_ = append(dst, item.Data...)
}

var errValue = errors.New("a value that no engine wrote")

// parseValue decodes what putValue wrote, into memory of its own.
func parseValue(value []byte) (*state.Sealed, error) {
	var item state.Sealed
	if len(value) < len(item.Version) {
		return nil, errValue
	}
	rest := value[copy(item.Version[:], value):]
	for _, time := range []*int64{&item.Expiry, &item.Lease} {
		u, n := binary.Uvarint(rest)
		if n <= 0 {
			return nil, errValue
		}
		*time, rest = int64(u), rest[n:] //nolint:gosec // as above
	}
	item.Data = append(make([]byte, 0, len(rest)), rest...)
	return &item, nil
}

// damaged stands for a record that is there and cannot be read. It has no
// valid seal, so the store answers corrupt for its key alone, and never that
// the key is absent.
func damaged(value []byte) *state.Sealed {
	return &state.Sealed{Data: append([]byte(nil), value...)}
}

func parseOrDamaged(value []byte) *state.Sealed {
	item, err := parseValue(value)
	if err != nil {
		return damaged(value)
	}
	return item
}
