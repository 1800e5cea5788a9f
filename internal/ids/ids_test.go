package ids_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/ids"
)

type vectors struct {
	Operations []struct{ Owner, Key, ID string }       `json:"operation_id"`
	Holds      []named                                 `json:"hold_id"`
	Spends     []named                                 `json:"spend_id"`
	Requests   []struct{ Request, Fingerprint string } `json:"fingerprint"`
	AAD        []struct {
		Epoch      uint64
		Job, Nonce string
		AAD        string `json:"aad_hex"`
	}
}

type named struct {
	Owner     string
	RequestID string `json:"request_id"`
	ID        string
}

func TestVectors(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../../vectors/ids.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(file, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Operations) == 0 || len(v.Holds) == 0 || len(v.Spends) == 0 || len(v.Requests) == 0 || len(v.AAD) == 0 {
		t.Fatalf("vectors are missing: %+v", v)
	}
	for _, o := range v.Operations {
		same(t, "operation", ids.Operation(o.Owner, o.Key), o.ID)
	}
	for _, h := range v.Holds {
		same(t, "hold", ids.Hold(h.Owner, h.RequestID), h.ID)
	}
	for _, s := range v.Spends {
		same(t, "spend", ids.Spend(s.Owner, s.RequestID), s.ID)
	}
	for _, r := range v.Requests {
		sum, err := canonical.Hash([]byte(r.Request))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "fingerprint", hex.EncodeToString(sum[:]), r.Fingerprint)
	}
	for _, a := range v.AAD {
		aad := ids.ChallengeAAD(a.Epoch, bytes32(t, a.Job), bytes32(t, a.Nonce))
		same(t, "aad", hex.EncodeToString(aad), a.AAD)
		if len(aad) != ids.ChallengeAADSize {
			t.Errorf("aad of %d bytes, want %d", len(aad), ids.ChallengeAADSize)
		}
	}
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func bytes32(t *testing.T, text string) [32]byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 32 {
		t.Fatalf("%q: %v, %d bytes", text, err, len(b))
	}
	return [32]byte(b)
}

func TestHashIsWhatItsDefinitionSays(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	for _, c := range []struct{ got, want [32]byte }{
		{ids.Hash("tag", "a", ""), sha256.Sum256([]byte("tag\x00\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x00"))},
		{ids.Hash[string]("tag"), sha256.Sum256([]byte("tag"))},
		{ids.Hash("", []byte(long)), sha256.Sum256([]byte("\x00\x00\x00\x00\x00\x00\x03\xe8" + long))},
	} {
		if c.got != c.want {
			t.Errorf("%x, want %x", c.got, c.want)
		}
	}
}

func TestDifferentPartsNeverShareAHash(t *testing.T) {
	t.Parallel()
	if ids.Hash("t", "a", "bc") == ids.Hash("t", "ab", "c") {
		t.Fatal(`("a", "bc") hashes like ("ab", "c")`)
	}
	part := rapid.StringOfN(rapid.RuneFrom([]rune("ab\x00\x01")), 0, 4, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOfN(part, 0, 4).Draw(t, "a"), rapid.SliceOfN(part, 0, 4).Draw(t, "b")
		equal := len(a) == len(b) && strings.Join(a, "\xff") == strings.Join(b, "\xff")
		if (ids.Hash("t", a...) == ids.Hash("t", b...)) != equal {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

func TestKindsOfNamesAreApart(t *testing.T) {
	t.Parallel()
	issuer := [32]byte{1}
	hold, marker := ids.PermitHold(issuer, "x"), ids.PermitMarker(issuer, "x")
	all := []string{
		ids.Operation("a", "b"), ids.Hold("a", "b"), ids.Spend("a", "b"), ids.RunFingerprint([]string{"a", "b"}),
		hex.EncodeToString(marker[:]), hex.EncodeToString(hold[:]),
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
				t.Errorf("two kinds share %s", b)
			}
		}
	}
	if want := sha256.Sum256(append(append(append([]byte{0, 0, 0, 0, 0, 0, 0, 32}, issuer[:]...), 0, 0, 0, 0, 0, 0, 0, 1), 'x')); marker != want {
		t.Errorf("marker %x, want %x", marker, want)
	}
}

func BenchmarkPermitMarker(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		ids.PermitMarker([32]byte{1}, "0193e7c0-1234-7abc-8def-0123456789ab")
	}
}
