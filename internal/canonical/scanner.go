package canonical

import (
	"strconv"
	"unicode/utf8"
)

// Scanner reads one JSON document from its start to its end, strictly and without looking ahead. It is for a reader
// that knows which members it expects; every other uses [Decode]. The zero value reads an empty document. A Scanner
// that has returned an error must not be used further, and none may be used by two goroutines.
type Scanner struct {
	src  []byte
	pos  int
	text []byte // strings that had escapes, decoded
}

// Scan returns a Scanner at the start of src, which must not change while it is in use.
func Scan(src []byte) Scanner { return Scanner{src: src} }

// span is a string without its quotes: a piece of the source, or, if it had escapes, of the decoded text.
type span struct {
	from, to int
	decoded  bool
}

func (s *Scanner) bytes(p span) []byte {
	if p.decoded {
		return s.text[p.from:p.to]
	}
	return s.src[p.from:p.to]
}

// Peek skips space and returns the next byte without reading it, 0 at the end.
func (s *Scanner) Peek() byte {
	for ; s.pos < len(s.src); s.pos++ {
		switch c := s.src[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// End refuses anything but space in the rest of the document.
func (s *Scanner) End() error {
	if s.Peek(); s.pos < len(s.src) {
		return s.fail(s.pos, ErrMalformed, reasonTrailing)
	}
	return nil
}

// Object reads an object and calls member with each name when its value is next to be read; member must read it. The
// name is valid during the call only. Two members of one name are for member to refuse, by [Scanner.Duplicate].
func (s *Scanner) Object(member func(name []byte) error) error {
	if s.Peek() != '{' {
		return s.Mismatch("an object")
	}
	s.pos++
	if s.Peek() == '}' {
		s.pos++
		return nil
	}
	for {
		mark := len(s.text)
		name, err := s.name()
		if err != nil {
			return err
		}
		if err := member(s.bytes(name)); err != nil {
			return underName(err, s.bytes(name))
		}
		s.text = s.text[:mark]
		switch s.Peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.fail(s.pos, ErrMalformed, reasonObject)
		}
	}
}

// String reads a string.
func (s *Scanner) String() (string, error) {
	if s.Peek() != '"' {
		return "", s.Mismatch("a string")
	}
	mark := len(s.text)
	p, err := s.span()
	if err != nil {
		return "", err
	}
	text := string(s.bytes(p))
	s.text = s.text[:mark]
	return text, nil
}

// Integer reads an integer from 0 to [MaxInteger] that is spelled with digits alone: a sign, a fraction or an exponent
// is refused, as is what lies beyond.
func (s *Scanner) Integer() (int64, error) {
	if c := s.Peek(); c != '-' && (c < '0' || c > '9') {
		return 0, s.Mismatch("an integer")
	}
	at := s.pos
	raw, integer, err := s.number()
	if err != nil {
		return 0, err
	}
	if !integer || raw[0] == '-' {
		return 0, s.fail(at, ErrMalformed, reasonDigits)
	}
	n, parseErr := strconv.ParseInt(string(raw), 10, 64)
	if parseErr != nil || n > MaxInteger {
		return 0, s.fail(at, ErrInvalid, reasonRange)
	}
	return n, nil
}

// Mismatch returns the error for a value that is not what the reader expects at this place.
func (s *Scanner) Mismatch(want string) error {
	if s.pos >= len(s.src) {
		return s.fail(s.pos, ErrMalformed, reasonEnd)
	}
	return s.fail(s.pos, ErrMalformed, "want "+want)
}

// Duplicate returns the error for a member that the object had already.
func (s *Scanner) Duplicate() error { return s.fail(s.pos, ErrMalformed, reasonDuplicate) }

// Unknown returns the error for a member that nobody expects.
func (s *Scanner) Unknown() error { return s.fail(s.pos, ErrMalformed, reasonUnknown) }

func (s *Scanner) fail(at int, kind error, reason string) error {
	return &Error{Kind: kind, Offset: at, Reason: reason}
}

// name reads a member's name and the colon after it.
func (s *Scanner) name() (span, error) {
	if s.Peek() != '"' {
		return span{}, s.fail(s.pos, ErrMalformed, reasonName)
	}
	name, err := s.span()
	if err != nil {
		return span{}, err
	}
	if s.Peek() != ':' {
		return span{}, s.fail(s.pos, ErrMalformed, reasonColon)
	}
	s.pos++
	return name, nil
}

func (s *Scanner) literal(word string) error {
	end := s.pos + len(word)
	if end > len(s.src) || string(s.src[s.pos:end]) != word {
		return s.fail(s.pos, ErrMalformed, reasonValue)
	}
	s.pos = end
	return nil
}

// number reads a number by the grammar of RFC 8259 and says whether it is spelled as an integer.
func (s *Scanner) number() (raw []byte, integer bool, err error) {
	from := s.pos
	if s.at() == '-' {
		s.pos++
	}
	switch c := s.at(); {
	case c == '0':
		s.pos++
	case c >= '1' && c <= '9':
		s.digits()
	case s.pos > from:
		return nil, false, s.fail(s.pos, ErrMalformed, reasonNumber)
	case s.pos >= len(s.src):
		return nil, false, s.fail(s.pos, ErrMalformed, reasonEnd)
	default:
		return nil, false, s.fail(s.pos, ErrMalformed, reasonValue)
	}
	integer = true
	if s.at() == '.' {
		integer = false
		s.pos++
		if !s.digits() {
			return nil, false, s.fail(s.pos, ErrMalformed, reasonNumber)
		}
	}
	if c := s.at(); c == 'e' || c == 'E' {
		integer = false
		s.pos++
		if c := s.at(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return nil, false, s.fail(s.pos, ErrMalformed, reasonNumber)
		}
	}
	return s.src[from:s.pos], integer, nil
}

// at returns the next byte, 0 at the end; a NUL in the document is no part of any token either.
func (s *Scanner) at() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// digits reads one digit or more, or says that there is none.
func (s *Scanner) digits() bool {
	from := s.pos
	for s.pos < len(s.src) && s.src[s.pos]-'0' <= 9 {
		s.pos++
	}
	return s.pos > from
}

// span reads a string, its opening quote first.
func (s *Scanner) span() (span, error) {
	s.pos++
	from := s.pos
	for {
		s.plain()
		switch c := s.at(); {
		case c == '"':
			s.pos++
			return span{from: from, to: s.pos - 1}, nil
		case c == '\\':
			return s.escapedSpan(from)
		case c >= utf8.RuneSelf && s.rune():
		default:
			return span{}, s.badText(c)
		}
	}
}

// escapedSpan reads the rest of a string that started at from and has its first escape here.
func (s *Scanner) escapedSpan(from int) (span, error) {
	start := len(s.text)
	for {
		s.text = append(s.text, s.src[from:s.pos]...)
		if s.at() == '"' {
			s.pos++
			return span{from: start, to: len(s.text), decoded: true}, nil
		}
		if s.at() == '\\' {
			if err := s.escape(); err != nil {
				return span{}, err
			}
		}
		from = s.pos
		s.plain()
		switch c := s.at(); {
		case c == '"' || c == '\\':
		case c >= utf8.RuneSelf && s.rune():
		default:
			return span{}, s.badText(c)
		}
	}
}

// plain skips ASCII that stands for itself.
func (s *Scanner) plain() {
	i := s.pos
	for i < len(s.src) && ordinary[s.src[i]] {
		i++
	}
	s.pos = i
}

// ordinary has the ASCII that a string may hold without an escape.
var ordinary = func() (set [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		set[c] = c != '"' && c != '\\'
	}
	return set
}()

// rune skips one character beyond ASCII and says whether it was valid UTF-8.
func (s *Scanner) rune() bool {
	r, size := utf8.DecodeRune(s.src[s.pos:])
	if r == utf8.RuneError && size == 1 {
		return false
	}
	s.pos += size
	return true
}

// badText says why a string cannot go on with c.
func (s *Scanner) badText(c byte) error {
	switch {
	case s.pos >= len(s.src):
		return s.fail(s.pos, ErrMalformed, reasonEnd)
	case c < ' ':
		return s.fail(s.pos, ErrMalformed, reasonControl)
	default:
		return s.fail(s.pos, ErrMalformed, reasonUTF8)
	}
}

// escape reads one escape and appends what it stands for to the decoded text.
func (s *Scanner) escape() error {
	at := s.pos
	s.pos += 2
	if s.pos > len(s.src) {
		return s.fail(len(s.src), ErrMalformed, reasonEnd)
	}
	switch c := s.src[at+1]; c {
	case '"', '\\', '/':
		s.text = append(s.text, c)
	case 'b':
		s.text = append(s.text, '\b')
	case 'f':
		s.text = append(s.text, '\f')
	case 'n':
		s.text = append(s.text, '\n')
	case 'r':
		s.text = append(s.text, '\r')
	case 't':
		s.text = append(s.text, '\t')
	case 'u':
		return s.unicodeEscape(at)
	default:
		return s.fail(at, ErrMalformed, reasonEscape)
	}
	return nil
}

// unicodeEscape reads the digits of a \u, and of the second \u if the first is half of a surrogate pair.
func (s *Scanner) unicodeEscape(at int) error {
	r, ok := s.hex4()
	if !ok {
		return s.fail(at, ErrMalformed, reasonEscape)
	}
	if r >= 0xd800 && r <= 0xdfff {
		if r >= 0xdc00 || s.pos+2 > len(s.src) || s.src[s.pos] != '\\' || s.src[s.pos+1] != 'u' {
			return s.fail(at, ErrMalformed, reasonSurrogate)
		}
		s.pos += 2
		low, ok := s.hex4()
		if !ok || low < 0xdc00 || low > 0xdfff {
			return s.fail(at, ErrMalformed, reasonSurrogate)
		}
		r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
	}
	s.text = utf8.AppendRune(s.text, r)
	return nil
}

func (s *Scanner) hex4() (rune, bool) {
	if s.pos+4 > len(s.src) {
		return 0, false
	}
	var r rune
	for _, c := range s.src[s.pos : s.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	s.pos += 4
	return r, true
}
