package httpguard

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/jwt"
)

// Identify names the owner of a request: whose key it is. An error, or "", refuses the request with 401, and its text
// must not repeat a credential. It is called before the body is read.
type Identify func(*http.Request) (string, error)

// What an identification may fail for.
var (
	errNoCredential   = errors.New("the credential is missing, empty or there more than once")
	errNotBearer      = errors.New("want the header Authorization with a Bearer token")
	errNoCertificate  = errors.New("a client certificate that is verified is missing")
	errNobody         = errors.New("nobody in particular sends this request")
	errUnknownSecret  = errors.New("the credential is unknown")
	errCertificateEnd = errors.New("the client certificate is not valid at this time")
	errNoSubject      = errors.New("the client certificate names no subject, or one with an attribute that is empty, anonymous or no text")
	errOwnerName      = errors.New("the owner that the credential names cannot be used: want at most 256 bytes of UTF-8 without control characters")
	errCredentialLong = errors.New("the credential is too long")
)

// maxCredential is how many bytes of a credential are read.
const maxCredential = 8 << 10

// Header identifies by the value of a header that only its owner knows, such as an API key. The value itself is neither
// kept nor judged: the owner is a hash of it, and who is let in is for the handler to say.
func Header(name string) Identify {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		secret, err := only(r.Header[name])
		if err != nil {
			return "", err
		}
		return hashed("header", secret), nil
	}
}

// Bearer identifies by the token in the header Authorization, as [Header] does.
func Bearer() Identify {
	return func(r *http.Request) (string, error) {
		secret, err := bearer(r)
		if err != nil {
			return "", err
		}
		return hashed("bearer", secret), nil
	}
}

// Known identifies by a list of credentials: owners maps the lower-case hex SHA-256 of each to its owner. Credentials are
// the values of a header, or bearer tokens if name is "". Any other is refused.
func Known(name string, owners map[string]string) Identify {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		read := bearer
		if name != "" {
			read = func(r *http.Request) (string, error) { return only(r.Header[name]) }
		}
		secret, err := read(r)
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256([]byte(secret))
		owner, ok := owners[hex.EncodeToString(sum[:])]
		if !ok {
			return "", errUnknownSecret
		}
		return owner, nil
	}
}

// Certificate identifies by the subject of the client's TLS certificate (RFC 2253, all of it), which the server must have
// verified. Whoever issues certificates that the server takes says who owners are.
func Certificate() Identify { return certificateAt(clock.System{}) }

func certificateAt(c clock.Clock) Identify {
	return func(r *http.Request) (string, error) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
			return "", errNoCertificate
		}
		leaf := r.TLS.VerifiedChains[0][0]
		// A connection may live longer than the certificate that it was made with.
		if now := c.Now(); now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
			return "", errCertificateEnd
		}
		subject, err := subjectOf(leaf)
		if err != nil {
			return "", err
		}
		return "tls:" + subject, nil
	}
}

// subjectOf writes a subject with every one of its attributes: the form that crypto/x509 has ready keeps only the last of
// several common names.
func subjectOf(certificate *x509.Certificate) (string, error) {
	var names pkix.RDNSequence
	if rest, err := asn1.Unmarshal(certificate.RawSubject, &names); err != nil || len(rest) > 0 {
		return "", errNoSubject
	}
	named := false
	for _, set := range names {
		for _, attribute := range set {
			text, ok := attribute.Value.(string)
			if !ok || checkOwner(text) != nil {
				return "", errNoSubject
			}
			named = true
		}
	}
	if !named {
		return "", errNoSubject
	}
	return names.String(), nil
}

// JWTOptions configure [JWT].
type JWTOptions struct {
	Keys     []byte        // JSON Web Key Set (RFC 7517) of the issuer. Required
	Issuer   string        // what iss must be. Required
	Audience string        // what aud must be or contain. Required
	Claim    string        // the claim that names the owner; "": sub
	Skew     time.Duration // that the issuer's clock may be apart, at most 5 minutes
	Clock    clock.Clock   // nil: the machine's
}

// JWT identifies by a JSON Web Token in the header Authorization, as a bearer token. It is verified by EdDSA, ES256 or
// RS256, whichever the key is for, and must not have expired. The owner is the value of the claim: whoever issues tokens
// says who owners are, so that guards of two issuers must not share a scope.
func JWT(o JWTOptions) (Identify, error) {
	keys, err := jwt.ParseKeys(o.Keys)
	if err != nil {
		return nil, err
	}
	tokens, err := jwt.New(jwt.Options{Keys: keys, Issuer: o.Issuer, Audience: o.Audience, Skew: o.Skew, Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	claim := cmp.Or(o.Claim, "sub")
	return func(r *http.Request) (string, error) {
		token, err := bearer(r)
		if err != nil {
			return "", err
		}
		return tokens.Claim(token, claim)
	}, nil
}

func bearer(r *http.Request) (string, error) {
	value, err := only(r.Header["Authorization"])
	if err != nil {
		return "", err
	}
	scheme, token, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t,") {
		return "", errNotBearer
	}
	return token, nil
}

func only(values []string) (string, error) {
	if len(values) != 1 || strings.TrimSpace(values[0]) == "" {
		return "", errNoCredential
	}
	if len(values[0]) > maxCredential {
		return "", errCredentialLong
	}
	return values[0], nil
}

func hashed(kind, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return kind + ":" + hex.EncodeToString(sum[:])
}

// maxOwner is how many bytes the name of an owner has at most.
const maxOwner = 256

// checkOwner refuses a name that stands for nobody, or that no owner can have.
func checkOwner(owner string) error {
	switch {
	case strings.TrimSpace(owner) == "" || strings.EqualFold(owner, "anonymous"):
		return errNobody
	case len(owner) > maxOwner || !utf8.ValidString(owner) || strings.ContainsFunc(owner, unicode.IsControl):
		return errOwnerName
	}
	return nil
}
