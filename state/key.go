package state

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Kind says what a record is about and, through one table (see kinds.go),
// which ops may touch it. Its number is part of every stored key: never
// renumber.
type Kind uint8

// The kinds of record. Scope, Writer, Quota and KeyCheck are the store's own;
// the others belong to the capability of the same name.
const (
	KindScope      Kind = 1  // generation, floor, epoch, caps, quarantine of one scope
	KindWriter     Kind = 2  // one store instance's slot in a scope
	KindQuota      Kind = 3  // one shard of one count of live records
	KindKeyCheck   Kind = 4  // a known value under an integrity key
	KindFloor      Kind = 5  // permits issued at or before it are refused
	KindCredential Kind = 6  // an access token's hash and rights
	KindApproval   Kind = 7  // a call that waits for a person
	KindMarker     Kind = 8  // a consumed permit
	KindOperation  Kind = 9  // an intent or its receipt
	KindChallenge  Kind = 10 // a key-release nonce
	KindHold       Kind = 11 // amounts reserved in budgets
	KindSpend      Kind = 12 // amounts taken from budgets
	KindBudget     Kind = 13 // limit, window and amounts of one budget
	KindCounter    Kind = 14 // a plain counter
	kindEnd        Kind = 15
)

var kindNames = [kindEnd]string{
	KindScope: "scope", KindWriter: "writer", KindQuota: "quota", KindKeyCheck: "keycheck", KindFloor: "floor",
	KindCredential: "credential", KindApproval: "approval", KindMarker: "permit", KindOperation: "operation",
	KindChallenge: "challenge", KindHold: "hold", KindSpend: "spend", KindBudget: "budget", KindCounter: "counter",
}

// Kinds lists every kind in the order of its number.
func Kinds() []Kind {
	all := make([]Kind, 0, kindEnd-1)
	for k := Kind(1); k < kindEnd; k++ {
		all = append(all, k)
	}
	return all
}

// Valid reports whether k is one of the kinds above.
func (k Kind) Valid() bool { return k > 0 && k < kindEnd }

// Hashed reports whether the IDs of a kind are sums of a hash, evenly spread.
// An ID of such a kind that is not is kept as well, only less swiftly.
func (k Kind) Hashed() bool {
	switch k {
	case KindMarker, KindOperation, KindChallenge, KindHold, KindSpend:
		return true
	}
	return false
}

// String gives the kind's name as documents and metrics write it.
func (k Kind) String() string {
	if !k.Valid() {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Limits of a key's parts, in bytes.
const (
	MaxScopeBytes = 256
	MaxIDBytes    = 1024
)

// StoreScope is the reserved scope of records that belong to the whole store.
const StoreScope = "_store"

// scopeID is the ID of a scope's own record: there is one in each scope.
const scopeID = "scope"

// Key names one record. Keys are compared as bytes.
type Key struct {
	Scope string
	Kind  Kind
	ID    string
}

// ScopeKey is the key of a scope's own record.
func ScopeKey(scope string) Key { return Key{Scope: scope, Kind: KindScope, ID: scopeID} }

// WriterKey is the key of the writer record with that slot number in a scope.
func WriterKey(scope string, slot uint16) Key {
	return Key{Scope: scope, Kind: KindWriter, ID: string(binary.BigEndian.AppendUint16(nil, slot))}
}

// Validate reports what makes k unusable as a key, or nil.
func (k Key) Validate() error {
	if err := CheckScopeName(k.Scope); err != nil && k.Scope != StoreScope {
		return err
	}
	return k.validateID()
}

// validateID is Validate but for the scope.
func (k Key) validateID() error {
	switch {
	case !k.Kind.Valid():
		return errors.New("the kind of the key is not known")
	case k.ID == "":
		return errors.New("the id is empty")
	case len(k.ID) > MaxIDBytes:
		return fmt.Errorf("the id has %d bytes, the limit is %d", len(k.ID), MaxIDBytes)
	}
	return nil
}

// CheckScopeName reports what makes name unusable as the name of a caller's
// scope: it must be 1 to 256 bytes of UTF-8 without control characters, and
// must not begin with an underscore, which is reserved for the store.
func CheckScopeName(name string) error {
	if err := CheckName(name); err != nil {
		return fmt.Errorf("scope: %w", err)
	}
	if name[0] == '_' {
		return errors.New("scope: names that begin with an underscore are reserved")
	}
	return nil
}

// CheckName reports what makes s unusable as an id, key, owner or name: it
// must be 1 to 256 bytes of UTF-8 without control characters.
func CheckName(s string) error {
	switch {
	case s == "":
		return errors.New("it is empty")
	case len(s) > MaxScopeBytes:
		return fmt.Errorf("it has %d bytes, the limit is %d", len(s), MaxScopeBytes)
	case !utf8.ValidString(s):
		return errors.New("it is not valid UTF-8")
	}
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return errors.New("it contains a control character")
		}
	}
	return nil
}

// Compare orders keys as their encodings are ordered within one scope: by
// scope, kind and ID.
func (k Key) Compare(o Key) int {
	if c := cmp.Compare(len(k.Scope), len(o.Scope)); c != 0 {
		return c
	}
	if c := strings.Compare(k.Scope, o.Scope); c != 0 {
		return c
	}
	if c := cmp.Compare(k.Kind, o.Kind); c != 0 {
		return c
	}
	return strings.Compare(k.ID, o.ID)
}

// Append appends the encoding of k: the scope's length in two bytes
// big-endian, the scope, the kind in one byte, and the ID, which takes the
// rest. It is injective, and its byte order is that of [Key.Compare].
func (k Key) Append(dst []byte) []byte {
	dst = AppendScopePrefix(dst, k.Scope)
	dst = append(dst, byte(k.Kind))
	return append(dst, k.ID...)
}

// AppendScopePrefix appends what the encodings of all keys of a scope begin
// with.
func AppendScopePrefix(dst []byte, scope string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(scope))) //nolint:gosec // Validate bounds it to 256.
	return append(dst, scope...)
}

// ParseKey decodes what [Key.Append] wrote. It fails on anything else, keys
// that do not validate included.
func ParseKey(b []byte) (Key, error) {
	if len(b) < 2 {
		return Key{}, errors.New("state: key encoding is too short")
	}
	n := int(binary.BigEndian.Uint16(b))
	if len(b) < 2+n+1 {
		return Key{}, errors.New("state: key encoding is cut off")
	}
	k := Key{Scope: string(b[2 : 2+n]), Kind: Kind(b[2+n]), ID: string(b[3+n:])}
	if err := k.Validate(); err != nil {
		return Key{}, fmt.Errorf("state: key encoding: %w", err)
	}
	return k, nil
}
