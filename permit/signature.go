package permit

import (
	"crypto/ed25519"
	"crypto/sha512"
	"sync/atomic"

	"filippo.io/edwards25519"
)

// Most of what a permit costs is one verification, and most of a verification is to multiply the issuer's public key. A
// few keys sign almost all permits: for those that come again and again multiples are kept, which takes two fifths off.
// What is kept is bounded: one key a place, about 10 MB if all are taken.
var kept [256]place

// place keeps the multiples of one key. A key's first byte, which is as good as random, says where its place is.
type place struct {
	multiples atomic.Pointer[multiples]
	missed    atomic.Uint32 // good signatures of other keys than the one that is kept
}

// keepAfter is how many good signatures a place misses before it changes over, so that keys which share one cost little.
const keepAfter = 64

// signedBy reports whether signature is key's signature of message, exactly as [ed25519.Verify] does. The key has been
// vetted.
func signedBy(key *PublicKey, message, signature []byte) bool {
	if len(signature) != ed25519.SignatureSize {
		return false
	}
	if made(key, message, signature) {
		return true
	}
	p := &kept[key[0]]
	if m := p.multiples.Load(); m != nil && m.key == *key {
		return m.signed(message, signature)
	}
	if !ed25519.Verify(key[:], message, signature) {
		return false
	}
	if p.missed.Add(1)%keepAfter == 0 {
		p.multiples.Store(newMultiples(key))
	}
	return true
}

// multiples holds, of the point −A of a public key, the product with (j+1)·256^i at [i][j].
type multiples struct {
	key    PublicKey
	points [32][8]edwards25519.Point
}

// newMultiples returns nil if key is no point.
func newMultiples(key *PublicKey) *multiples {
	m := &multiples{key: *key}
	base, err := new(edwards25519.Point).SetBytes(key[:])
	if err != nil {
		return nil
	}
	base.Negate(base)
	for i := range m.points {
		row := &m.points[i]
		row[0].Set(base)
		for j := 1; j < len(row); j++ {
			row[j].Add(&row[j-1], base)
		}
		base.Set(&row[7])
		times(base, 32)
	}
	return m
}

// times multiplies p by n, a power of two.
func times(p *edwards25519.Point, n int) {
	for ; n > 1; n /= 2 {
		p.Add(p, p)
	}
}

// signed is the check of RFC 8032 5.1.7 without the cofactor, as [ed25519.Verify] makes it: R = S·B − k·A, compared by
// its encoding, S in canonical form.
func (m *multiples) signed(message, signature []byte) bool {
	if len(signature) != ed25519.SignatureSize {
		return false
	}
	s, err := new(edwards25519.Scalar).SetCanonicalBytes(signature[32:])
	if err != nil {
		return false
	}
	hash := sha512.New()
	hash.Write(signature[:32])
	hash.Write(m.key[:])
	hash.Write(message)
	var sum [sha512.Size]byte
	k, err := new(edwards25519.Scalar).SetUniformBytes(hash.Sum(sum[:0]))
	if err != nil {
		return false
	}
	r := new(edwards25519.Point).ScalarBaseMult(s)
	r.Add(r, m.product(k))
	return string(r.Bytes()) == string(signature[:32])
}

// product multiplies −A by k, digit by digit to the base 16: first the odd digits, then, 16 times that, the even ones.
func (m *multiples) product(k *edwards25519.Scalar) *edwards25519.Point {
	digits := base16(k)
	sum := edwards25519.NewIdentityPoint()
	for i := range m.points {
		m.add(sum, i, digits[2*i+1])
	}
	times(sum, 16)
	for i := range m.points {
		m.add(sum, i, digits[2*i])
	}
	return sum
}

func (m *multiples) add(sum *edwards25519.Point, i int, digit int8) {
	switch {
	case digit > 0:
		sum.Add(sum, &m.points[i][digit-1])
	case digit < 0:
		sum.Subtract(sum, &m.points[i][-digit-1])
	}
}

// base16 writes a scalar in 64 digits from −8 to 8, the lowest first. The highest takes the carry: a scalar is below 2^253.
func base16(k *edwards25519.Scalar) (digits [64]int8) {
	for i, b := range k.Bytes() {
		digits[2*i], digits[2*i+1] = int8(b&15), int8(b>>4)
	}
	for i := range 63 {
		carry := (digits[i] + 8) >> 4
		digits[i] -= carry << 4
		digits[i+1] += carry
	}
	return digits
}
