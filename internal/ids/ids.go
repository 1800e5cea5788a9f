// Package ids computes the identifiers that two sides must compute alike: a client knows the id of its operation before
// the server answers, and a server recognises what another one created.
//
// All but one rest on the length-prefixed hash: SHA-256 over an ASCII tag that says what is being named, then each part
// as its length in 8 bytes big-endian and its bytes. Lengths make it injective: ("a", "bc") never names what ("ab", "c")
// names. The tags are part of the wire format and never change; examples are in vectors/ids.json.
package ids

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// The tags, each for one kind of name.
const (
	tagOperation  = "counterfoil.operation.v1"
	tagHold       = "counterfoil.hold.v1"
	tagSpend      = "counterfoil.spend.v1"
	tagPermitHold = "counterfoil.permit-hold.v1"
	tagChallenge  = "counterfoil.challenge.v1"
	tagRun        = "counterfoil.run.v1"
	tagApproval   = "counterfoil.approval.v1"
)

// Hash returns the length-prefixed hash of parts under tag.
func Hash[T []byte | string](tag string, parts ...T) [sha256.Size]byte {
	var room [512]byte
	buf := append(room[:0], tag...)
	for _, part := range parts {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	return sha256.Sum256(buf)
}

// Operation returns the id of an owner's operation, as 64 lower-case hex digits.
func Operation(owner, key string) string { return text(Hash(tagOperation, owner, key)) }

// Hold returns the id of an owner's hold, as 64 lower-case hex digits.
func Hold(owner, requestID string) string { return text(Hash(tagHold, owner, requestID)) }

// Spend returns the id of an owner's spend, as 64 lower-case hex digits.
func Spend(owner, requestID string) string { return text(Hash(tagSpend, owner, requestID)) }

// Approval returns the id of an owner's request for the approval of a call, as 64 lower-case hex digits. The parts are
// subject, capability, server, tool, request id and parameter hash.
func Approval(owner string, call ...string) string {
	return text(Hash(tagApproval, append([]string{owner}, call...)...))
}

// RunFingerprint returns what tells one command line from another, as 64 lower-case hex digits.
func RunFingerprint(arguments []string) string { return text(Hash(tagRun, arguments...)) }

// PermitMarker returns the id under which the use of a permit is remembered: the length-prefixed hash without a tag of
// the issuer's public key and the nonce id.
func PermitMarker(issuer [32]byte, nonceID string) [sha256.Size]byte {
	return Hash("", string(issuer[:]), nonceID)
}

// PermitHold returns the token of the hold that a permit carries: the first 16 bytes of the length-prefixed hash of the
// issuer's public key and the nonce id. Only that permit can name it.
func PermitHold(issuer [32]byte, nonceID string) [16]byte {
	sum := Hash(tagPermitHold, string(issuer[:]), nonceID)
	return [16]byte(sum[:16])
}

// ChallengeAADSize is the length of [ChallengeAAD] in bytes.
const ChallengeAADSize = len(tagChallenge) + 8 + 32 + 32

// ChallengeAAD returns the bytes to bind a sealed key to. Every part has a fixed width, so none carries its length: the
// tag, the epoch in 8 bytes big-endian, the job, the nonce.
func ChallengeAAD(epoch uint64, job, nonce [32]byte) []byte {
	aad := append(make([]byte, 0, ChallengeAADSize), tagChallenge...)
	aad = binary.BigEndian.AppendUint64(aad, epoch)
	aad = append(aad, job[:]...)
	return append(aad, nonce[:]...)
}

func text(sum [sha256.Size]byte) string {
	var digits [2 * sha256.Size]byte
	hex.Encode(digits[:], sum[:])
	return string(digits[:])
}
