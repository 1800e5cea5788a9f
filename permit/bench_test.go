package permit_test

import (
	"crypto/ed25519"
	"encoding/json"
	"testing"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/permit"
)

const benchArguments = `{"path":"/workspace/docs/roadmap.md","mode":"read"}`

// BenchmarkBare is the floor: canonical JSON of the nonce and one verification.
func BenchmarkBare(b *testing.B) {
	p := sign(b, sampleNonce())
	var wire struct{ Nonce json.RawMessage }
	if err := json.Unmarshal(permit.Encode(p), &wire); err != nil {
		b.Fatal(err)
	}
	var dst []byte
	for b.Loop() {
		text, err := canonical.Transform(dst[:0], wire.Nonce)
		if err != nil || !ed25519.Verify(issuer[:], text, p.Signature[:]) {
			b.Fatal("not verified")
		}
		dst = text
	}
}

// BenchmarkCheck is all that a received permit costs without the store.
func BenchmarkCheck(b *testing.B) {
	p := sign(b, sampleNonce())
	wire, expected, keys := permit.Encode(p), expects(p.Nonce.BoundTo), accept(b, issuer)
	b.ReportAllocs()
	for b.Loop() {
		hash, err := permit.ParameterHash([]byte(benchArguments))
		if err != nil {
			b.Fatal(err)
		}
		expected.ParameterHash = hash
		received, err := permit.Decode(wire)
		if err != nil {
			b.Fatal(err)
		}
		v, err := permit.Verify(received, expected, keys, during)
		if err != nil {
			b.Fatal(err)
		}
		_ = v.MarkerID()
	}
}

func BenchmarkDecode(b *testing.B) {
	wire := permit.Encode(sign(b, sampleNonce()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := permit.Decode(wire); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	n := sampleNonce()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := permit.Sign(signer, n); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCheckOnStore and BenchmarkConsume are the whole way, through the store and its memory engine.
func BenchmarkCheckOnStore(b *testing.B) {
	f := newIssuing(b, storetest.Memory(b))
	wire := f.mint()
	b.ReportAllocs()
	for b.Loop() {
		if err := f.checks(wire); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkConsume(b *testing.B) {
	f := newIssuing(b, storetest.Memory(b))
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		wire := f.mint()
		b.StartTimer()
		f.consumes(wire)
	}
}
