package redis

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

const (
	// keysBegin is what all keys of a store begin with.
	keysBegin = "cf"
	format    = "format" // the one field of the hash that marks a store

	// groups is the number of hash tags. A scope's tag is one of few, so that
	// the names of all scopes can be listed from as many sorted sets, each of
	// which is written together with the scopes that it names.
	groups = 1024
	// buckets is the number of hashes that hold the records of one scope and
	// kind. A bucket is what moves at once when a slot is moved: with 10 million
	// records it has about a megabyte.
	buckets = 4096
)

// layout names the keys of a store: what they begin with.
type layout string

func (l layout) format() string { return string(l) + ":format" }

func (l layout) scopes(group int) string { return fmt.Sprintf("%s{%d}scopes", l, group) }

// place names the keys of one scope.
type place struct {
	group  int    // which of the hash tags
	names  string // key of the sorted set of scope names that share the tag
	prefix string // what the other keys begin with
}

func (l layout) place(scope string) place {
	sum := sha256.Sum256([]byte(scope))
	group := int(binary.BigEndian.Uint16(sum[:])) % groups
	return place{
		group: group,
		names: l.scopes(group),
		// 128 bits: no two scopes have the same keys.
		prefix: fmt.Sprintf("%s{%d}%s", l, group, base64.RawURLEncoding.EncodeToString(sum[2:18])),
	}
}

// bucket is the number of the bucket that a record is in. For hashed kinds it
// grows with the ID.
func bucket(kind state.Kind, id string) int {
	if !kind.Hashed() {
		return int(crc32.ChecksumIEEE([]byte(id)) % buckets)
	}
	n := int(id[0]) << 4
	if len(id) > 1 {
		n |= int(id[1]) >> 4
	}
	return n
}

func (p place) bucket(kind state.Kind, number int) string {
	const digits = "0123456789abcdef"
	end := [...]byte{'r', letter(kind), digits[number>>8], digits[number>>4&15], digits[number&15]}
	return p.prefix + string(end[:])
}

func (p place) record(key state.Key) string { return p.bucket(key.Kind, bucket(key.Kind, key.ID)) }

// due is the key of a time index.
func (p place) due(index engine.Index, kind state.Kind) string {
	which := "e"
	if index == engine.ByLease {
		which = "l"
	}
	return p.prefix + which + string(letter(kind))
}

// turn is the key of the hash that says whose turn it is.
func (p place) turn() string { return p.prefix + "h" }

// ids is the key of the sorted set of the IDs of a kind that is not hashed.
func (p place) ids(kind state.Kind) string { return p.prefix + "n" + string(letter(kind)) }

// letter is how a kind is written in keys.
func letter(kind state.Kind) byte { return 'a' + byte(kind) }

// dueMember is the entry of a record in a time index. All entries have the same
// score, so that their order is that of the bytes: by time, then ID.
func dueMember(at int64, id string) string {
	var time [8]byte
	binary.BigEndian.PutUint64(time[:], uint64(at)) //nolint:gosec // times in an index are above 0
	return string(time[:]) + id
}
