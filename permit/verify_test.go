package permit_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/permit"
)

// during is a time at which the sample is valid.
var during = time.Unix(1010, 0)

func accept(t testing.TB, keys ...permit.PublicKey) permit.Keys {
	t.Helper()
	k, err := permit.NewKeys(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func otherKey(seed byte) (ed25519.PrivateKey, permit.PublicKey) {
	priv := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
	return priv, permit.PublicKey(priv.Public().(ed25519.PublicKey))
}

func TestMintedPermitVerifies(t *testing.T) {
	t.Parallel()
	_, other := otherKey(2)
	p := sign(t, sampleNonce())
	for _, keys := range []permit.Keys{accept(t, issuer), accept(t, other, issuer), accept(t, issuer, other)} {
		got, err := permit.Verify(p, expects(p.Nonce.BoundTo), keys, during)
		if err != nil || got != (permit.Verified{Permit: p, Issuer: issuer}) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

func TestTimeWindow(t *testing.T) {
	t.Parallel()
	p := sign(t, sampleNonce()) // from 1000 to 1031
	for _, c := range []struct {
		ms   int64
		want error
	}{
		{-1, permit.ErrNotYetValid},
		{0, permit.ErrNotYetValid},
		{994_999, permit.ErrNotYetValid},
		{995_000, nil}, // issued 5 s ahead
		{1_000_000, nil},
		{1_030_999, nil},
		{1_031_000, permit.ErrExpired},
		{1_031_001, permit.ErrExpired},
		{1 << 53, permit.ErrExpired},
	} {
		_, err := permit.Verify(p, expects(p.Nonce.BoundTo), accept(t, issuer), time.UnixMilli(c.ms))
		if !errors.Is(err, c.want) {
			t.Errorf("at %d ms: %v, want %v", c.ms, err, c.want)
		}
	}
}

func TestEachBindingFieldMismatchedIsRefusedByName(t *testing.T) {
	t.Parallel()
	fields := map[permit.Field]struct {
		bound func(*permit.Binding) *string
		asked func(*permit.Expected) *string
	}{
		permit.FieldSubject:       {func(b *permit.Binding) *string { return &b.SubjectID }, func(e *permit.Expected) *string { return &e.Subject }},
		permit.FieldCapability:    {func(b *permit.Binding) *string { return &b.CapabilityID }, func(e *permit.Expected) *string { return &e.Capability }},
		permit.FieldServer:        {func(b *permit.Binding) *string { return &b.ToolServer }, func(e *permit.Expected) *string { return &e.Server }},
		permit.FieldTool:          {func(b *permit.Binding) *string { return &b.ToolName }, func(e *permit.Expected) *string { return &e.Tool }},
		permit.FieldRequestID:     {func(b *permit.Binding) *string { return &b.RequestID }, func(e *permit.Expected) *string { return &e.RequestID }},
		permit.FieldParameterHash: {func(b *permit.Binding) *string { return &b.ParameterHash }, func(e *permit.Expected) *string { return &e.ParameterHash }},
	}
	for field, at := range fields {
		for name, change := range map[string]func(*permit.Binding, *permit.Expected){
			"another one":        func(_ *permit.Binding, e *permit.Expected) { *at.asked(e) += "x" },
			"a prefix":           func(_ *permit.Binding, e *permit.Expected) { *at.asked(e) = (*at.asked(e))[:2] },
			"empty asked":        func(_ *permit.Binding, e *permit.Expected) { *at.asked(e) = "" },
			"empty bound":        func(b *permit.Binding, _ *permit.Expected) { *at.bound(b) = "" },
			"empty on each side": func(b *permit.Binding, e *permit.Expected) { *at.bound(b), *at.asked(e) = "", "" },
		} {
			n := sampleNonce()
			expected := expects(n.BoundTo)
			change(&n.BoundTo, &expected)
			_, err := permit.Verify(sign(t, n), expected, accept(t, issuer), during)
			var mismatch *permit.BindingMismatchError
			if !errors.As(err, &mismatch) || mismatch.Field != field || !errors.Is(err, permit.ErrBindingMismatch) {
				t.Errorf("%s, %s: %v", field, name, err)
			}
		}
	}
}

// Each fault hides those that come after it.
func TestFaultsAreReportedInOrder(t *testing.T) {
	t.Parallel()
	base := sign(t, sampleNonce())
	expired, early := time.Unix(1031, 0), time.Unix(900, 0)
	everyFieldWrong := permit.Expected{}
	badSignature := base
	badSignature.Signature[0] ^= 1
	misshapen := badSignature
	misshapen.Nonce.ID = ""
	_, other := otherKey(2)

	for _, c := range []struct {
		name     string
		permit   permit.Permit
		expected permit.Expected
		keys     permit.Keys
		now      time.Time
		want     error
	}{
		{"form before time", misshapen, everyFieldWrong, accept(t, other), expired, permit.ErrMalformed},
		{"expiry before binding", badSignature, everyFieldWrong, accept(t, other), expired, permit.ErrExpired},
		{"start before binding", badSignature, everyFieldWrong, accept(t, other), early, permit.ErrNotYetValid},
		{"binding before signature", badSignature, everyFieldWrong, accept(t, other), during, permit.ErrBindingMismatch},
		{"signature last", badSignature, expects(base.Nonce.BoundTo), accept(t, issuer), during, permit.ErrInvalidSignature},
	} {
		if _, err := permit.Verify(c.permit, c.expected, c.keys, c.now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	// Of the fields, the first that differs is named.
	expected := expects(base.Nonce.BoundTo)
	for _, wrong := range []struct {
		field permit.Field
		set   *string
	}{
		{permit.FieldParameterHash, &expected.ParameterHash},
		{permit.FieldRequestID, &expected.RequestID},
		{permit.FieldTool, &expected.Tool},
		{permit.FieldServer, &expected.Server},
		{permit.FieldCapability, &expected.Capability},
		{permit.FieldSubject, &expected.Subject},
	} {
		*wrong.set = "x"
		var mismatch *permit.BindingMismatchError
		if _, err := permit.Verify(base, expected, accept(t, issuer), during); !errors.As(err, &mismatch) || mismatch.Field != wrong.field {
			t.Errorf("%v, want the field %s", err, wrong.field)
		}
	}
}

func TestSignaturesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	p := sign(t, sampleNonce())
	_, other := otherKey(2)
	for name, keys := range map[string]permit.Keys{"no key": {}, "another key": accept(t, other)} {
		if _, err := permit.Verify(p, expects(p.Nonce.BoundTo), keys, during); !errors.Is(err, permit.ErrInvalidSignature) {
			t.Errorf("%s: %v, want ErrInvalidSignature", name, err)
		}
	}
}

func TestTamperedPermitsAreRefused(t *testing.T) {
	t.Parallel()
	p := sign(t, sampleNonce())
	p.Nonce.ReservedHoldID, p.Nonce.ReservingRequestID = "hold", "req"
	p = sign(t, p.Nonce)
	for name, change := range map[string]func(*permit.Permit){
		"other id":                func(p *permit.Permit) { p.Nonce.ID += "x" },
		"issued later":            func(p *permit.Permit) { p.Nonce.IssuedAt++ },
		"lives longer":            func(p *permit.Permit) { p.Nonce.ExpiresAt++ },
		"another hold":            func(p *permit.Permit) { p.Nonce.ReservedHoldID = "hole" },
		"no hold":                 func(p *permit.Permit) { p.Nonce.ReservedHoldID = "" },
		"hold of another request": func(p *permit.Permit) { p.Nonce.ReservingRequestID = "" },
		"another subject":         func(p *permit.Permit) { p.Nonce.BoundTo.SubjectID = "agent-8" },
		"another tool":            func(p *permit.Permit) { p.Nonce.BoundTo.ToolName = "write" },
		"other arguments":         func(p *permit.Permit) { p.Nonce.BoundTo.ParameterHash = "00" },
		"values moved":            func(p *permit.Permit) { b := &p.Nonce.BoundTo; b.ToolName, b.ToolServer = b.ToolServer, b.ToolName },
	} {
		tampered := p
		change(&tampered)
		if _, err := permit.Verify(tampered, expects(tampered.Nonce.BoundTo), accept(t, issuer), during); !errors.Is(err, permit.ErrInvalidSignature) {
			t.Errorf("%s: %v, want ErrInvalidSignature", name, err)
		}
	}
}

// Whatever one byte of the wire form is changed to, it is refused or means the very same permit.
func TestNoChangedByteIsAccepted(t *testing.T) {
	t.Parallel()
	p := sign(t, sampleNonce())
	wire, keys := permit.Encode(p), accept(t, issuer)
	rapid.Check(t, func(t *rapid.T) {
		changed := slices.Clone(wire)
		changed[rapid.IntRange(0, len(wire)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		got, err := permit.Decode(changed)
		if err != nil || got == p {
			return
		}
		if _, err := permit.Verify(got, expects(got.Nonce.BoundTo), keys, during); err == nil {
			t.Fatalf("accepted %s", changed)
		}
	})
}

// Adding the group's order to the second half of a signature gives another that means the same to a lax verifier.
func TestASecondSpellingOfASignatureIsRefused(t *testing.T) {
	t.Parallel()
	p := sign(t, sampleNonce())
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	half := slices.Clone(p.Signature[32:])
	slices.Reverse(half)
	sum := new(big.Int).Add(new(big.Int).SetBytes(half), order).FillBytes(make([]byte, 32))
	slices.Reverse(sum)
	copy(p.Signature[32:], sum)
	if _, err := permit.Verify(p, expects(p.Nonce.BoundTo), accept(t, issuer), during); !errors.Is(err, permit.ErrInvalidSignature) {
		t.Fatalf("%v, want ErrInvalidSignature", err)
	}
}

// unfitKeys are encodings of the points of small order, canonical and not, and of no point at all.
var unfitKeys = map[string]string{
	"order 1":                              "0100000000000000000000000000000000000000000000000000000000000000",
	"order 2":                              "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"order 4":                              "0000000000000000000000000000000000000000000000000000000000000000",
	"order 4, other":                       "0000000000000000000000000000000000000000000000000000000000000080",
	"order 8, first":                       "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"order 8, second":                      "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
	"order 8, third":                       "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"order 8, fourth":                      "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
	"order 1, sign of zero":                "0100000000000000000000000000000000000000000000000000000000000080",
	"order 2, sign of zero":                "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"order 4, y = p":                       "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"order 4, y = p, other":                "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"order 1, y = p + 1":                   "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"order 1, y = p + 1, sign of zero":     "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"large order, y = p + 3, not reduced":  "f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"large order, y = p + 14, not reduced": "fbffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"no point":                             "0200000000000000000000000000000000000000000000000000000000000000",
}

func TestUnfitPublicKeysAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range unfitKeys {
		key := unhex(t, text)
		if err := permit.VetPublicKey(key); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("%s: VetPublicKey: %v", name, err)
		}
		if _, err := permit.ParsePublicKey(text); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("%s: ParsePublicKey: %v", name, err)
		}
		if keys, err := permit.NewKeys(issuer, permit.PublicKey(key)); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("%s: NewKeys: %v, %v", name, keys, err)
		}
	}
	for _, key := range [][]byte{nil, issuer[:31], append(issuer[:], 0)} {
		if err := permit.VetPublicKey(key); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("%d bytes: %v", len(key), err)
		}
	}
	for seed := range byte(50) {
		_, fit := otherKey(seed)
		if err := permit.VetPublicKey(fit[:]); err != nil {
			t.Errorf("a good key was refused: %v", err)
		}
	}
}

// This is why keys are vetted: under the identity, a signature needs no private key.
func TestForgeryUnderTheIdentityKeyNeedsItsKeyAccepted(t *testing.T) {
	t.Parallel()
	identity := permit.PublicKey(unhex(t, unfitKeys["order 1"]))
	forged := make([]byte, ed25519.SignatureSize)
	forged[0] = 1 // R is the identity, S is 0
	if !ed25519.Verify(identity[:], []byte("anything"), forged) {
		t.Fatal("the forgery no longer works: this test proves nothing")
	}
	if _, err := permit.NewKeys(identity); !errors.Is(err, permit.ErrInvalid) {
		t.Fatalf("%v, want ErrInvalid", err)
	}
}

func TestPublicKeysAreReadInOneSpelling(t *testing.T) {
	t.Parallel()
	got, err := permit.ParsePublicKey(issuer.String())
	if err != nil || got != issuer {
		t.Fatalf("%v, %v", got, err)
	}
	text := issuer.String()
	for _, bad := range []string{"", text[:62], text + "00", "0x" + text[2:], fmt.Sprintf("%X", issuer[:]), text[:63] + " ", text[:63] + "g"} {
		if _, err := permit.ParsePublicKey(bad); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", bad, err)
		}
	}
}

func TestSetsOfKeysAreBoundedAndWithoutRepetition(t *testing.T) {
	t.Parallel()
	var many []permit.PublicKey
	for seed := range byte(permit.MaxKeys + 1) {
		_, k := otherKey(seed)
		many = append(many, k)
	}
	if _, err := permit.NewKeys(many[1:]...); err != nil {
		t.Error(err)
	}
	if _, err := permit.NewKeys(many...); !errors.Is(err, permit.ErrInvalid) {
		t.Errorf("too many: %v, want ErrInvalid", err)
	}
	if _, err := permit.NewKeys(issuer, issuer); !errors.Is(err, permit.ErrInvalid) {
		t.Errorf("twice: %v, want ErrInvalid", err)
	}
}

func TestMarkersAndHoldTokensBelongToOneIssuerAndNonce(t *testing.T) {
	t.Parallel()
	_, other := otherKey(2)
	p := sign(t, sampleNonce())
	v, err := permit.Verify(p, expects(p.Nonce.BoundTo), accept(t, issuer), during)
	if err != nil {
		t.Fatal(err)
	}
	if v.MarkerID() != permit.MarkerID(issuer, p.Nonce.ID) || v.HoldToken() != permit.HoldToken(issuer, p.Nonce.ID) {
		t.Error("a verified permit names another marker or hold than its parts")
	}
	if permit.MarkerID(other, p.Nonce.ID) == v.MarkerID() || permit.MarkerID(issuer, "x") == v.MarkerID() {
		t.Error("two permits share a marker")
	}
	if permit.HoldToken(other, p.Nonce.ID) == v.HoldToken() || permit.HoldToken(issuer, "x") == v.HoldToken() {
		t.Error("two permits share a hold token")
	}
	// Both are stored: they must never change.
	marker, token := v.MarkerID(), v.HoldToken()
	if got := hex.EncodeToString(marker[:]); got != "e058bebc905e56025c2240d8b500f9859c1ece8819d5c68149dea30f2a624473" {
		t.Errorf("marker %s", got)
	}
	if got := hex.EncodeToString(token[:]); got != "da3bd93a4592570442e7656c1c0c8e3d" {
		t.Errorf("hold token %s", got)
	}
}

func TestArgumentsWithoutACertainFormHaveNoHash(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", `{"a":1,"a":1}`, `{"n":1e300}`, `{"n":9007199254740992}`, "{\"s\":\"\xff\"}", `{} ` + `{}`} {
		if hash, err := permit.ParameterHash([]byte(bad)); err == nil || hash != "" {
			t.Errorf("%s: %s, %v", bad, hash, err)
		}
	}
	a, _ := permit.ParameterHash([]byte(`{"b":1.0,"a":[]}`))
	b, _ := permit.ParameterHash([]byte(` {"a":[ ],"b":1}`))
	if a != b || len(a) != 64 {
		t.Errorf("%s and %s", a, b)
	}
}
