package redis

import (
	"encoding/binary"
	"strings"

	"github.com/counterfoil/counterfoil/state"
)

// headBytes is what a stored value has before the record's sealed data: the
// version in 16 bytes, by which it is compared, then expiry and lease in 8
// bytes each, big-endian.
const (
	versionBytes = len(state.Version{})
	headBytes    = versionBytes + 8 + 8
)

func encode(item *state.Sealed) string {
	var head [headBytes]byte
	copy(head[:], item.Version[:])
	binary.BigEndian.PutUint64(head[versionBytes:], uint64(item.Expiry))  //nolint:gosec // only the bits count
	binary.BigEndian.PutUint64(head[versionBytes+8:], uint64(item.Lease)) //nolint:gosec // only the bits count
	var b strings.Builder
	b.Grow(headBytes + len(item.Data))
	b.Write(head[:])
	b.Write(item.Data)
	return b.String()
}

// decode never fails: a value that is too short to be a record is given as the
// data of one, whose seal cannot be right.
func decode(value string) *state.Sealed {
	item := &state.Sealed{}
	copy(item.Version[:], value)
	if len(value) < headBytes {
		item.Data = []byte(value)
		return item
	}
	var times [16]byte
	copy(times[:], value[versionBytes:])
	item.Expiry = int64(binary.BigEndian.Uint64(times[:])) //nolint:gosec // only the bits count
	item.Lease = int64(binary.BigEndian.Uint64(times[8:])) //nolint:gosec // only the bits count
	item.Data = []byte(value[headBytes:])
	return item
}

// storedVersion is what a value is compared by, as it is stored.
func storedVersion(value string) string { return value[:min(len(value), versionBytes)] }
