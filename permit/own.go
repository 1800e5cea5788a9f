package permit

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"
)

// A permit is often used in the process that minted it, moments later. That its own signatures are good it knows without
// another verification: it keeps a sum over key, signature and message of the last that it made. Nothing else is taken
// on trust: decoding, times, binding, revocation and single use are judged for them as for any other.
var own [1024]atomic.Pointer[ownSum]

type ownSum = [sha256.Size]byte

// remember notes a signature that this process has just made.
func remember(priv ed25519.PrivateKey, message, signature []byte) {
	sum := sumOf(priv[len(priv)-ed25519.PublicKeySize:], message, signature)
	ownPlace(&sum).Store(&sum)
}

// made reports whether this process has made a signature of late.
func made(key *PublicKey, message, signature []byte) bool {
	sum := sumOf(key[:], message, signature)
	known := ownPlace(&sum).Load()
	return known != nil && *known == sum
}

func ownPlace(sum *ownSum) *atomic.Pointer[ownSum] {
	return &own[int(binary.BigEndian.Uint16(sum[:]))%len(own)]
}

// sumOf needs no length prefixes: what stands before the message is of fixed length.
func sumOf(key, message, signature []byte) (sum ownSum) {
	h := sha256.New()
	h.Write(key)
	h.Write(signature)
	h.Write(message)
	h.Sum(sum[:0])
	return sum
}
