package permit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/permit"
)

// What decoding accepts is what was signed: the canonical form of the received bytes is that of the decoded permit, and
// a second, independent reader sees the same members.
func FuzzDecode(f *testing.F) {
	for _, v := range readVectors(f).Permits {
		f.Add([]byte(v.Permit))
	}
	n := sampleNonce()
	n.ReservedHoldID, n.ReservingRequestID = "hold", "req"
	wire := permit.Encode(sign(f, n))
	f.Add(wire)
	f.Add(bytes.Replace(wire, []byte(`"tool_name":"read"`), []byte(`"tool\u005fname" : "r\u00e9\ud83d\ude00\n"`), 1))
	f.Add(bytes.Replace(wire, []byte(`1000`), []byte(`1e3`), 1))
	f.Add(bytes.Replace(wire, []byte(`1000`), []byte(`-0`), 1))
	f.Fuzz(func(t *testing.T, src []byte) {
		p, err := permit.Decode(src)
		if err != nil {
			if p != (permit.Permit{}) {
				t.Fatalf("%v, and yet %+v", err, p)
			}
			if !errors.Is(err, permit.ErrMalformed) && !errors.Is(err, permit.ErrUnsupportedSchema) {
				t.Fatalf("%v has no reason", err)
			}
			return
		}
		encoded := permit.Encode(p)
		received, err := canonical.Transform(nil, src)
		if err != nil || !bytes.Equal(received, encoded) {
			t.Fatalf("%v\nreceived %s\ndecoded  %s", err, received, encoded)
		}
		if again, err := permit.Decode(encoded); err != nil || again != p {
			t.Fatalf("%v: %+v became %+v", err, p, again)
		}
		var lax struct {
			Nonce struct {
				ID        string `json:"nonce_id"`
				IssuedAt  int64  `json:"issued_at"`
				ExpiresAt int64  `json:"expires_at"`
				BoundTo   struct {
					Subject string `json:"subject_id"`
					Tool    string `json:"tool_name"`
				} `json:"bound_to"`
				Hold *string `json:"reserved_hold_id"`
			}
		}
		if err := json.Unmarshal(src, &lax); err != nil {
			t.Fatalf("accepted %q: %v", src, err)
		}
		n := p.Nonce
		if lax.Nonce.ID != n.ID || lax.Nonce.IssuedAt != n.IssuedAt || lax.Nonce.ExpiresAt != n.ExpiresAt ||
			lax.Nonce.BoundTo.Subject != n.BoundTo.SubjectID || lax.Nonce.BoundTo.Tool != n.BoundTo.ToolName ||
			(lax.Nonce.Hold != nil) != (n.ReservedHoldID != "") {
			t.Fatalf("%+v reads as %+v", n, lax)
		}
	})
}
