package canonical_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

type vectors struct {
	Accepted []struct{ Input, Canonical, SHA256 string }
	Refused  []struct {
		Input string `json:"input_base64"`
		Why   string
	}
}

func readVectors(t testing.TB) vectors {
	t.Helper()
	text, err := os.ReadFile("../../vectors/canonical.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Accepted) < 16 || len(v.Refused) < 24 {
		t.Fatalf("only %d accepted and %d refused vectors", len(v.Accepted), len(v.Refused))
	}
	return v
}

func TestAcceptedVectors(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Accepted {
		got, err := canonical.Transform([]byte("kept "), []byte(v.Input))
		if err != nil {
			t.Errorf("%s: %v", v.Input, err)
			continue
		}
		if string(got) != "kept "+v.Canonical {
			t.Errorf("%s:\n got %s\nwant %s", v.Input, got[5:], v.Canonical)
		}
		sum, err := canonical.Hash([]byte(v.Input))
		if err != nil || hex.EncodeToString(sum[:]) != v.SHA256 {
			t.Errorf("%s: hash %x, %v; want %s", v.Input, sum, err, v.SHA256)
		}
		if err := canonical.Check([]byte(v.Input), len(v.Input)); err != nil {
			t.Errorf("%s: Check: %v", v.Input, err)
		}
	}
}

func TestRefusedVectors(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Refused {
		src, err := base64.StdEncoding.DecodeString(v.Input)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, v.Why, src)
	}
}

// refused asserts that all three ways in refuse src alike.
func refused(t *testing.T, name string, src []byte) {
	t.Helper()
	if got, err := canonical.Transform([]byte("kept"), src); err == nil || string(got) != "kept" {
		t.Errorf("%s: Transform gave %q, %v; want what was there and an error", name, got, err)
	}
	if _, err := canonical.Hash(src); err == nil {
		t.Errorf("%s: Hash accepted it", name)
	}
	if err := canonical.Check(src, len(src)); err == nil {
		t.Errorf("%s: Check accepted it", name)
	}
}

func TestNumbersAreWrittenAsECMAScriptDoes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "-0.0": "0", "0e5": "0", "-0e-5": "0", "1e-400": "0", "-1e-400": "0",
		"7": "7", "-7": "-7", "10": "10", "1e1": "10", "1E+1": "10", "100e-2": "1", "1.50": "1.5",
		"0.000001": "0.000001", "1e-6": "0.000001", "0.0000001": "1e-7", "-1e-7": "-1e-7", "123e-9": "1.23e-7",
		"1.5e-10": "1.5e-10", "1e-100": "1e-100", "5e-324": "5e-324", "4.9e-324": "5e-324", "2.2250738585072014e-308": "2.2250738585072014e-308",
		"999999999999999": "999999999999999", "1000000000000000": "1000000000000000", "-999999999999999": "-999999999999999",
		"9007199254740991": "9007199254740991", "-9007199254740991": "-9007199254740991", "9007199254740991.0": "9007199254740991",
		"9007199254740990.9": "9007199254740991", "90071992547409910e-1": "9007199254740991", "2251799813685248.5": "2251799813685248.5",
		"0.1": "0.1", "0.30000000000000004": "0.30000000000000004", "3.14159265358979311599796346854418516": "3.141592653589793",
	} {
		got, err := canonical.Transform(nil, []byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s = %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestNumbersBeyondTheExactIntegersAreRefusedHoweverSpelled(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"9007199254740992", "-9007199254740992", "9007199254740993", "9007199254740991.5", "9007199254740992e0", "900719925474099.2e1",
		"1e16", "1e300", "-1e300", "1e309", "-1e309", "1e999999999999", "0.1e400", strings.Repeat("9", 5000), "1.7976931348623157e308",
	} {
		_, err := canonical.Transform(nil, []byte(in))
		if !errors.Is(err, canonical.ErrInvalid) || errors.Is(err, canonical.ErrMalformed) {
			t.Errorf("%.30s: %v, want ErrInvalid", in, err)
		}
	}
}

func TestBadlyWrittenJSONIsRefused(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", " ", "\x00", "nul", "nulll", "True", "tru", "-", "--1", "00", "-01", "1.", "1.e1", ".1", "1e", "1e+", "0x1", "1_0", "Infinity",
		"{", "}", "[", "]", "[1", "[1,", "[,1]", "[1 2]", "[1,]", `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1,`, `{"a" 1}`, `{a:1}`, `{1:1}`, `{"a":1 "b":2}`, `{,}`, `{'a':1}`, "[1}", `{"a":1]`,
		`"`, `"a`, `"\`, `"\"`, `"\x"`, `"\u"`, `"\u12"`, `"\u12g4"`, `"\U0041"`, "\"\n\"", "\"\t\"", "\"\\u0041\x1f\"", "\"a\x00\"",
		`"\ud800"`, `"\udfff"`, `"\ud800\u0041"`, `"\ud800x"`, `"\ud800\ud800"`, `"\ud800\n"`, `"\ud83d\ude0"`, `"\ud83d\`, `"\ud83d\u`,
		"\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\"", "\"\\n\xe2\x82\"", "{\"\xff\":1}", "\xef\xbb\xbf1",
		"1 1", "{}{}", "[]x", "1,", "null\x00", "// c\n1", "/**/1", "\u00a01", "\v1",
	} {
		refused(t, fmt.Sprintf("%q", in), []byte(in))
		if err := canonical.Check([]byte(in), 100); !errors.Is(err, canonical.ErrMalformed) {
			t.Errorf("%q: %v, want ErrMalformed", in, err)
		}
	}
}

func TestDuplicateMembersAreRefusedAtAnyDepthAndDistance(t *testing.T) {
	t.Parallel()
	far := `{"b":0`
	for i := range 200 {
		far += fmt.Sprintf(`,"m%d":%d`, i*7919%200, i)
	}
	for in, pointer := range map[string]string{
		`{"a":1,"a":1}`:                          "/a",
		`{"a":1,"\u0061":1}`:                     "/a",
		`{"\u0061":1,"a":1}`:                     "/a",
		`{"a":1,"b":1,"a":1}`:                    "/a",
		`{"b":1,"a":1,"b":1}`:                    "/b",
		`[0,{"x":{"y":[{"b":1,"a":1,"b":{}}]}}]`: "/1/x/y/0/b",
		far + `,"b":1}`:                          "/b",
		`{"":1,"":2}`:                            "/…",
		`{"é":1,"\u00e9":2}`:                     "/…",
	} {
		err := canonical.Check([]byte(in), len(in))
		var e *canonical.Error
		if !errors.As(err, &e) || e.Pointer != pointer || e.Reason != "duplicate member" {
			t.Errorf("%.60s: %v, want a duplicate member at %s", in, err, pointer)
		}
	}
	// The same name in two objects is no duplicate, nor are names that only look alike.
	for _, in := range []string{`[{"a":1},{"a":1}]`, `{"a":{"a":{"a":1}}}`, `{"a":1,"A":1}`, "{\"\u00e9\":1,\"e\u0301\":1}", far + `}`} {
		if err := canonical.Check([]byte(in), len(in)); err != nil {
			t.Errorf("%.60s: %v", in, err)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	nest := func(open, inner, end string, n int) []byte {
		return []byte(strings.Repeat(open, n) + inner + strings.Repeat(end, n))
	}
	for _, c := range []struct{ open, inner, end string }{{"[", "", "]"}, {`{"a":`, "1", "}"}, {`[`, `{}`, "]"}} {
		n := canonical.MaxDepth - strings.Count(c.inner, "{")
		if got, err := canonical.Transform(nil, nest(c.open, c.inner, c.end, n)); err != nil || !bytes.Equal(got, nest(c.open, c.inner, c.end, n)) {
			t.Errorf("64 levels of %s: %v", c.open, err)
		}
		refused(t, "65 levels of "+c.open, nest(c.open, c.inner, c.end, n+1))
		refused(t, "a million levels of "+c.open, []byte(strings.Repeat(c.open, 1_000_000)))
	}
}

func TestCheckRefusesWhatIsLargerThanAskedBeforeReadingIt(t *testing.T) {
	t.Parallel()
	if err := canonical.Check([]byte(`"abc"`), 5); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{`"abc"`, `#####`} {
		if err := canonical.Check([]byte(in), 4); !errors.Is(err, canonical.ErrTooLarge) {
			t.Fatalf("%s: %v, want ErrTooLarge", in, err)
		}
	}
}

func TestErrorsNameThePlaceAndNeverTheValue(t *testing.T) {
	t.Parallel()
	const secret = "cf_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRS"
	for in, want := range map[string]string{
		`{"a":[1,{"b":1e400}]}`:                               "/a/1/b",
		`{"a":"` + secret + "\x01" + `"}`:                     "/a",
		`{"` + secret + `":1,"` + secret + `":2}`:             "/…",
		`{"a":{"` + secret + `":-}}`:                          "/a/…",
		`{"a":"` + secret + `\ud800"}`:                        "/a",
		`{"a":` + secret + `}`:                                "/a",
		`["` + secret + `", 123456789123456789]`:              "/1",
		`{"password":"` + secret + `"} "` + secret + `"`:      "",
		`{"` + secret[3:34] + `x":{"` + secret[3:30] + `":}}`: "/…/" + secret[3:30],
	} {
		err := canonical.Check([]byte(in), len(in))
		var e *canonical.Error
		if !errors.As(err, &e) || e.Pointer != want {
			t.Errorf("%s: %v, want the pointer %q", in, err, want)
			continue
		}
		if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "123456789") {
			t.Errorf("%s: the error repeats the value: %v", in, err)
		}
	}
}

func TestMembersAreOrderedByUTF16CodeUnits(t *testing.T) {
	t.Parallel()
	// In UTF-16 order; the last but two lie beyond U+FFFF, and their surrogates sort below U+E000.
	names := []string{"", "\x00", "\n", "1", "A", "a", "aa", "a\u0080", "\u0080", "ö", "ö\ue000", "€", "\ud7ff", "\U00010000", "\U0001f600", "\U0010ffff", "\ue000", "\ufb33", "\uffff"}
	rapid.Check(t, func(t *rapid.T) {
		var in, want bytes.Buffer
		for i, name := range rapid.Permutation(names).Draw(t, "names") {
			text, _ := json.Marshal(name)
			fmt.Fprintf(&in, "%s%s:0", []string{"{", ","}[min(i, 1)], text)
		}
		in.WriteString("}")
		for i, name := range names {
			want.WriteString([]string{"{", ","}[min(i, 1)])
			want.Write(canonical.AppendString(nil, name))
			want.WriteString(":0")
		}
		want.WriteString("}")
		got, err := canonical.Transform(nil, in.Bytes())
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("%v\n got %q\nwant %q", err, got, want.Bytes())
		}
	})
}

func TestConcurrentUseKeepsDocumentsApart(t *testing.T) {
	t.Parallel()
	for g := range 8 {
		t.Run(fmt.Sprint(g), func(t *testing.T) {
			t.Parallel()
			in := []byte(fmt.Sprintf(`{"z":"\n%d","a":[%d,{"y":1,"x":%d}],"\u0062":%d}`, g, g, g, g))
			want := fmt.Sprintf(`{"a":[%d,{"x":%d,"y":1}],"b":%d,"z":"\n%d"}`, g, g, g, g)
			for range 500 {
				if got, err := canonical.Transform(nil, in); err != nil || string(got) != want {
					t.Fatalf("%s, %v; want %s", got, err, want)
				}
				if got, err := canonical.Hash(in); err != nil || got != sha256.Sum256([]byte(want)) {
					t.Fatalf("hash %x, %v", got, err)
				}
				if _, err := canonical.Hash([]byte(`{"z":1,"a":{"\n":[`)); err == nil {
					t.Fatal("accepted")
				}
			}
		})
	}
}

// arguments is what a tool call carries typically.
const arguments = `{"path":"/workspace/docs/roadmap.md","mode":"read","limit":500,"options":{"follow":true,"encoding":"utf-8","ranges":[[0,100],[200,300.5]]},"note":"line one\nline two"}`

func BenchmarkTransform(b *testing.B) {
	dst := make([]byte, 0, 1024)
	b.SetBytes(int64(len(arguments)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canonical.Transform(dst, []byte(arguments)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	b.SetBytes(int64(len(arguments)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canonical.Hash([]byte(arguments)); err != nil {
			b.Fatal(err)
		}
	}
}
