package permit

import (
	"encoding/hex"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/counterfoil/counterfoil/internal/entropy"
)

// How long a permit may live.
const (
	DefaultTTL = 30 * time.Second
	MinTTL     = time.Second
	MaxTTL     = time.Hour
)

// MaxField is how many bytes a field of the binding of a permit that is issued here may have.
const MaxField = 256

// NewNonce returns a nonce for the call, with a fresh id, that is valid from now for at least ttl, which is in whole
// seconds. It fails with [ErrInvalid] if the call or ttl is out of range, and with [entropy.ErrExhausted] if no
// randomness can be had.
func NewNonce(call Binding, now time.Time, ttl time.Duration, source entropy.Source) (Nonce, error) {
	if ttl < MinTTL || ttl > MaxTTL || ttl%time.Second != 0 {
		return Nonce{}, fmt.Errorf("%w: a TTL is 1 to 3600 whole seconds", ErrInvalid)
	}
	if err := call.complete(); err != nil {
		return Nonce{}, err
	}
	id, err := newID(now, source)
	if err != nil {
		return Nonce{}, err
	}
	ms := now.UnixMilli()
	return Nonce{
		ID:        id,
		IssuedAt:  ms / 1000,
		ExpiresAt: (ms+999)/1000 + int64(ttl/time.Second),
		BoundTo:   call,
	}, nil
}

// complete refuses a binding that could match no call.
func (b *Binding) complete() error {
	for _, f := range [...]struct {
		name Field
		text string
	}{
		{FieldSubject, b.SubjectID},
		{FieldCapability, b.CapabilityID},
		{FieldServer, b.ToolServer},
		{FieldTool, b.ToolName},
		{FieldRequestID, b.RequestID},
	} {
		if !isName(f.text) {
			return fmt.Errorf("%w: %s must be 1 to %d bytes of UTF-8 without control characters", ErrInvalid, f.name, MaxField)
		}
	}
	if !lowerHex(b.ParameterHash, 64) {
		return fmt.Errorf("%w: %s must be 64 lower-case hex digits", ErrInvalid, FieldParameterHash)
	}
	return nil
}

func isName(text string) bool {
	if text == "" || len(text) > MaxField || !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return false
		}
	}
	return true
}

// newID returns a UUID of version 7 (RFC 9562 5.7): the time in milliseconds, then 74 random bits.
func newID(now time.Time, source entropy.Source) (string, error) {
	var id [16]byte
	if err := source.Fill(id[6:]); err != nil {
		return "", fmt.Errorf("permit: nonce id: %w", err)
	}
	for i, ms := 5, uint64(now.UnixMilli()); i >= 0; i, ms = i-1, ms>>8 {
		id[i] = byte(ms)
	}
	id[6] = 0x70 | id[6]&0x0f
	id[8] = 0x80 | id[8]&0x3f
	var text [36]byte
	at := 0
	for i, group := range [...][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			text[at] = '-'
			at++
		}
		at += hex.Encode(text[at:], group)
	}
	return string(text[:]), nil
}
