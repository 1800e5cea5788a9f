package server

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

// form is what a request type asks of its input, read once from its tags.
type form struct {
	typ    reflect.Type
	fields []field
}

// field is a member of the body, a part of the path or a parameter of the query.
type field struct {
	index    []int
	name     string
	place    place
	required bool
	min, max *int64
	minItems *int64
	maxItems *int64
	maxBytes *int64
	enum     []string
	fallback string // value of an absent parameter of the query
	element  *form  // of a struct, or of the elements of a list
}

type place uint8

const (
	inBody place = iota
	inPath
	inQuery
)

// checker is a type whose members depend on each other.
type checker interface{ Check() error }

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textReader  = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// readsItself reports whether values of t are judged whole by their own decoder.
func readsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(unmarshaler) || p.Implements(textReader)
}

// formOf reads the tags of t, a struct. A tag that cannot be read is a mistake in this program: it panics.
func formOf(t reflect.Type) *form {
	f := &form{typ: t}
	for _, sf := range reflect.VisibleFields(t) {
		if sf.Anonymous || !sf.IsExported() {
			continue
		}
		fd := field{
			index: sf.Index, fallback: sf.Tag.Get("default"),
			min: number(sf, "minimum"), max: number(sf, "maximum"),
			minItems: number(sf, "minItems"), maxItems: number(sf, "maxItems"), maxBytes: number(sf, "maxLength"),
		}
		if (fd.min == nil) != (fd.max == nil) {
			panic("server: " + sf.Name + " has one of minimum and maximum alone")
		}
		if list := sf.Tag.Get("enum"); list != "" {
			fd.enum = strings.Split(list, ",")
		}
		switch {
		case sf.Tag.Get("path") != "":
			fd.name, fd.place, fd.required = sf.Tag.Get("path"), inPath, true
		case sf.Tag.Get("query") != "":
			fd.name, fd.place = sf.Tag.Get("query"), inQuery
		default:
			name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			fd.name = name
			fd.required = !strings.Contains(options, "omitzero") && !strings.Contains(options, "omitempty")
		}
		fd.element = elementForm(sf.Type)
		f.fields = append(f.fields, fd)
	}
	return f
}

func elementForm(t reflect.Type) *form {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || readsItself(t) {
		return nil
	}
	return formOf(t)
}

func number(sf reflect.StructField, tag string) *int64 {
	text := sf.Tag.Get(tag)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("server: tag %s of %s: %v", tag, sf.Name, err))
	}
	return &n
}

// bodyRule says whether a request of this form has a body.
func (f *form) bodyRule(method string) BodyRule {
	rule := NoBody
	for _, fd := range f.fields {
		if fd.place == inBody {
			if fd.required {
				return RequiredBody
			}
			rule = OptionalBody
		}
	}
	if rule == NoBody && method == http.MethodPost {
		rule = OptionalBody
	}
	return rule
}

// bindPath puts the parts of the path into req.
func (f *form) bindPath(req reflect.Value, r *http.Request) error {
	for _, fd := range f.fields {
		if fd.place != inPath {
			continue
		}
		if err := fd.set(req, r.PathValue(fd.name)); err != nil {
			return &placeError{fd.name + " in the path", err}
		}
	}
	return nil
}

// bindQuery puts the query into req. A parameter that the form does not know, or that comes twice, is refused.
func (f *form) bindQuery(req reflect.Value, query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return &placeError{"the query", &canonical.Error{Kind: canonical.ErrMalformed, Reason: "badly written"}}
	}
	known := 0
	for _, fd := range f.fields {
		if fd.place != inQuery {
			continue
		}
		given, ok := values[fd.name]
		if ok {
			known++
		} else if fd.fallback != "" {
			given = []string{fd.fallback}
		} else {
			continue
		}
		if len(given) > 1 {
			return &placeError{fd.name + " in the query", canonical.Invalid("given twice")}
		}
		if err := fd.set(req, given[0]); err != nil {
			return &placeError{fd.name + " in the query", err}
		}
	}
	if known != len(values) {
		return &placeError{"the query", canonical.Invalid("a parameter that this route does not take")}
	}
	return nil
}

// set reads text into the field of req, and judges it.
func (fd *field) set(req reflect.Value, text string) error {
	v := req.FieldByIndex(fd.index)
	if !utf8.ValidString(text) {
		return canonical.Invalid("invalid UTF-8")
	}
	if reader, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return reader.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || strconv.FormatInt(n, 10) != text {
			return canonical.Invalid("want an integer")
		}
		v.SetInt(n)
	default:
		panic("server: a parameter cannot be read into a " + v.Type().String())
	}
	if text == "" {
		return canonical.Invalid("empty; leave it out instead")
	}
	if reason := fd.unfit(v); reason != "" {
		return canonical.Invalid(reason)
	}
	return nil
}

// judge refuses what the tags of the form do not allow in req, and what req itself does not.
func (f *form) judge(req reflect.Value, pointer string) error {
	for i := range f.fields {
		fd := &f.fields[i]
		if fd.place != inBody {
			continue
		}
		if err := fd.judge(req.FieldByIndex(fd.index), pointer+"/"+fd.name); err != nil {
			return err
		}
	}
	if c, ok := req.Addr().Interface().(checker); ok {
		if err := c.Check(); err != nil {
			return underPointer(pointer, err)
		}
	}
	return nil
}

func (fd *field) judge(v reflect.Value, pointer string) error {
	plain := fd.element != nil && v.Kind() == reflect.Struct
	if v.IsZero() && !plain {
		if fd.required && v.Kind() != reflect.Bool {
			return &canonical.Error{Kind: canonical.ErrMalformed, Pointer: pointer, Reason: "missing or empty"}
		}
		return nil
	}
	if reason := fd.unfit(v); reason != "" {
		return &canonical.Error{Kind: canonical.ErrInvalid, Pointer: pointer, Reason: reason}
	}
	if fd.element == nil {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		return fd.element.judge(v.Elem(), pointer)
	case reflect.Struct:
		return fd.element.judge(v, pointer)
	case reflect.Slice:
		for i := range v.Len() {
			if err := fd.element.judge(v.Index(i), pointer+"/"+strconv.Itoa(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// unfit says why a value that is there is not allowed, without repeating it.
func (fd *field) unfit(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if n := v.Int(); fd.min != nil && n < *fd.min || fd.max != nil && n > *fd.max {
			return "want an integer from " + strconv.FormatInt(*fd.min, 10) + " to " + strconv.FormatInt(*fd.max, 10)
		}
	case reflect.String:
		if fd.maxBytes != nil && int64(v.Len()) > *fd.maxBytes {
			return "want at most " + strconv.FormatInt(*fd.maxBytes, 10) + " bytes"
		}
		if fd.enum != nil && !slices.Contains(fd.enum, v.String()) {
			return "want one of " + strings.Join(fd.enum, ", ")
		}
	case reflect.Slice, reflect.Map:
		if n := int64(v.Len()); fd.minItems != nil && n < *fd.minItems {
			return "want at least " + strconv.FormatInt(*fd.minItems, 10)
		} else if fd.maxItems != nil && n > *fd.maxItems {
			return "want at most " + strconv.FormatInt(*fd.maxItems, 10)
		}
	}
	return ""
}

// named are the members by which a repetition of a request is known.
var named = []string{"token", "key", "request_id", "id"}

// repeatable reports whether req carries what makes its repetition known, so that it may be sent again after an unknown
// outcome.
func (f *form) repeatable(req reflect.Value) bool {
	for _, fd := range f.fields {
		if slices.Contains(named, fd.name) && !req.FieldByIndex(fd.index).IsZero() {
			return true
		}
	}
	return false
}

// underPointer puts a pointer in front of that of err, if err has one.
func underPointer(pointer string, err error) error {
	var e *canonical.Error
	if errors.As(err, &e) {
		e.Pointer = pointer + e.Pointer
	}
	return err
}
