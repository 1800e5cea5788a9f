package canonical

import (
	"errors"
	"strconv"
	"strings"
)

// What is wrong with a document, in three kinds. [Error] says where.
var (
	// ErrMalformed: it is not JSON of the shape asked for.
	ErrMalformed = errors.New("not acceptable JSON")
	// ErrInvalid: the shape is right, but a value is out of its range or form.
	ErrInvalid = errors.New("invalid value")
	// ErrTooLarge: it has more bytes than its reader takes.
	ErrTooLarge = errors.New("document too large")
)

// Error is the refusal of a document. It names the place and the reason and never repeats a value of the document:
// whoever logs it logs no secret.
type Error struct {
	Kind    error  // ErrMalformed, ErrInvalid or ErrTooLarge
	Pointer string // JSON pointer (RFC 6901) to the value; empty means the whole document
	Offset  int    // byte offset at or after which the reading stopped
	Reason  string // what is wrong, and what would be right
	Err     error  // what a member's own decoder returned, or nil; not part of the message
}

// Error says what is wrong and where.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Kind.Error())
	b.WriteString(": ")
	b.WriteString(e.Reason)
	if errors.Is(e.Kind, ErrTooLarge) {
		return b.String()
	}
	if e.Pointer != "" {
		b.WriteString(" at ")
		b.WriteString(e.Pointer)
	}
	b.WriteString(" (byte ")
	b.WriteString(strconv.Itoa(e.Offset))
	b.WriteString(")")
	return b.String()
}

// Unwrap makes errors.Is find the kind and whatever a member's own decoder returned.
func (e *Error) Unwrap() []error {
	if e.Err != nil {
		return []error{e.Kind, e.Err}
	}
	return []error{e.Kind}
}

const (
	reasonArray     = "want a comma or the end of the array"
	reasonColon     = "want a colon after the name of the member"
	reasonControl   = "control character in a string; write it as an escape"
	reasonDepth     = "more than 64 levels of nesting"
	reasonDigits    = "want an integer without sign, fraction and exponent"
	reasonDuplicate = "duplicate member"
	reasonEnd       = "the document ends too early"
	reasonEscape    = "unknown escape in a string"
	reasonName      = "want the name of a member in double quotes"
	reasonNotFinite = "number beyond what a double can hold"
	reasonNull      = "null; leave the member out instead"
	reasonNumber    = "badly written number"
	reasonObject    = "want a comma or the end of the object"
	reasonRange     = "number beyond ±(2^53−1); write it as a string"
	reasonSurrogate = "lone surrogate in a string"
	reasonTrailing  = "data after the value"
	reasonUnknown   = "unknown member"
	reasonUTF8      = "invalid UTF-8 in a string"
	reasonValue     = "want a JSON value"
)

func tooLarge(maxBytes int) error {
	return &Error{Kind: ErrTooLarge, Reason: "more than " + strconv.Itoa(maxBytes) + " bytes"}
}

// underName puts a member's name in front of the pointer of err.
func underName(err error, name []byte) error {
	var e *Error
	if errors.As(err, &e) {
		e.Pointer = "/" + shown(string(name)) + e.Pointer
	}
	return err
}

// underIndex does the same with the index of an array's element.
func underIndex(err error, index int) error {
	var e *Error
	if errors.As(err, &e) {
		e.Pointer = "/" + strconv.Itoa(index) + e.Pointer
	}
	return err
}

// shown returns a name for use in a pointer. Names that look like one of the product's own members are shown; any other
// may be a value that slipped into the wrong place, and a token or key has more than 31 characters.
func shown(name string) string {
	if name == "" || len(name) > 31 {
		return "…"
	}
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return "…"
		}
	}
	return name
}
