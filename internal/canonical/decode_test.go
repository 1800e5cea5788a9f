package canonical_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

type sample struct {
	Name   string         `json:"name"`
	Amount uint64         `json:"amount"`
	List   []bool         `json:"list"`
	Inner  inner          `json:"inner"`
	Ptr    *int8          `json:"ptr"`
	Raw    jsontext.Value `json:"raw"`
	Any    any            `json:"any"`
}

type inner struct {
	Hex   lowerHex            `json:"hex"`
	Deep  map[string]int      `json:"deep"`
	Std   json.RawMessage     `json:"std"`
	Picky secretive           `json:"picky"`
	Items []map[string]sample `json:"items"`
}

// lowerHex explains its refusals, secretive repeats the value in them.
type lowerHex string

func (h *lowerHex) UnmarshalText(text []byte) error {
	if strings.Trim(string(text), "0123456789abcdef") != "" {
		return canonical.Invalid("want lower-case hex")
	}
	*h = lowerHex(text)
	return nil
}

type secretive string

var errPicky = errors.New("picky")

func (*secretive) UnmarshalJSON(text []byte) error {
	return errors.Join(errPicky, errors.New("cannot take "+string(text)))
}

func TestDecodeFillsWhatItKnows(t *testing.T) {
	t.Parallel()
	var got sample
	src := `{"name":"n\u00e9","amount":9007199254740993,"list":[true,false],"inner":{"hex":"0a","deep":{"a":-1},"std":null},"ptr":-1,"raw":{"x":1e400, "y":null},"any":{"z":[null]}}`
	if err := canonical.Decode([]byte(src), &got); err != nil {
		t.Fatal(err)
	}
	minus := int8(-1)
	want := sample{
		Name: "né", Amount: 9007199254740993, List: []bool{true, false}, Ptr: &minus,
		Inner: inner{Hex: "0a", Deep: map[string]int{"a": -1}, Std: json.RawMessage("null")},
		Raw:   jsontext.Value(`{"x":1e400, "y":null}`), Any: map[string]any{"z": []any{nil}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("\n got %+v\nwant %+v", got, want)
	}
}

func TestDecodeRefusesByPlaceAndReason(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-s3cr3t-s3cr3t-s3cr3t-s3cr3t"
	for _, c := range []struct {
		name, src, pointer, reason string
		kind                       error
	}{
		{"duplicate member", `{"name":"a","name":"a"}`, "/name", "duplicate member", canonical.ErrMalformed},
		{"duplicate member within a raw value", `{"raw":{"x":[{"a":1,"a":2}]}}`, "/raw/x/0/a", "duplicate member", canonical.ErrMalformed},
		{"unknown member", `{"nome":"a"}`, "/nome", "unknown member", canonical.ErrMalformed},
		{"unknown member further down", `{"inner":{"deeep":{}}}`, "/inner/deeep", "unknown member", canonical.ErrMalformed},
		{"unknown member that may be a secret", `{"` + secret + `":"a"}`, "/…", "unknown member", canonical.ErrMalformed},
		{"other letter case", `{"Name":"a"}`, "/Name", "unknown member", canonical.ErrMalformed},
		{"null for a string", `{"name":null}`, "/name", "null", canonical.ErrMalformed},
		{"null for a list", `{"list":null}`, "/list", "null", canonical.ErrMalformed},
		{"null in a list", `{"list":[true,null]}`, "/list/1", "null", canonical.ErrMalformed},
		{"null for a pointer", `{"ptr":null}`, "/ptr", "null", canonical.ErrMalformed},
		{"null for an object", `{"inner":null}`, "/inner", "null", canonical.ErrMalformed},
		{"null for a map", `{"inner":{"deep":null}}`, "/inner/deep", "null", canonical.ErrMalformed},
		{"null in a map", `{"inner":{"deep":{"a":null}}}`, "/inner/deep/a", "null", canonical.ErrMalformed},
		{"null for a type with its own decoder", `{"inner":{"picky":null}}`, "/inner/picky", "null", canonical.ErrMalformed},
		{"null for text", `{"inner":{"hex":null}}`, "/inner/hex", "null", canonical.ErrMalformed},
		{"null for everything", `null`, "", "null", canonical.ErrMalformed},
		{"string for an integer", `{"amount":"` + secret + `"}`, "/amount", "want an integer that is not negative", canonical.ErrMalformed},
		{"fraction for an integer", `{"amount":1.0}`, "/amount", "want an integer that is not negative", canonical.ErrMalformed},
		{"exponent for an integer", `{"amount":1e2}`, "/amount", "want an integer that is not negative", canonical.ErrMalformed},
		{"sign for an unsigned integer", `{"amount":-1}`, "/amount", "want an integer that is not negative", canonical.ErrMalformed},
		{"sign of zero for an unsigned integer", `{"amount":-0}`, "/amount", "want an integer that is not negative", canonical.ErrMalformed},
		{"integer out of range", `{"ptr":128}`, "/ptr", "number out of range", canonical.ErrInvalid},
		{"large integer out of range", `{"amount":18446744073709551616}`, "/amount", "number out of range", canonical.ErrInvalid},
		{"number for a string", `{"name":77123}`, "/name", "want a string", canonical.ErrMalformed},
		{"string for a bool", `{"list":["true"]}`, "/list/0", "want true or false", canonical.ErrMalformed},
		{"object for a list", `{"list":{}}`, "/list", "want an array", canonical.ErrMalformed},
		{"list for an object", `{"inner":[]}`, "/inner", "want an object", canonical.ErrMalformed},
		{"list for everything", `[]`, "", "want an object", canonical.ErrMalformed},
		{"a member's own reason", `{"inner":{"hex":"0A` + secret + `"}}`, "/inner/hex", "want lower-case hex", canonical.ErrInvalid},
		{"a member's own error is not shown", `{"inner":{"picky":"` + secret + `"}}`, "/inner/picky", "want a string", canonical.ErrMalformed},
		{"invalid UTF-8", "{\"name\":\"\xff\"}", "/name", "invalid UTF-8", canonical.ErrMalformed},
		{"lone surrogate", `{"raw":"\ud800"}`, "/raw", "lone surrogate", canonical.ErrMalformed},
		{"trailing data", `{} {}`, "", "data after the value", canonical.ErrMalformed},
		{"empty", ``, "", "ends too early", canonical.ErrMalformed},
		{"too deep", `{"raw":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, "/raw" + strings.Repeat("/0", 63), "64 levels", canonical.ErrMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var v sample
			err := canonical.Decode([]byte(c.src), &v)
			var e *canonical.Error
			if !errors.As(err, &e) {
				t.Fatalf("err = %v, want an *Error", err)
			}
			if !errors.Is(err, c.kind) || e.Pointer != c.pointer || !strings.Contains(e.Reason, c.reason) {
				t.Errorf("%v, pointer %q; want %v: %s at %q", err, e.Pointer, c.kind, c.reason, c.pointer)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "77123") {
				t.Errorf("the error repeats the value: %v", err)
			}
		})
	}
}

func TestDecodeKeepsAMembersOwnErrorForTheProgram(t *testing.T) {
	t.Parallel()
	var v sample
	if err := canonical.Decode([]byte(`{"inner":{"picky":1}}`), &v); !errors.Is(err, errPicky) {
		t.Fatalf("err = %v, want errors.Is to find the member's own", err)
	}
}

func TestDecodeLimitedRefusesLargeDocuments(t *testing.T) {
	t.Parallel()
	var v any
	if err := canonical.DecodeLimited([]byte(`[1]`), 3, &v); err != nil {
		t.Fatal(err)
	}
	if err := canonical.DecodeLimited([]byte(`[1 ]`), 3, &v); !errors.Is(err, canonical.ErrTooLarge) {
		t.Fatalf("err = %v, want ErrTooLarge", err)
	}
}

func TestScannerReadsPlainIntegersOnly(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{"0": 0, "7": 7, "9007199254740991": canonical.MaxInteger, " 12 ": 12} {
		s := canonical.Scan([]byte(in))
		got, err := s.Integer()
		if err == nil {
			err = s.End()
		}
		if err != nil || got != want {
			t.Errorf("%q = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "-0", "+1", "01", "1.0", "1e2", "1E0", "9007199254740992", "18446744073709551617", `"1"`, "null", "1x", "-", "0 0", "{}"} {
		s := canonical.Scan([]byte(in))
		_, err := s.Integer()
		if err == nil {
			err = s.End()
		}
		if err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
}

func TestScannerReadsAnObjectWithoutLookingAhead(t *testing.T) {
	t.Parallel()
	read := func(src string) (map[string]string, error) {
		s := canonical.Scan([]byte(src))
		got := map[string]string{}
		err := s.Object(func(name []byte) error {
			if _, ok := got[string(name)]; ok {
				return s.Duplicate()
			}
			if len(name) > 3 {
				return s.Unknown()
			}
			text, err := s.String()
			got[string(name)] = text
			return err
		})
		if err == nil {
			err = s.End()
		}
		return got, err
	}
	for src, want := range map[string]map[string]string{
		`{}`:                                    {},
		" { } ":                                 {},
		`{"a":"b"}`:                             {"a": "b"},
		`{"\u0061\n":"\ud83d\ude00é","b":""}`:   {"a\n": "😀é", "b": ""},
		" { \"a\" : \"\" ,\n\"b\":\"x\\\\\" } ": {"a": "", "b": `x\`},
	} {
		if got, err := read(src); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, %v; want %q", src, got, err, want)
		}
	}
	for src, reason := range map[string]string{
		``:                       "ends too early",
		`[]`:                     "want an object",
		`{"a":"b"`:               "want a comma or the end of the object",
		`{"a":"b",}`:             "want the name",
		`{"a" "b"}`:              "want a colon",
		`{"a":1}`:                "want a string",
		`{"a":`:                  "ends too early",
		`{"a":"b","a":"c"}`:      "duplicate member",
		`{"a":"b","\u0061":"c"}`: "duplicate member",
		`{"abcd":"b"}`:           "unknown member",
		`{"a":"\ud800"}`:         "lone surrogate",
		`{"a\x":""}`:             "unknown escape",
		`{} x`:                   "data after the value",
	} {
		if got, err := read(src); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %q, %v; want %s", src, got, err, reason)
		}
	}
}
