// Package entropy is the only place of the product that draws randomness: tokens, versions, nonces, keys.
//
// It fails closed: where no randomness can be had, the caller gets an error and must refuse.
package entropy

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"sync"
)

// ErrExhausted is returned by a Source that cannot fill the bytes asked for.
var ErrExhausted = errors.New("entropy: no randomness can be had; refuse the request and check the system's random source")

// A Source fills bytes with randomness. An implementation is safe for concurrent use.
type Source interface {
	// Fill overwrites all of p, or returns an error after which p must not be used.
	Fill(p []byte) error
}

// System is the cryptographic random source of the operating system. Where the kernel itself refuses to give randomness,
// the Go runtime ends the process; no caller ever sees predictable bytes.
var System Source = reader{rand.Reader}

// reader draws from a stream. Not by rand.Read: it ends the process on an error that a caller can answer with a refusal.
type reader struct{ from io.Reader }

func (r reader) Fill(p []byte) error {
	if _, err := io.ReadFull(r.from, p); err != nil {
		clear(p)
		return fmt.Errorf("%w: %w", ErrExhausted, err)
	}
	return nil
}

// Fill fills p from System.
func Fill(p []byte) error { return System.Fill(p) }

// Seeded returns a Source for tests whose bytes depend on the seed and on the order of the calls alone. It is not
// secret: nothing outside tests may use it.
func Seeded(seed uint64) Source {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return &seeded{stream: mathrand.NewChaCha8(key)}
}

type seeded struct {
	mu     sync.Mutex
	stream *mathrand.ChaCha8
}

func (s *seeded) Fill(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.stream.Read(p)
	return err
}

// Failing is a Source for tests of the refusal that follows when no randomness can be had.
var Failing Source = reader{exhausted{}}

// exhausted is a stream that breaks off after its first byte.
type exhausted struct{}

func (exhausted) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	p[0] = 1
	return 1, io.ErrUnexpectedEOF
}
