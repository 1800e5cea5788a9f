package state

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"sync"
)

// KeyID names an integrity key. It stands in the clear in every record sealed
// under it.
type KeyID [4]byte

// IntegrityKeyBytes is the length of an integrity key.
const IntegrityKeyBytes = 32

// Keys seals records and opens sealed ones. It is safe for concurrent use.
type Keys struct {
	write KeyID
	macs  map[KeyID]*sync.Pool
}

// IntegrityKeyID derives the id of an integrity key from it.
func IntegrityKeyID(key []byte) KeyID {
	sum := sha256.Sum256(append([]byte("counterfoil.integrity-key.v1\x00"), key...))
	return KeyID(sum[:4])
}

// NewKeys accepts records sealed under any of the given 32-byte keys and seals
// under the one with id write.
func NewKeys(write KeyID, keys [][]byte) (*Keys, error) {
	k := &Keys{write: write, macs: make(map[KeyID]*sync.Pool, len(keys))}
	for _, key := range keys {
		if len(key) != IntegrityKeyBytes {
			return nil, fmt.Errorf("state: an integrity key has %d bytes, it must have %d", len(key), IntegrityKeyBytes)
		}
		id := IntegrityKeyID(key)
		if _, ok := k.macs[id]; ok {
			return nil, errors.New("state: two integrity keys have the same id")
		}
		secret := append([]byte(nil), key...)
		k.macs[id] = &sync.Pool{New: func() any { return &macState{Hash: hmac.New(sha256.New, secret)} }}
	}
	if _, ok := k.macs[write]; !ok {
		return nil, errors.New("state: the integrity key to write with is not among the keys")
	}
	return k, nil
}

// WriteID is the id of the key that records are sealed under.
func (k *Keys) WriteID() KeyID { return k.write }

// CheckValue is a value that only holders of the key with that id can compute:
// a store keeps it so that a process with other keys is refused.
func (k *Keys) CheckValue(id KeyID) (Digest, bool) {
	pool, ok := k.macs[id]
	if !ok {
		return Digest{}, false
	}
	mac := pool.Get().(*macState) //nolint:forcetypeassert // the pool makes nothing else.
	defer pool.Put(mac)
	mac.Reset()
	mac.Write([]byte("counterfoil.key-check.v1"))
	return Digest(mac.Sum(nil)), true
}

// IDs lists the ids of all keys.
func (k *Keys) IDs() []KeyID {
	ids := make([]KeyID, 0, len(k.macs))
	for id := range k.macs {
		ids = append(ids, id)
	}
	return ids
}

// sealFormat is the first byte of every sealed record.
const sealFormat = 1

const (
	sealHead = 1 + len(KeyID{})
	macBytes = sha256.Size
)

// Seal encodes r under key for an engine. The data is: format, id of the
// integrity key, the fields, and HMAC-SHA-256 (RFC 2104) over a tag, the
// length-prefixed key, version, index times and all the data before it.
func (k *Keys) Seal(key Key, r *Record) *Sealed {
	s := &Sealed{Version: r.Version, Expiry: r.ExpiryIndex(key.Kind), Lease: r.LeaseIndex()}
	data := make([]byte, 0, 192+len(r.Owner)+len(r.Body)+len(r.Result))
	data = append(data, sealFormat)
	data = append(data, k.write[:]...)
	data = appendRecord(data, key.Kind, r)
	s.Data = k.mac(data, k.macs[k.write], key, s, data)
	return s
}

// SealedUnder tells which integrity key a sealed record names, without
// opening it.
func SealedUnder(s *Sealed) (KeyID, bool) {
	if len(s.Data) < sealHead || s.Data[0] != sealFormat {
		return KeyID{}, false
	}
	return KeyID(s.Data[1:sealHead]), true
}

// Open decodes what Seal made. Its error wraps ErrCorrupt or ErrKeyUnknown.
func (k *Keys) Open(key Key, s *Sealed) (*Record, error) {
	if len(s.Data) < sealHead+macBytes || s.Data[0] != sealFormat || s.Version.IsZero() {
		return nil, &RecordError{key, ErrCorrupt}
	}
	pool, ok := k.macs[KeyID(s.Data[1:sealHead])]
	if !ok {
		return nil, &RecordError{key, ErrKeyUnknown}
	}
	covered := s.Data[:len(s.Data)-macBytes]
	var room [macBytes]byte
	if !hmac.Equal(k.mac(room[:0], pool, key, s, covered), s.Data[len(covered):]) {
		return nil, &RecordError{key, ErrCorrupt}
	}
	r, err := decodeRecord(covered[sealHead:], key.Kind)
	if err != nil || r.ExpiryIndex(key.Kind) != s.Expiry || r.LeaseIndex() != s.Lease {
		return nil, &RecordError{key, ErrCorrupt}
	}
	r.Version = s.Version
	return r, nil
}

func (k *Keys) mac(dst []byte, pool *sync.Pool, key Key, s *Sealed, data []byte) []byte {
	mac := pool.Get().(*macState) //nolint:forcetypeassert // the pool makes nothing else.
	defer pool.Put(mac)
	mac.Reset()
	head := append(mac.head[:0], "counterfoil.record.v1\x00"...)
	at := len(head)
	head = binary.BigEndian.AppendUint32(head, 0)
	head = key.Append(head)
	binary.BigEndian.PutUint32(head[at:], uint32(len(head)-at-4)) //nolint:gosec // a key is short.
	head = append(head, s.Version[:]...)
	head = binary.BigEndian.AppendUint64(head, uint64(s.Expiry)) //nolint:gosec // bits, not a number.
	head = binary.BigEndian.AppendUint64(head, uint64(s.Lease))  //nolint:gosec // bits, not a number.
	mac.head = head
	mac.Write(head)
	mac.Write(data)
	return mac.Sum(dst)
}

// macState is a keyed hash and room for what is hashed before the data.
type macState struct {
	hash.Hash
	head []byte
}
