package api

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/ids"
)

// OperationID returns the id of an owner's operation: a client knows it before the server answers.
func OperationID(owner, key string) Digest { return Digest(ids.Operation(owner, key)) }

// HoldID returns the id of an owner's hold.
func HoldID(owner, requestID string) Digest { return Digest(ids.Hold(owner, requestID)) }

// SpendID returns the id of an owner's spend.
func SpendID(owner, requestID string) Digest { return Digest(ids.Spend(owner, requestID)) }

// ChallengeAAD returns the bytes to bind a sealed key to: the ASCII tag counterfoil.challenge.v1, the epoch in 8 bytes
// big-endian, the job, the nonce.
func ChallengeAAD(epoch uint64, job, nonce [32]byte) []byte {
	return ids.ChallengeAAD(epoch, job, nonce)
}

// Fingerprint returns what tells one request from another: the SHA-256 of its canonical JSON (RFC 8785). It fails if
// request is not strict JSON: duplicate members, invalid UTF-8, numbers beyond ±(2^53−1).
func Fingerprint(request []byte) (Digest, error) {
	sum, err := canonical.Hash(request)
	if err != nil {
		return "", err
	}
	return DigestOf(sum), nil
}

// DigestOf writes a SHA-256 as 64 lower-case hex digits.
func DigestOf(sum [sha256.Size]byte) Digest { return Digest(hex.EncodeToString(sum[:])) }
