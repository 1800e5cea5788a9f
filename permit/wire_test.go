package permit_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/permit"
)

// A key of the tests and its public half.
var (
	signer = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	issuer = permit.PublicKey(signer.Public().(ed25519.PublicKey))
)

func sampleNonce() permit.Nonce {
	return permit.Nonce{
		ID: "0193e7c0-1234-7abc-8def-0123456789ab", IssuedAt: 1000, ExpiresAt: 1031,
		BoundTo: permit.Binding{
			SubjectID: "agent-7", RequestID: "req-1", CapabilityID: "cap-files", ToolServer: "files", ToolName: "read",
			ParameterHash: "035350b0e6a021a4c924a149111944945e94d12f6d8a5e24e4461e7009ebf929",
		},
	}
}

func sign(t testing.TB, n permit.Nonce) permit.Permit {
	t.Helper()
	p, err := permit.Sign(signer, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEncodedPermitsDecodeToThemselves(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*permit.Nonce){
		"plain":          func(*permit.Nonce) {},
		"with a hold":    func(n *permit.Nonce) { n.ReservedHoldID, n.ReservingRequestID = "hold", "req" },
		"hold id alone":  func(n *permit.Nonce) { n.ReservedHoldID = "hold" },
		"request alone":  func(n *permit.Nonce) { n.ReservingRequestID = "req" },
		"escapes":        func(n *permit.Nonce) { n.BoundTo.ToolName = "a\"\\/\b\f\n\r\t\x00\x1f\x7f\u2028é😀" },
		"empty bindings": func(n *permit.Nonce) { n.BoundTo = permit.Binding{} },
		"longest window": func(n *permit.Nonce) { n.ExpiresAt = n.IssuedAt + permit.MaxWindow },
		"first second":   func(n *permit.Nonce) { n.IssuedAt, n.ExpiresAt = 0, 1 },
		"last second":    func(n *permit.Nonce) { n.IssuedAt, n.ExpiresAt = canonical.MaxInteger-1, canonical.MaxInteger },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := sampleNonce()
			change(&n)
			p := sign(t, n)
			wire := permit.Encode(p)
			got, err := permit.Decode(wire)
			if err != nil || got != p {
				t.Fatalf("%+v, %v; want %+v", got, err, p)
			}
			if text, err := canonical.Transform(nil, wire); err != nil || !bytes.Equal(text, wire) {
				t.Fatalf("not canonical: %s, %v", wire, err)
			}
		})
	}
}

func TestMembersComeInAnyOrderAndWithSpace(t *testing.T) {
	t.Parallel()
	p := sign(t, sampleNonce())
	var wireMembers map[string]any
	if err := json.Unmarshal(permit.Encode(p), &wireMembers); err != nil {
		t.Fatal(err)
	}
	nonce := wireMembers["nonce"].(map[string]any)
	member := func(name string, v any) string {
		text, _ := json.Marshal(v)
		return "\n \"" + name + "\" :\t" + string(text)
	}
	wire := "{" + member("signature", wireMembers["signature"]) + `,"no\u006ece":{` +
		strings.Join([]string{
			member("schema", nonce["schema"]), member("nonce_id", nonce["nonce_id"]), member("bound_to", nonce["bound_to"]),
			member("expires_at", nonce["expires_at"]), member("issued_at", nonce["issued_at"]),
		}, " , ") + "\r\n}} "
	got, err := permit.Decode([]byte(wire))
	if err != nil || got != p {
		t.Fatalf("%+v, %v; want %+v", got, err, p)
	}
}

func TestPermitsThatAreNotWellFormedAreRefused(t *testing.T) {
	t.Parallel()
	valid := string(permit.Encode(sign(t, func() permit.Nonce {
		n := sampleNonce()
		n.ReservedHoldID = "hold-1"
		return n
	}())))
	signature := valid[strings.LastIndex(valid, `:"`)+2 : len(valid)-2]
	replace := func(old, with string) string {
		if strings.Count(valid, old) != 1 {
			t.Fatalf("%q is not once in %s", old, valid)
		}
		return strings.Replace(valid, old, with, 1)
	}
	for name, wire := range map[string]string{
		"empty":                           "",
		"null":                            "null",
		"a list":                          "[" + valid + "]",
		"a string":                        `"permit"`,
		"no members":                      "{}",
		"cut off":                         valid[:len(valid)-1],
		"trailing data":                   valid + "x",
		"two permits":                     valid + valid,
		"byte order mark":                 "\xef\xbb\xbf" + valid,
		"duplicate nonce":                 replace(`,"signature"`, `,"nonce":{},"signature"`),
		"duplicate signature":             valid[:len(valid)-1] + `,"signature":"` + signature + `"}`,
		"duplicate issued_at":             replace(`"issued_at":1000`, `"issued_at":1000,"issued_at":1000`),
		"duplicate by escape":             replace(`"issued_at":1000`, `"issued_at":1000,"issued_a\u0074":1000`),
		"duplicate tool_name":             replace(`"tool_name":"read"`, `"tool_name":"read","tool_name":"read"`),
		"duplicate hold":                  replace(`"reserved_hold_id":"hold-1"`, `"reserved_hold_id":"hold-1","reserved_hold_id":"hold-2"`),
		"unknown member":                  valid[:len(valid)-1] + `,"kid":"x"}`,
		"unknown member of nonce":         replace(`"issued_at"`, `"audience":"x","issued_at"`),
		"unknown member of bound_to":      replace(`"tool_name"`, `"model":"x","tool_name"`),
		"other letter case":               replace(`"nonce_id"`, `"Nonce_id"`),
		"nonce missing":                   `{"signature":"` + signature + `"}`,
		"signature missing":               valid[:strings.Index(valid, `,"signature"`)] + "}",
		"schema missing":                  replace(`,"schema":"chio.execution_nonce.v1"`, ``),
		"nonce_id missing":                replace(`"nonce_id":"0193e7c0-1234-7abc-8def-0123456789ab",`, ``),
		"issued_at missing":               replace(`"issued_at":1000,`, ``),
		"expires_at missing":              replace(`"expires_at":1031,`, ``),
		"request_id missing":              replace(`"request_id":"req-1",`, ``),
		"tool_name missing":               replace(`"tool_name":"read",`, ``),
		"nonce_id empty":                  replace(`"0193e7c0-1234-7abc-8def-0123456789ab"`, `""`),
		"hold empty":                      replace(`"hold-1"`, `""`),
		"hold null":                       replace(`"hold-1"`, `null`),
		"reserving_request_id null":       replace(`"reserved_hold_id":"hold-1"`, `"reserving_request_id":null`),
		"bound_to null":                   valid[:strings.Index(valid, `{"capability_id"`)] + `null,"expires_at"` + valid[strings.Index(valid, `"expires_at"`)+12:],
		"subject_id null":                 replace(`"agent-7"`, `null`),
		"subject_id a number":             replace(`"agent-7"`, `7`),
		"issued_at a string":              replace(`1000`, `"1000"`),
		"issued_at with a fraction":       replace(`1000`, `1000.0`),
		"issued_at with an exponent":      replace(`1000`, `1e3`),
		"issued_at with a minus":          replace(`1000`, `-1000`),
		"issued_at minus zero":            replace(`1000`, `-0`),
		"issued_at with a plus":           replace(`1000`, `+1000`),
		"issued_at with a leading zero":   replace(`1000`, `01000`),
		"issued_at null":                  replace(`1000`, `null`),
		"expires_at beyond the integers":  replace(`1031`, `9007199254740992`),
		"expires_at wraps to a valid one": replace(`1031`, `18446744073709552647`),
		"window empty":                    replace(`1031`, `1000`),
		"window reversed":                 replace(`1031`, `999`),
		"window too long":                 replace(`1031`, `4602`),
		"signature in upper case":         replace(signature, strings.ToUpper(signature)),
		"signature too short":             replace(signature, signature[2:]),
		"signature too long":              replace(signature, signature+"00"),
		"signature empty":                 replace(signature, ""),
		"signature with a newline":        replace(signature, signature[:126]+`\n0`),
		"signature in base64":             replace(signature, strings.Repeat("A", 88)),
		"invalid UTF-8":                   replace(`agent-7`, "agent-\xff"),
		"lone surrogate":                  replace(`agent-7`, `agent-\ud800`),
		"raw control character":           replace(`agent-7`, "agent\n7"),
		"too large":                       replace(`agent-7`, strings.Repeat("a", permit.MaxSize)),
		"too large by space":              valid + strings.Repeat(" ", permit.MaxSize-len(valid)+1),
		"too deep":                        strings.Repeat(`{"nonce":`, 1000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := permit.Decode([]byte(wire))
			if !errors.Is(err, permit.ErrMalformed) {
				t.Fatalf("%v, want ErrMalformed", err)
			}
			if p != (permit.Permit{}) {
				t.Fatalf("a refused permit was returned: %+v", p)
			}
			if strings.Contains(err.Error(), "agent") || strings.Contains(err.Error(), signature[:8]) {
				t.Fatalf("the error repeats a value: %v", err)
			}
		})
	}
	for name, wire := range map[string]string{
		"as large as allowed": valid + strings.Repeat(" ", permit.MaxSize-len(valid)),
		"longest window":      replace(`1031`, `4601`),
	} {
		if _, err := permit.Decode([]byte(wire)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOtherSchemasAreRefusedByName(t *testing.T) {
	t.Parallel()
	valid := string(permit.Encode(sign(t, sampleNonce())))
	for _, schema := range []string{"", "chio.execution_nonce.v2", "chio.execution_nonce.V1", "chio.execution_nonce.v1 "} {
		wire := strings.Replace(valid, permit.Schema, schema, 1)
		if _, err := permit.Decode([]byte(wire)); !errors.Is(err, permit.ErrUnsupportedSchema) {
			t.Errorf("%q: %v, want ErrUnsupportedSchema", schema, err)
		}
		// The form comes first.
		if _, err := permit.Decode([]byte(wire + "x")); !errors.Is(err, permit.ErrMalformed) {
			t.Errorf("%q and trailing data: %v, want ErrMalformed", schema, err)
		}
	}
}

func TestRefusalNamesTheMember(t *testing.T) {
	t.Parallel()
	valid := string(permit.Encode(sign(t, sampleNonce())))
	for name, c := range map[string]struct{ old, with, detail string }{
		"wrong type": {`"agent-7"`, `7`, "/nonce/bound_to/subject_id"},
		"exponent":   {`1000`, `1e3`, "/nonce/issued_at"},
		"missing":    {`"request_id":"req-1",`, ``, "/nonce/bound_to/request_id"},
		"duplicate":  {`"issued_at"`, `"issued_at":1,"issued_at"`, "/nonce/issued_at"},
		"unknown":    {`"issued_at"`, `"aud":1,"issued_at"`, "/nonce/aud"},
	} {
		_, err := permit.Decode([]byte(strings.Replace(valid, c.old, c.with, 1)))
		if err == nil || !strings.Contains(err.Error(), c.detail) {
			t.Errorf("%s: %v, want it to name %s", name, err, c.detail)
		}
	}
}

func TestUnusableNoncesAreNotSigned(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*permit.Nonce){
		"no id":                 func(n *permit.Nonce) { n.ID = "" },
		"window empty":          func(n *permit.Nonce) { n.ExpiresAt = n.IssuedAt },
		"window too long":       func(n *permit.Nonce) { n.ExpiresAt = n.IssuedAt + permit.MaxWindow + 1 },
		"before the epoch":      func(n *permit.Nonce) { n.IssuedAt = -1 },
		"beyond the integers":   func(n *permit.Nonce) { n.IssuedAt, n.ExpiresAt = canonical.MaxInteger, canonical.MaxInteger+1 },
		"difference overflows":  func(n *permit.Nonce) { n.IssuedAt, n.ExpiresAt = -1<<63, 1<<63-1 },
		"invalid UTF-8":         func(n *permit.Nonce) { n.BoundTo.ToolName = "\xff" },
		"surrogate":             func(n *permit.Nonce) { n.ID = "\xed\xa0\x80" },
		"invalid UTF-8 in hold": func(n *permit.Nonce) { n.ReservedHoldID = "\xff" },
		"too large":             func(n *permit.Nonce) { n.BoundTo.ToolServer = strings.Repeat("\x00", permit.MaxSize/6) },
	} {
		n := sampleNonce()
		change(&n)
		if _, err := permit.Sign(signer, n); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	for _, key := range []ed25519.PrivateKey{nil, {}, make([]byte, 32)} {
		if _, err := permit.Sign(key, sampleNonce()); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("key of %d bytes: %v, want ErrInvalid", len(key), err)
		}
	}
}

func TestPermitsCanBeMembersOfOtherDocuments(t *testing.T) {
	t.Parallel()
	type body struct {
		Permit permit.Permit `json:"permit"`
	}
	want := body{sign(t, sampleNonce())}
	wire, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got body
	if err := canonical.Decode(wire, &got); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	wire = bytes.Replace(wire, []byte(":1000"), []byte(":1e3"), 1)
	var e *canonical.Error
	if err := canonical.Decode(wire, &got); !errors.Is(err, permit.ErrMalformed) || !errors.As(err, &e) || e.Pointer != "/permit/nonce/issued_at" {
		t.Fatalf("%v, want ErrMalformed at /permit/nonce/issued_at", err)
	}
}
