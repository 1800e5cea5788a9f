package state

import "encoding/binary"

// What an operator's [Replace] needs as Body for the kinds whose body this
// package encodes.

// Encode gives s as the body of a scope record.
func (s *Scope) Encode() []byte { return appendScope(nil, s) }

// Encode gives b as the body of a budget record.
func (b *Budget) Encode() []byte { return appendBudget(nil, b) }

// EncodeValue gives the body of a counter, or of a floor in ms.
func EncodeValue(value uint64) []byte { return binary.AppendUvarint(nil, value) }

// EncodeCount gives the body of a quota record that counts used records (or
// bytes) and has no allowance beyond them: the next that grows it looks at all
// shards.
func EncodeCount(used uint64) []byte { return appendQuota(nil, &quota{Used: used}) }
