package canonical

import (
	"bytes"
	"slices"
	"strconv"
)

// writer reads one document and appends its canonical form to dst.
type writer struct {
	in      Scanner
	dst     []byte
	numbers bool // refuse numbers out of range, else take them as spelled
	depth   int
	members []member // of all open objects, the innermost last
	own     []byte   // output that nobody wants to keep
	swap    []byte   // for putting members in order
}

// member is one member of an open object: its name, and where the member lies in dst.
type member struct {
	name     span
	from, to int
}

func (w *writer) document(src []byte, numbers bool) error {
	w.in.src, w.numbers = src, numbers
	if err := w.value(); err != nil {
		return err
	}
	return w.in.End()
}

func (w *writer) value() error {
	switch w.in.Peek() {
	case '{':
		return w.nested(w.object)
	case '[':
		return w.nested(w.array)
	case '"':
		return w.text()
	case 't':
		return w.literal("true")
	case 'f':
		return w.literal("false")
	case 'n':
		return w.literal("null")
	default:
		return w.number()
	}
}

func (w *writer) nested(read func() error) error {
	if w.depth == MaxDepth {
		return w.in.fail(w.in.pos, ErrMalformed, reasonDepth)
	}
	w.depth++
	err := read()
	w.depth--
	return err
}

func (w *writer) literal(word string) error {
	if err := w.in.literal(word); err != nil {
		return err
	}
	w.dst = append(w.dst, word...)
	return nil
}

func (w *writer) text() error {
	mark := len(w.in.text)
	s, err := w.in.span()
	if err != nil {
		return err
	}
	w.quote(s)
	w.in.text = w.in.text[:mark]
	return nil
}

// quote appends s as a string. What had no escape needs none.
func (w *writer) quote(s span) {
	if s.decoded {
		w.dst = AppendString(w.dst, w.in.bytes(s))
		return
	}
	w.dst = append(w.dst, '"')
	w.dst = append(w.dst, w.in.bytes(s)...)
	w.dst = append(w.dst, '"')
}

func (w *writer) number() error {
	at := w.in.pos
	raw, integer, err := w.in.number()
	if err != nil {
		return err
	}
	if !w.numbers {
		w.dst = append(w.dst, raw...)
		return nil
	}
	// Up to 15 digits are exact and already as ECMAScript prints them.
	if integer && len(raw) <= 15 && string(raw) != "-0" {
		w.dst = append(w.dst, raw...)
		return nil
	}
	f, parseErr := strconv.ParseFloat(string(raw), 64)
	if parseErr != nil {
		return w.in.fail(at, ErrInvalid, reasonNotFinite)
	}
	// Every double at or beyond 2^53 is an integer, whatever its spelling.
	if f > MaxInteger || f < -MaxInteger {
		return w.in.fail(at, ErrInvalid, reasonRange)
	}
	w.dst = appendNumber(w.dst, f)
	return nil
}

// appendNumber appends f, whose magnitude is below 2^53, as Number::toString of ECMA-262 prints it.
func appendNumber(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	if f >= 1e-6 || f <= -1e-6 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go pads the exponent to two digits: 1e-07.
	if n := len(dst); dst[n-2] == '0' && dst[n-3] == '-' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

func (w *writer) array() error {
	w.in.pos++
	w.dst = append(w.dst, '[')
	if w.in.Peek() == ']' {
		w.in.pos++
		w.dst = append(w.dst, ']')
		return nil
	}
	for index := 0; ; index++ {
		if err := w.value(); err != nil {
			return underIndex(err, index)
		}
		switch w.in.Peek() {
		case ',':
			w.in.pos++
			w.dst = append(w.dst, ',')
		case ']':
			w.in.pos++
			w.dst = append(w.dst, ']')
			return nil
		default:
			return w.in.fail(w.in.pos, ErrMalformed, reasonArray)
		}
	}
}

func (w *writer) object() error {
	first, mark, body := len(w.members), len(w.in.text), len(w.dst)+1
	w.in.pos++
	w.dst = append(w.dst, '{')
	if w.in.Peek() == '}' {
		w.in.pos++
		w.dst = append(w.dst, '}')
		return nil
	}
	ordered := true
	for {
		if err := w.member(); err != nil {
			return err
		}
		if n := len(w.members); ordered && n-first > 1 {
			ordered = w.compare(w.members[n-2], w.members[n-1]) < 0
		}
		switch w.in.Peek() {
		case ',':
			w.in.pos++
			w.dst = append(w.dst, ',')
			continue
		case '}':
			w.in.pos++
		default:
			return w.in.fail(w.in.pos, ErrMalformed, reasonObject)
		}
		break
	}
	if !ordered {
		if err := w.order(first, body); err != nil {
			return err
		}
	}
	w.dst = append(w.dst, '}')
	w.members, w.in.text = w.members[:first], w.in.text[:mark]
	return nil
}

func (w *writer) member() error {
	name, err := w.in.name()
	if err != nil {
		return err
	}
	from := len(w.dst)
	w.quote(name)
	w.dst = append(w.dst, ':')
	if err := w.value(); err != nil {
		return underName(err, w.in.bytes(name))
	}
	w.members = append(w.members, member{name: name, from: from, to: len(w.dst)})
	return nil
}

// order puts the members of the object whose body starts at body in order, and refuses two of one name.
func (w *writer) order(first, body int) error {
	members := w.members[first:]
	slices.SortFunc(members, w.compare)
	for i := 1; i < len(members); i++ {
		if w.compare(members[i-1], members[i]) == 0 {
			at := max(members[i-1].name.from, members[i].name.from)
			if members[i].name.decoded {
				at = w.in.pos - 1
			}
			return underName(w.in.fail(at, ErrMalformed, reasonDuplicate), w.in.bytes(members[i].name))
		}
	}
	w.swap = append(w.swap[:0], w.dst[body:]...)
	w.dst = w.dst[:body]
	for i, m := range members {
		if i > 0 {
			w.dst = append(w.dst, ',')
		}
		w.dst = append(w.dst, w.swap[m.from-body:m.to-body]...)
	}
	return nil
}

func (w *writer) compare(a, b member) int {
	return compareUTF16(w.in.bytes(a.name), w.in.bytes(b.name))
}

// compareUTF16 orders valid UTF-8 as RFC 8785 3.2.3 asks: by UTF-16 code units. That is the order of the bytes, except
// that what lies beyond U+FFFF (first byte F0 and up) is written with surrogates and so comes before U+E000 to U+FFFF
// (first byte EE or EF).
func compareUTF16(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0) {
			x, y = y, x
		}
		if x < y {
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}

const hexDigits = "0123456789abcdef"

// AppendString appends s, which must be valid UTF-8, to dst as a canonical JSON string (RFC 8785 3.2.2.2).
func AppendString[T []byte | string](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		if at := bytes.IndexByte(escapable, c); at >= 0 {
			dst = append(dst, '\\', escapeLetter[at])
		} else {
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// The characters that have an escape of two letters, and its second letter. Reading knows "/" too, writing does not.
var (
	escapable    = []byte("\"\\\b\f\n\r\t")
	escapeLetter = []byte("\"\\bfnrt")
)
