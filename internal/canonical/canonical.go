// Package canonical reads JSON strictly and writes it canonically, so that two programs that mean the same value sign
// and hash the same bytes.
//
// Canonical means RFC 8785 (JSON Canonicalization Scheme): no space, members ordered by the UTF-16 code units of their
// names, strings with the fewest escapes, numbers as ECMAScript prints them.
//
// Strict means that whatever two readers could understand differently is refused rather than mended: a duplicate
// member at any depth, invalid UTF-8, a lone surrogate, a number that is not finite or lies beyond ±(2^53−1), data
// after the value, more than 64 levels of nesting. The grammar is RFC 8259 without extensions; a byte order mark is not
// part of it.
//
// Three ways lead in: [Transform], [Check] and [Hash] for any value, [Decode] into a Go type, and [Scanner] for a reader
// on a hot path that knows its members by heart. All are safe for concurrent use on different data.
package canonical

import (
	"crypto/sha256"
	"sync"
)

// MaxDepth is how many objects and arrays may lie inside one another.
const MaxDepth = 64

// MaxInteger is the largest integer that every JSON reader agrees on, 2^53−1. Numbers above it, or below its negative,
// are refused however they are spelled: a double cannot tell them from their neighbours.
const MaxInteger = 1<<53 - 1

// Transform appends the canonical form of src to dst and returns the extended slice. If src is not acceptable it
// returns dst as it was and an [*Error]. dst and src must not overlap. The result is never longer than six times src.
func Transform(dst, src []byte) ([]byte, error) {
	w := writers.Get().(*writer)
	defer w.release()
	w.dst = dst
	if err := w.document(src, true); err != nil {
		return dst, err
	}
	return w.dst, nil
}

// Check reports whether [Transform] would accept src, and refuses a src longer than maxBytes with [ErrTooLarge] before
// it reads any of it.
func Check(src []byte, maxBytes int) error {
	if len(src) > maxBytes {
		return tooLarge(maxBytes)
	}
	return check(src, true)
}

// Hash returns the SHA-256 of the canonical form of src.
func Hash(src []byte) ([sha256.Size]byte, error) {
	w := writers.Get().(*writer)
	defer w.release()
	w.dst = w.own[:0]
	err := w.document(src, true)
	w.own = w.dst[:0]
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	return sha256.Sum256(w.dst), nil
}

// check reads src to its end; numbers says whether their range counts.
func check(src []byte, numbers bool) error {
	w := writers.Get().(*writer)
	defer w.release()
	w.dst = w.own[:0]
	err := w.document(src, numbers)
	w.own = w.dst[:0]
	if err != nil {
		return err
	}
	return nil
}

// maxKept bounds what an idle writer keeps of a large document.
const maxKept = 64 << 10

var writers = sync.Pool{New: func() any { return new(writer) }}

// release gives w back for reuse, without the caller's bytes and without what only a large document needed.
func (w *writer) release() {
	w.in, w.dst = Scanner{text: w.in.text[:0]}, nil
	w.members, w.depth = w.members[:0], 0
	if cap(w.in.text)+cap(w.own)+cap(w.swap)+cap(w.members) <= maxKept {
		writers.Put(w)
	}
}
