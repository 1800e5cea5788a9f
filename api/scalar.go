package api

import (
	"bytes"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

// MaxInteger is the largest amount and counter: 2^53−1, the largest integer that every JSON reader agrees on.
const MaxInteger = canonical.MaxInteger

// MaxName is how many bytes ids, keys and names have at most.
const MaxName = 256

// Name is an id, key or name: 1 to 256 bytes of UTF-8 without control characters, compared as bytes.
type Name string

// UnmarshalText refuses what is no name.
func (n *Name) UnmarshalText(text []byte) error {
	if len(text) == 0 || len(text) > MaxName || !utf8.Valid(text) || hasControl(string(text)) {
		return canonical.Invalid("want 1 to 256 bytes of UTF-8 without control characters")
	}
	*n = Name(text)
	return nil
}

func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 })
}

// Digest is 32 bytes, such as a SHA-256, as 64 lower-case hex digits.
type Digest string

// UnmarshalText refuses any other length and upper case.
func (d *Digest) UnmarshalText(text []byte) error {
	if !lowerHex(text, 64) {
		return canonical.Invalid("want 64 lower-case hex digits")
	}
	*d = Digest(text)
	return nil
}

// Bytes returns the 32 bytes, false if d is not a digest.
func (d Digest) Bytes() (sum [32]byte, ok bool) { return sum, decodeHex(sum[:], string(d)) }

// Token is 16 bytes as 32 lower-case hex digits. Drawn at random before the first send, it makes a repetition of the
// same request known; answered, it proves that its bearer holds something. It is a secret of who drew or got it.
type Token string

// UnmarshalText refuses any other length, upper case, and the token of zeros, which nobody holds.
func (t *Token) UnmarshalText(text []byte) error {
	if !lowerHex(text, 32) {
		return canonical.Invalid("want 32 lower-case hex digits")
	}
	if strings.Trim(string(text), "0") == "" {
		return canonical.Invalid("want a token drawn at random, not zeros")
	}
	*t = Token(text)
	return nil
}

// TokenFrom writes 16 bytes as a token.
func TokenFrom(token [16]byte) Token { return Token(hex.EncodeToString(token[:])) }

// Bytes returns the 16 bytes, false if t is not a token.
func (t Token) Bytes() (token [16]byte, ok bool) { return token, decodeHex(token[:], string(t)) }

func lowerHex(text []byte, digits int) bool {
	if len(text) != digits {
		return false
	}
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func decodeHex(dst []byte, text string) bool {
	if !lowerHex([]byte(text), 2*len(dst)) {
		return false
	}
	_, err := hex.Decode(dst, []byte(text))
	return err == nil
}

// BudgetName is the name of a budget: 1 to 8 path segments of 1 to 64 characters A–Z a–z 0–9 . _ ~ -, none of them "."
// or "..". In a URL its slashes are percent-encoded.
type BudgetName string

// UnmarshalText refuses what no budget can be called.
func (n *BudgetName) UnmarshalText(text []byte) error {
	if !isBudgetName(string(text)) {
		return canonical.Invalid("want 1 to 8 path segments of 1 to 64 characters A–Z a–z 0–9 . _ ~ -, none of them . or ..")
	}
	*n = BudgetName(text)
	return nil
}

// BudgetPrefix names a budget and all below it: whole path segments, kept without a final slash.
type BudgetPrefix string

// UnmarshalText refuses what is not one or more whole segments; one final slash means the same as none.
func (p *BudgetPrefix) UnmarshalText(text []byte) error {
	name := strings.TrimSuffix(string(text), "/")
	if !isBudgetName(name) {
		return canonical.Invalid("want one or more whole path segments of a budget's name")
	}
	*p = BudgetPrefix(name)
	return nil
}

func isBudgetName(text string) bool {
	segments := strings.Split(text, "/")
	if len(segments) > 8 {
		return false
	}
	for _, s := range segments {
		if s == "" || len(s) > 64 || s == "." || s == ".." || strings.ContainsFunc(s, notInSegment) {
			return false
		}
	}
	return true
}

func notInSegment(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._~-", r)
}

// Seconds is a duration of at least one whole second.
type Seconds int64

// UnmarshalJSON refuses 0, fractions, exponents and signs.
func (s *Seconds) UnmarshalJSON(src []byte) error {
	n, err := integer(src)
	if err != nil {
		return err
	}
	if n == 0 {
		return canonical.Invalid("want at least 1 second")
	}
	*s = Seconds(n) //nolint:gosec // at most 2^53−1
	return nil
}

// Duration returns s as a duration, the longest there is if it is longer.
func (s Seconds) Duration() time.Duration {
	const longest = time.Duration(1<<63 - 1)
	if s > Seconds(longest/time.Second) {
		return longest
	}
	return time.Duration(s) * time.Second
}

// Epoch is a scope's epoch, from 1 to 2^53−1.
type Epoch uint64

// UnmarshalJSON refuses 0, fractions, exponents and signs.
func (e *Epoch) UnmarshalJSON(src []byte) error {
	n, err := integer(src)
	if err != nil {
		return err
	}
	if n == 0 {
		return canonical.Invalid("epochs start at 1")
	}
	*e = Epoch(n)
	return nil
}

const unlimited = `"unlimited"`

// Limit is a budget's limit, or what remains of it: an integer from 0 to 2^53−1, or "unlimited". The zero value is no
// limit at all but an absent member: a limit of 0 and an unlimited one must both be said.
type Limit struct {
	amount uint64
	kind   limitKind
}

type limitKind uint8

const (
	limitAbsent limitKind = iota
	limitAmount
	limitNone
)

// LimitOf returns the limit of that amount.
func LimitOf(amount uint64) Limit { return Limit{amount: amount, kind: limitAmount} }

// Unlimited returns the limit that refuses nothing.
func Unlimited() Limit { return Limit{kind: limitNone} }

// Amount returns the limit, false if there is none or it is absent.
func (l Limit) Amount() (uint64, bool) { return l.amount, l.kind == limitAmount }

// IsUnlimited reports whether the limit was said to be unlimited.
func (l Limit) IsUnlimited() bool { return l.kind == limitNone }

// UnmarshalJSON reads an integer or "unlimited".
func (l *Limit) UnmarshalJSON(src []byte) error {
	if string(src) == unlimited {
		*l = Unlimited()
		return nil
	}
	if len(src) > 0 && src[0] == '"' {
		return canonical.Invalid(`want an integer from 0 to 2^53−1 or "unlimited"`)
	}
	n, err := integer(src)
	if err != nil {
		return err
	}
	*l = LimitOf(n)
	return nil
}

// MarshalJSON writes an integer or "unlimited".
func (l Limit) MarshalJSON() ([]byte, error) {
	switch l.kind {
	case limitAmount:
		return strconv.AppendUint(nil, l.amount, 10), nil
	case limitNone:
		return []byte(unlimited), nil
	case limitAbsent:
	}
	return nil, &canonical.Error{Kind: canonical.ErrInvalid, Reason: "an absent limit cannot be written"}
}

// Time is a moment in milliseconds, written in RFC 3339 in UTC with three digits: 2030-01-02T03:04:05.678Z. The zero
// value is an absent member.
type Time struct{ ms int64 }

const timeLayout = "2006-01-02T15:04:05.000Z"

// TimeOf returns the moment that many milliseconds after the Unix epoch. 0 is the absent time.
func TimeOf(ms int64) Time { return Time{ms: ms} }

// UnixMilli returns the milliseconds since the Unix epoch.
func (t Time) UnixMilli() int64 { return t.ms }

// Time returns the moment in UTC, the zero time if t is absent.
func (t Time) Time() time.Time {
	if t.ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(t.ms).UTC()
}

// String writes the moment as it goes over the wire.
func (t Time) String() string { return time.UnixMilli(t.ms).UTC().Format(timeLayout) }

// MarshalText writes the moment.
func (t Time) MarshalText() ([]byte, error) {
	return time.UnixMilli(t.ms).UTC().AppendFormat(nil, timeLayout), nil
}

// UnmarshalText reads exactly the form that MarshalText writes.
func (t *Time) UnmarshalText(text []byte) error {
	at, err := time.Parse(timeLayout, string(text))
	if err != nil || len(text) != len(timeLayout) {
		return canonical.Invalid("want a time as 2030-01-02T03:04:05.678Z")
	}
	t.ms = at.UnixMilli()
	return nil
}

// integer reads an integer from 0 to 2^53−1 that is spelled with digits alone.
func integer(src []byte) (uint64, error) {
	if len(src) == 0 || (src[0] != '-' && (src[0] < '0' || src[0] > '9')) {
		return 0, &canonical.Error{Kind: canonical.ErrMalformed, Reason: "want an integer"}
	}
	if bytes.ContainsAny(src, "-.eE") {
		return 0, &canonical.Error{Kind: canonical.ErrMalformed, Reason: "want an integer without sign, fraction and exponent"}
	}
	n, err := strconv.ParseUint(string(src), 10, 64)
	if err != nil || n > MaxInteger {
		return 0, canonical.Invalid("number beyond 2^53−1")
	}
	return n, nil
}
