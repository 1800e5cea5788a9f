package pubkey_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"strings"
	"testing"

	"filippo.io/edwards25519"

	"github.com/counterfoil/counterfoil/internal/pubkey"
)

func TestVetAcceptsGeneratedKeys(t *testing.T) {
	t.Parallel()
	for i := range 64 {
		seed := make([]byte, ed25519.SeedSize)
		seed[0] = byte(i)
		if err := pubkey.Vet(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)); err != nil {
			t.Fatalf("seed %d: %v", i, err)
		}
	}
}

// The points of small order and the encodings that are not canonical, as listed in "Taming the many EdDSAs"
// (Chalkias, Garillot, Nikolaenko, 2020), table 1.
func TestVetRefusesKeysUnderWhichASignatureProvesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, why string }{
		{"0100000000000000000000000000000000000000000000000000000000000000", "small order"}, // the identity
		{"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "small order"},
		{"0000000000000000000000000000000000000000000000000000000000000080", "small order"},
		{"0000000000000000000000000000000000000000000000000000000000000000", "small order"},
		{"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", "small order"},
		{"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa", "small order"},
		{"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "small order"},
		{"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85", "small order"},
		{"0100000000000000000000000000000000000000000000000000000000000080", "canonical"},
		{"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", "canonical"},
		{"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "canonical"},
		{"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", "canonical"},
		{"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "canonical"},
		{"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", "canonical"},
		{"0200000000000000000000000000000000000000000000000000000000000000", "no point"},
		{"01", "no point"},
		{"", "no point"},
	} {
		key, err := hex.DecodeString(c.key)
		if err != nil {
			t.Fatal(err)
		}
		if err := pubkey.Vet(key); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want an error about %q", c.key, err, c.why)
		}
	}
}

// Adding a point of small order to an honest key gives one of mixed order. It is a point for which a private key is
// known, so it stays.
func TestVetAcceptsMixedOrder(t *testing.T) {
	t.Parallel()
	honest, err := new(edwards25519.Point).SetBytes(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := hex.DecodeString("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")
	small, err := new(edwards25519.Point).SetBytes(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := pubkey.Vet(new(edwards25519.Point).Add(honest, small).Bytes()); err != nil {
		t.Fatal(err)
	}
}
