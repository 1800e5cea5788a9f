// Package pubkey vets Ed25519 public keys before anything is believed on their account.
package pubkey

import (
	"crypto/ed25519"
	"errors"

	"filippo.io/edwards25519"
)

// Vet says why a signature under pub would prove nothing: it is no point of the curve; it has a second encoding, which
// decoders may treat differently (RFC 8032 5.1.3); or it has small order, so that signatures can be made for it without
// a private key. Verification in most libraries, Go's included, accepts such keys.
func Vet(pub ed25519.PublicKey) error {
	point, err := new(edwards25519.Point).SetBytes(pub)
	if err != nil {
		return errors.New("the public key is no point of the curve")
	}
	if string(point.Bytes()) != string(pub) {
		return errors.New("the public key is not in its canonical encoding")
	}
	if new(edwards25519.Point).MultByCofactor(point).Equal(edwards25519.NewIdentityPoint()) == 1 {
		return errors.New("the public key has small order, so anybody can sign for it")
	}
	return nil
}
