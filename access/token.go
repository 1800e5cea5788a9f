package access

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

const (
	tokenPrefix = "cf_"
	tokenBytes  = 32
	// TokenLength is the length of every token in characters.
	TokenLength = len(tokenPrefix) + 43
	hashTag     = "counterfoil.access-token.v1"
)

// Token is the secret of a credential. Whatever it is shown by shows nothing of it; [Token.Reveal] does. The bytes are
// behind a pointer, since fmt shows the unexported fields of a struct without asking their methods.
type Token struct{ text *string }

var encoding = base64.RawURLEncoding.Strict()

// newToken draws a token.
func newToken(fill func([]byte) error) (Token, error) {
	var b [tokenBytes]byte
	if err := fill(b[:]); err != nil {
		return Token{}, err
	}
	text := tokenPrefix + encoding.EncodeToString(b[:])
	return Token{&text}, nil
}

// ParseToken reads a token: `cf_` and 43 characters of base64url, of which there is one spelling. Anything else is
// [ErrUnauthenticated].
func ParseToken(text string) (Token, error) {
	if len(text) != TokenLength || !strings.HasPrefix(text, tokenPrefix) || strings.ContainsAny(text, "\r\n") {
		return Token{}, fmt.Errorf("%w: it is not of the form cf_ and 43 characters", ErrUnauthenticated)
	}
	if _, err := encoding.DecodeString(text[len(tokenPrefix):]); err != nil {
		return Token{}, fmt.Errorf("%w: it is not of the form cf_ and 43 characters", ErrUnauthenticated)
	}
	return Token{&text}, nil
}

// ParseBearer reads the token out of the values of the header Authorization (RFC 6750): there must be exactly one, the
// scheme Bearer, in any case, one space and the token. Anything else is [ErrUnauthenticated].
func ParseBearer(header []string) (Token, error) {
	const scheme = "bearer "
	switch {
	case len(header) == 0:
		return Token{}, fmt.Errorf("%w: send the header Authorization: Bearer <token>", ErrUnauthenticated)
	case len(header) > 1:
		return Token{}, fmt.Errorf("%w: the header Authorization is there twice", ErrUnauthenticated)
	case len(header[0]) < len(scheme) || !strings.EqualFold(header[0][:len(scheme)], scheme):
		return Token{}, fmt.Errorf("%w: the header Authorization is not of the form Bearer <token>", ErrUnauthenticated)
	}
	return ParseToken(header[0][len(scheme):])
}

// Reveal returns the token in the clear, to give it to its holder.
func (t Token) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// hash is what the store keeps of a token. A token has 256 random bits, so that nothing slower is needed.
func (t Token) hash() state.Digest { return ids.Hash(hashTag, t.Reveal()) }

const redacted = "cf_[secret]"

// Format shows that there is a token and nothing of it, whatever the verb.
func (Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String is as [Token.Format].
func (Token) String() string { return redacted }

// GoString is as [Token.Format].
func (Token) GoString() string { return redacted }

// LogValue is as [Token.Format].
func (Token) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText is as [Token.Format].
func (Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }
