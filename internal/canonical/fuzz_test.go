package canonical_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

func seedVectors(f *testing.F) {
	v := readVectors(f)
	for _, a := range v.Accepted {
		f.Add([]byte(a.Input))
	}
	for _, r := range v.Refused {
		src, err := base64.StdEncoding.DecodeString(r.Input)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	for _, s := range []string{arguments, `1e-7`, `[4.9e-324,1e-6,123456789012345.67,-0,0.1e1]`, `"\ud83d\ude00\u2028"`, `{"\ufb33":1,"\ud83d\ude00":2,"b":[],"a":{}}`, `[[[[[[]]]]]]`} {
		f.Add([]byte(s))
	}
}

func FuzzCanonicalOfCanonicalIsItself(f *testing.F) {
	seedVectors(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		once, err := canonical.Transform(nil, src)
		if checkErr := canonical.Check(src, len(src)); (checkErr == nil) != (err == nil) {
			t.Fatalf("Transform says %v, Check %v", err, checkErr)
		}
		if err != nil {
			return
		}
		if !json.Valid(once) {
			t.Fatalf("%q is not JSON", once)
		}
		if len(once) > 6*len(src) {
			t.Fatalf("%d bytes became %d", len(src), len(once))
		}
		twice, err := canonical.Transform(nil, once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%v\n once %q\ntwice %q", err, once, twice)
		}
	})
}

// What is accepted here reads the same to another implementation of RFC 8785.
func FuzzCanonicalAgreesWithAnotherImplementation(f *testing.F) {
	seedVectors(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		ours, err := canonical.Transform(nil, src)
		if err != nil {
			return
		}
		// The other one takes arrays and objects only.
		theirs, err := jcs.Transform(append(append([]byte{'['}, src...), ']'))
		if err != nil {
			t.Fatalf("refused there: %v: %q", err, src)
		}
		if !bytes.Equal(theirs, append(append([]byte{'['}, ours...), ']')) {
			t.Fatalf("\n  ours [%q]\ntheirs %q", ours, theirs)
		}
	})
}

// What encoding/json, which is laxer, refuses as no JSON is refused here.
func FuzzNothingOutsideTheGrammarIsAccepted(f *testing.F) {
	seedVectors(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		if canonical.Check(src, len(src)) == nil && !json.Valid(src) {
			t.Fatalf("accepted %q", src)
		}
	})
}

func FuzzDecodeAcceptsOnlyWhatItCanWriteBack(f *testing.F) {
	seedVectors(f)
	f.Add([]byte(`{"name":"a","amount":1,"list":[true],"raw":null,"any":{"x":null}}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		var v sample
		if err := canonical.Decode(src, &v); err != nil {
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(src, &members); err != nil {
			t.Fatalf("accepted %q: %v", src, err)
		}
		for name, raw := range members {
			switch name {
			case "name", "amount", "list", "inner", "ptr":
				if string(bytes.TrimSpace(raw)) == "null" {
					t.Fatalf("null for %s: %q", name, src)
				}
			case "raw", "any":
			default:
				t.Fatalf("unknown member %q in %q", name, src)
			}
		}
	})
}
