package keyring

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[secret]"

// secret holds 32 secret bytes. They are behind a pointer, since fmt shows the unexported fields of a struct without
// asking their methods.
type secret struct{ bytes *[32]byte }

func newSecret(b [32]byte) secret { return secret{bytes: &b} }

func (s secret) isZero() bool { return s.bytes == nil }

// Format, String, GoString, LogValue, MarshalText: whatever a secret is shown by shows nothing of it.
func (secret) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, redacted) }
func (secret) String() string               { return redacted }
func (secret) GoString() string             { return redacted }
func (secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// description is what a keyring is shown as.
func (k *Keyring) description() string {
	at := k.current.Load()
	if at == nil {
		return "keyring(closed)"
	}
	return fmt.Sprintf("keyring(%d scopes, %d integrity keys)", len(at.scopes), len(at.doc.integrity))
}

// Format shows how many keys there are, never one of them, whatever the verb.
func (k *Keyring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.description()) }

// String is as [Keyring.Format].
func (k *Keyring) String() string { return k.description() }

// GoString is as [Keyring.Format].
func (k *Keyring) GoString() string { return k.description() }

// LogValue is as [Keyring.Format].
func (k *Keyring) LogValue() slog.Value { return slog.StringValue(k.description()) }

// MarshalText is as [Keyring.Format]: encoding a keyring as JSON shows no key either.
func (k *Keyring) MarshalText() ([]byte, error) { return []byte(k.description()), nil }
