package canonical

import (
	stdjson "encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads src into v, a pointer, by the names of v's json tags, letter for letter. It refuses with an [*Error],
// besides what is no strict JSON at all: a member that v does not know, a value of another type, a fraction or exponent
// for an integer, and null for anything but an interface or a raw value, since null is never an absent member. Numbers
// inside of interfaces and raw values keep any size and spelling: [Check] or [Hash] them where their value matters.
// On an error v may be partly filled and must not be used.
func Decode(src []byte, v any) error {
	if err := check(src, false); err != nil {
		return err
	}
	if err := json.Unmarshal(src, v, strict); err != nil {
		return typedError(err)
	}
	return nil
}

// DecodeLimited is [Decode] for a src of at most maxBytes; a longer one is [ErrTooLarge].
func DecodeLimited(src []byte, maxBytes int, v any) error {
	if len(src) > maxBytes {
		return tooLarge(maxBytes)
	}
	return Decode(src, v)
}

// Invalid returns the error by which a type's own UnmarshalJSON or UnmarshalText refuses a value. [Decode] shows its
// reason, which therefore must not repeat the value; of any other error it shows nothing.
func Invalid(reason string) error { return &Error{Kind: ErrInvalid, Reason: reason} }

var errNull = errors.New(reasonNull)

var strict = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.MatchCaseInsensitiveNames(false),
	jsontext.AllowDuplicateNames(false),
	jsontext.AllowInvalidUTF8(false),
	json.WithUnmarshalers(json.UnmarshalFromFunc(refuseNull)),
)

// refuseNull is asked before every value is read.
func refuseNull(in *jsontext.Decoder, v any) error {
	if in.PeekKind() != 'n' {
		return errors.ErrUnsupported
	}
	switch v.(type) {
	case *any, *jsontext.Value, *stdjson.RawMessage:
		return errors.ErrUnsupported
	}
	return errNull
}

// typedError says what json.Unmarshal refused, without the value that its own message may carry.
func typedError(err error) error {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return &Error{Kind: ErrMalformed, Reason: reasonValue, Err: err}
	}
	e := &Error{
		Kind:    ErrMalformed,
		Pointer: shownPointer(string(semantic.JSONPointer)),
		Offset:  int(semantic.ByteOffset),
		Reason:  wanted(semantic.GoType),
	}
	var member *Error
	switch cause := semantic.Err; {
	case errors.Is(cause, json.ErrUnknownName):
		e.Reason = reasonUnknown
	case errors.Is(cause, errNull):
		e.Reason = reasonNull
	case errors.Is(cause, strconv.ErrRange):
		e.Kind = ErrInvalid
		e.Reason = "number out of range"
	case errors.As(cause, &member):
		e.Kind, e.Reason, e.Err = member.Kind, member.Reason, cause
		e.Pointer += member.Pointer
	default:
		e.Err = cause
	}
	return e
}

// shownPointer hides the names of a pointer that may be values.
func shownPointer(pointer string) string {
	if pointer == "" {
		return ""
	}
	names := strings.Split(pointer[1:], "/")
	for i, name := range names {
		names[i] = shown(name)
	}
	return "/" + strings.Join(names, "/")
}

// wanted says in JSON's words what a Go type is read from.
func wanted(t reflect.Type) string {
	if t == nil {
		return reasonValue
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "want true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "want an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "want an integer that is not negative"
	case reflect.Float32, reflect.Float64:
		return "want a number"
	case reflect.String:
		return "want a string"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "want a string in base64"
		}
		return "want an array"
	case reflect.Struct, reflect.Map:
		return "want an object"
	default:
		return "a value of another form is wanted"
	}
}
