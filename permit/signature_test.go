package permit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"math/big"
	"sync"
	"testing"

	"filippo.io/edwards25519"
	"pgregory.net/rapid"
)

func keyPair(seed byte) (ed25519.PrivateKey, PublicKey) {
	priv := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
	return priv, PublicKey(priv.Public().(ed25519.PublicKey))
}

// agree wants the kept multiples to judge as the standard library does, and returns its judgement.
func agree(t interface {
	Helper()
	Fatalf(string, ...any)
}, key *PublicKey, message, signature []byte,
) bool {
	t.Helper()
	want := ed25519.Verify(key[:], message, signature)
	if got := newMultiples(key).signed(message, signature); got != want {
		t.Fatalf("key %x, message %x, signature %x: %v, the standard library says %v", *key, message, signature, got, want)
	}
	return want
}

func TestMultiplesJudgeSignaturesAsTheStandardLibraryDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		priv, key := keyPair(rapid.Byte().Draw(t, "seed"))
		message := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "message")
		signature := ed25519.Sign(priv, message)
		if !agree(t, &key, message, signature) {
			t.Fatalf("a good signature is none")
		}
		tampered := bytes.Clone(signature)
		tampered[rapid.IntRange(0, 63).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if agree(t, &key, message, tampered) {
			t.Fatalf("a tampered signature is good")
		}
		if agree(t, &key, append(message, 0), signature) {
			t.Fatalf("a signature of another message is good")
		}
		_, other := keyPair(rapid.Byte().Draw(t, "other"))
		agree(t, &other, message, signature)
		agree(t, &key, message, rapid.SliceOfN(rapid.Byte(), 64, 64).Draw(t, "noise"))
	})
}

// Signatures on which implementations are known to differ: S of L and above, R of small order or in its second encoding,
// keys with a part of small order, S and R of 0.
func TestMultiplesJudgeOddSignaturesAsTheStandardLibraryDoes(t *testing.T) {
	t.Parallel()
	priv, key := keyPair(3)
	message := []byte("odd")
	signature := ed25519.Sign(priv, message)
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	s := new(big.Int).SetBytes(reversed(signature[32:]))
	for s.Add(s, order); s.BitLen() <= 256; s.Add(s, order) {
		odd := append(bytes.Clone(signature[:32]), reversed(s.FillBytes(make([]byte, 32)))...)
		if agree(t, &key, message, odd) {
			t.Fatal("S above the order is accepted")
		}
	}
	small := []string{ // encodings of points of small order, the last ones not canonical
		"0100000000000000000000000000000000000000000000000000000000000000",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0000000000000000000000000000000000000000000000000000000000000000",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0100000000000000000000000000000000000000000000000000000000000080",
	}
	for _, text := range small {
		r, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		agree(t, &key, message, append(bytes.Clone(r), signature[32:]...))
		agree(t, &key, message, append(bytes.Clone(r), make([]byte, 32)...))
		point, err := new(edwards25519.Point).SetBytes(r)
		if err != nil {
			continue
		}
		a, err := new(edwards25519.Point).SetBytes(key[:])
		if err != nil {
			t.Fatal(err)
		}
		mixed := PublicKey(a.Add(a, point).Bytes())
		for n := range 32 { // k is even, or a multiple of 8, for some of these
			m := append(message, byte(n))
			agree(t, &mixed, m, append(bytes.Clone(r), make([]byte, 32)...))
			agree(t, &mixed, m, ed25519.Sign(priv, m))
			identity := PublicKey(r)
			agree(t, &identity, m, append(bytes.Clone(r), make([]byte, 32)...))
		}
	}
	for _, length := range []int{0, 32, 63, 65} {
		if newMultiples(&key).signed(message, make([]byte, length)) {
			t.Errorf("a signature of %d bytes is good", length)
		}
	}
}

func reversed(b []byte) []byte {
	r := make([]byte, len(b))
	for i, x := range b {
		r[len(b)-1-i] = x
	}
	return r
}

func TestProductsAreWhatMultiplyingGives(t *testing.T) {
	t.Parallel()
	_, key := keyPair(5)
	m := newMultiples(&key)
	a, err := new(edwards25519.Point).SetBytes(key[:])
	if err != nil {
		t.Fatal(err)
	}
	a.Negate(a)
	check := func(k *edwards25519.Scalar) {
		t.Helper()
		if m.product(k).Equal(new(edwards25519.Point).ScalarMult(k, a)) != 1 {
			t.Fatalf("a product with %x is wrong", k.Bytes())
		}
		value, weight := new(big.Int), big.NewInt(1)
		for _, digit := range base16(k) {
			if digit < -8 || digit > 8 {
				t.Fatalf("a digit of %x is %d", k.Bytes(), digit)
			}
			value.Add(value, new(big.Int).Mul(weight, big.NewInt(int64(digit))))
			weight.Lsh(weight, 4)
		}
		if !bytes.Equal(reversed(value.FillBytes(make([]byte, 32))), k.Bytes()) {
			t.Fatalf("the digits of %x are wrong", k.Bytes())
		}
	}
	one, err := new(edwards25519.Scalar).SetCanonicalBytes(append([]byte{1}, make([]byte, 31)...))
	if err != nil {
		t.Fatal(err)
	}
	zero := edwards25519.NewScalar()
	check(zero)
	check(one)
	check(new(edwards25519.Scalar).Negate(one)) // the largest
	power := new(edwards25519.Scalar).Set(one)
	for range 252 {
		check(power)
		check(new(edwards25519.Scalar).Negate(power))
		check(new(edwards25519.Scalar).Subtract(power, one))
		power.Add(power, power)
	}
	if newMultiples(&PublicKey{2}) != nil {
		t.Fatal("multiples of what is no point")
	}
}

// Keys that share a place take turns in it, from any number of goroutines; every answer is right meanwhile.
func TestKeysThatShareAPlaceAreJudgedRight(t *testing.T) {
	t.Parallel()
	byPlace := map[byte][]ed25519.PrivateKey{}
	for seed := range 256 {
		priv, key := keyPair(byte(seed))
		byPlace[key[0]] = append(byPlace[key[0]], priv)
	}
	var sharing []ed25519.PrivateKey
	for _, keys := range byPlace {
		if len(keys) > len(sharing) {
			sharing = keys
		}
	}
	if len(sharing) < 2 {
		t.Fatal("no two keys share a place")
	}
	var done sync.WaitGroup
	for n := range 8 {
		done.Go(func() {
			priv := sharing[n%len(sharing)]
			key := PublicKey(priv.Public().(ed25519.PublicKey))
			message := []byte{byte(n)}
			good := ed25519.Sign(priv, message)
			bad := bytes.Clone(good)
			bad[0] ^= 1
			for range 3 * keepAfter {
				if !signedBy(&key, message, good) || signedBy(&key, message, bad) || signedBy(&key, append(message, 1), good) {
					t.Errorf("key %d is judged wrong", n)
					return
				}
			}
		})
	}
	done.Wait()
	if m := kept[sharing[0].Public().(ed25519.PublicKey)[0]].multiples.Load(); m == nil {
		t.Fatal("nothing was kept")
	}
}

func BenchmarkSignedBy(b *testing.B) {
	priv, key := keyPair(7)
	message := make([]byte, 400)
	signature := ed25519.Sign(priv, message)
	b.Run("standard library", func(b *testing.B) {
		for b.Loop() {
			ed25519.Verify(key[:], message, signature)
		}
	})
	b.Run("kept", func(b *testing.B) {
		for b.Loop() {
			signedBy(&key, message, signature)
		}
	})
	b.Run("keeping", func(b *testing.B) {
		for b.Loop() {
			newMultiples(&key)
		}
	})
}
