package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/state"
)

// Check reports that x is not one of the indexes.
func (x Index) Check() error {
	if x != ByExpiry && x != ByLease {
		return fmt.Errorf("engine: there is no index %d", x)
	}
	return nil
}

// Time gives the time of an item in the index, 0 if it is not in it.
func (x Index) Time(item *state.Sealed) int64 {
	switch {
	case item == nil:
		return 0
	case x == ByLease:
		return item.Lease
	default:
		return item.Expiry
	}
}

// AppendDuePrefix appends what the entries of one scope and kind begin with:
// the scope's length in two bytes big-endian, the scope and the kind in one
// byte, as in a key.
func AppendDuePrefix(dst []byte, scope string, kind state.Kind) []byte {
	return append(state.AppendScopePrefix(dst, scope), byte(kind))
}

// Append appends the encoding of d: the prefix of its scope and kind, the time
// in 8 bytes big-endian, and the ID, which takes the rest. The byte order
// within a scope and kind is by time, then ID, so that what is due is one
// range.
func (d DueKey) Append(dst []byte) []byte {
	dst = AppendDuePrefix(dst, d.Key.Scope, d.Key.Kind)
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.At)) //nolint:gosec // times in an index are above 0
	return append(dst, d.Key.ID...)
}

// ParseDueKey decodes what [DueKey.Append] wrote, of that scope and kind,
// without its prefix.
func ParseDueKey(scope string, kind state.Kind, rest []byte) (DueKey, error) {
	if len(rest) <= 8 {
		return DueKey{}, errors.New("engine: an index entry is cut off")
	}
	return DueKey{
		Key: state.Key{Scope: scope, Kind: kind, ID: string(rest[8:])},
		At:  int64(binary.BigEndian.Uint64(rest)), //nolint:gosec // Append wrote an int64
	}, nil
}
