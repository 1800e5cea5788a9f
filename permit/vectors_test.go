package permit_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/permit"
)

type vectors struct {
	Hashes []struct {
		Arguments json.RawMessage
		Hash      string `json:"parameter_hash"`
	}
	Signatures []struct{ Seed, Public, Canonical, Signature string }
	Permits    []struct {
		Seed, Public string
		Now          int64
		Permit       json.RawMessage
	}
}

func readVectors(t testing.TB) vectors {
	t.Helper()
	file, err := os.ReadFile("../vectors/permits.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(file, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Hashes) == 0 || len(v.Signatures) == 0 || len(v.Permits) == 0 {
		t.Fatalf("vectors are missing: %+v", v)
	}
	return v
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestVectorsOfArguments(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Hashes {
		got, err := permit.ParameterHash(v.Arguments)
		if err != nil || got != v.Hash {
			t.Errorf("%s: %s, %v; want %s", v.Arguments, got, err, v.Hash)
		}
	}
}

func TestVectorsOfSignatures(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Signatures {
		key := ed25519.NewKeyFromSeed(unhex(t, v.Seed))
		if got := hex.EncodeToString(key.Public().(ed25519.PublicKey)); got != v.Public {
			t.Errorf("public key %s, want %s", got, v.Public)
		}
		text, err := canonical.Transform(nil, []byte(v.Canonical))
		if err != nil || string(text) != v.Canonical {
			t.Errorf("canonical %s, %v; want %s", text, err, v.Canonical)
		}
		if got := hex.EncodeToString(ed25519.Sign(key, text)); got != v.Signature {
			t.Errorf("signature %s, want %s", got, v.Signature)
		}
	}
}

func TestVectorsOfPermits(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Permits {
		p, err := permit.Decode(v.Permit)
		if err != nil {
			t.Fatal(err)
		}
		key := ed25519.NewKeyFromSeed(unhex(t, v.Seed))
		signed, err := permit.Sign(key, p.Nonce)
		if err != nil || signed != p {
			t.Errorf("signing gives %x, %v; want %x", signed.Signature, err, p.Signature)
		}
		issuer, err := permit.ParsePublicKey(v.Public)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := permit.NewKeys(issuer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := permit.Verify(p, expects(p.Nonce.BoundTo), keys, time.Unix(v.Now, 0))
		if err != nil || got.Issuer != issuer || got.Permit != p {
			t.Errorf("%+v, %v", got, err)
		}
		want, err := canonical.Transform(nil, v.Permit)
		if err != nil || !bytes.Equal(permit.Encode(p), want) {
			t.Errorf("encodes to %s, %v; want %s", permit.Encode(p), err, want)
		}
	}
}

// expects returns the call that a permit is bound to.
func expects(b permit.Binding) permit.Expected {
	return permit.Expected{
		Subject: b.SubjectID, Capability: b.CapabilityID, Server: b.ToolServer,
		Tool: b.ToolName, RequestID: b.RequestID, ParameterHash: b.ParameterHash,
	}
}
