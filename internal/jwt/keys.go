package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/pubkey"
)

// Limits of a set of keys.
const (
	MaxKeySet = 1 << 20 // bytes
	MaxKeys   = 100
)

// algorithm is what a key verifies by.
type algorithm string

const (
	edDSA algorithm = "EdDSA"
	es256 algorithm = "ES256"
	rs256 algorithm = "RS256"
)

// Keys are the public keys of an issuer. They are safe for concurrent use.
type Keys struct{ list []key }

type key struct {
	id     string // "": none
	alg    algorithm
	verify func(signed, signature []byte) bool
}

// keyJSON is a JSON Web Key (RFC 7517) as far as it matters here. Members of other uses are not looked at.
type keyJSON struct {
	kty, use, alg, kid, crv, x, y, n, e string
	secret                              bool
}

func readKey(text []byte) (*keyJSON, error) {
	o, err := readObject(text, MaxKeySet)
	if err != nil {
		return nil, err
	}
	k := new(keyJSON)
	_, private := o["d"]
	_, symmetric := o["k"]
	k.secret = private || symmetric
	return k, o.texts(map[string]*string{
		"kty": &k.kty, "use": &k.use, "alg": &k.alg, "kid": &k.kid, "crv": &k.crv, "x": &k.x, "y": &k.y, "n": &k.n, "e": &k.e,
	})
}

// ParseKeys reads a JSON Web Key Set (RFC 7517). Keys for encryption and of other algorithms are passed over; a key that is
// damaged or weak, or that no public set has any business to hold (a private or a symmetric one), is an error, and so is a
// set without any key to verify by.
func ParseKeys(set []byte) (*Keys, error) {
	list, err := readSet(set)
	if err != nil {
		return nil, fmt.Errorf("jwt: no JSON Web Key Set: %w", err)
	}
	if len(list) > MaxKeys {
		return nil, fmt.Errorf("jwt: more than %d keys", MaxKeys)
	}
	keys := new(Keys)
	for i, text := range list {
		k, err := readKey(text)
		if err != nil {
			return nil, fmt.Errorf("jwt: key %d: %w", i, err)
		}
		parsed, err := k.parse()
		if err != nil {
			return nil, fmt.Errorf("jwt: key %d: %w", i, err)
		}
		if parsed.verify == nil {
			continue
		}
		if err := keys.add(parsed); err != nil {
			return nil, fmt.Errorf("jwt: key %d: %w", i, err)
		}
	}
	if len(keys.list) == 0 {
		return nil, errors.New("jwt: the set has no key to verify by: want EdDSA (Ed25519), ES256 or RS256")
	}
	return keys, nil
}

func readSet(set []byte) (list []jsontext.Value, err error) {
	o, err := readObject(set, MaxKeySet)
	if err != nil {
		return nil, err
	}
	if o["keys"] == nil {
		return nil, errors.New("it has no member keys")
	}
	return list, canonical.Decode(o["keys"], &list)
}

func (k *Keys) add(one key) error {
	for _, other := range k.list {
		if one.id != "" && other.id == one.id {
			return errors.New("its kid is there twice")
		}
	}
	k.list = append(k.list, one)
	return nil
}

// parse gives the key, or one that verifies nothing if it is for something else.
func (k *keyJSON) parse() (key, error) {
	if k.secret || k.kty == "oct" {
		return key{}, errors.New("it is a secret; a set for verifying has public keys only")
	}
	if k.use != "" && k.use != "sig" {
		return key{}, nil
	}
	switch {
	case k.kty == "OKP" && k.crv == "Ed25519" && (k.alg == "" || k.alg == "EdDSA" || k.alg == "Ed25519"):
		return k.ed25519()
	case k.kty == "EC" && k.crv == "P-256" && (k.alg == "" || k.alg == "ES256"):
		return k.ecdsa()
	case k.kty == "RSA" && (k.alg == "" || k.alg == "RS256"):
		return k.rsa()
	}
	return key{}, nil
}

func (k *keyJSON) ed25519() (key, error) {
	x, err := decode64(k.x)
	if err != nil || len(x) != ed25519.PublicKeySize {
		return key{}, errors.New("x is not 32 bytes in base64url")
	}
	if err := pubkey.Vet(x); err != nil {
		return key{}, err
	}
	return key{k.kid, edDSA, func(signed, signature []byte) bool { return ed25519.Verify(x, signed, signature) }}, nil
}

func (k *keyJSON) ecdsa() (key, error) {
	x, errX := decode64(k.x)
	y, errY := decode64(k.y)
	if errX != nil || errY != nil || len(x) != 32 || len(y) != 32 {
		return key{}, errors.New("x and y are not 32 bytes each in base64url")
	}
	point := append(append([]byte{4}, x...), y...)
	pub, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return key{}, errors.New("it is no point of the curve P-256")
	}
	return key{k.kid, es256, func(signed, signature []byte) bool {
		if len(signature) != 64 {
			return false
		}
		r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
		sum := sha256.Sum256(signed)
		return ecdsa.Verify(pub, sum[:], r, s)
	}}, nil
}

// Bounds of an RSA modulus: below, it can be factored; beyond, verifying takes too long.
const (
	minModulus = 2048
	maxModulus = 8192
)

func (k *keyJSON) rsa() (key, error) {
	n, errN := decode64(k.n)
	e, errE := decode64(k.e)
	if errN != nil || errE != nil || len(n) == 0 || n[0] == 0 || len(e) == 0 || e[0] == 0 || len(e) > 4 {
		return key{}, errors.New("n and e are no numbers in base64url, or e is too large")
	}
	pub := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	if bits := pub.N.BitLen(); bits < minModulus || bits > maxModulus {
		return key{}, fmt.Errorf("an RSA key has %d to %d bits", minModulus, maxModulus)
	}
	if pub.E < 3 || pub.E > 1<<31-1 || pub.E%2 == 0 || pub.N.Bit(0) == 0 {
		return key{}, errors.New("its modulus and exponent are those of no RSA key")
	}
	return key{k.kid, rs256, func(signed, signature []byte) bool {
		sum := sha256.Sum256(signed)
		return rsa.VerifyPKCS1v15(pub, crypto.SHA256, sum[:], signature) == nil
	}}, nil
}

// find gives the key that a token is to be verified by.
func (k *Keys) find(id string, alg algorithm) (*key, error) {
	var found *key
	for i := range k.list {
		one := &k.list[i]
		switch {
		case id != "" && one.id == id && one.alg != alg:
			return nil, errOtherAlgorithm
		case id != "" && one.id == id:
			return one, nil
		case id == "" && one.alg == alg && found != nil:
			return nil, errNoKid
		case id == "" && one.alg == alg:
			found = one
		}
	}
	if found == nil {
		return nil, errNoKey
	}
	return found, nil
}

var exact = base64.RawURLEncoding.Strict()

// decode64 reads canonical base64url without padding. The decoder of the standard library passes over line ends.
func decode64(text string) ([]byte, error) {
	for i := range len(text) {
		if text[i] == '\n' || text[i] == '\r' {
			return nil, errEncoding
		}
	}
	b, err := exact.DecodeString(text)
	if err != nil {
		return nil, errEncoding
	}
	return b, nil
}
