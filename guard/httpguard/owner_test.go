package httpguard_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/clock"
)

func named(oid asn1.ObjectIdentifier, value any) pkix.RelativeDistinguishedNameSET {
	return pkix.RelativeDistinguishedNameSET{{Type: oid, Value: value}}
}

var (
	commonName   = asn1.ObjectIdentifier{2, 5, 4, 3}
	organization = asn1.ObjectIdentifier{2, 5, 4, 10}
)

// verified makes a request over TLS with a verified certificate of that subject.
func verified(t *testing.T, subject pkix.RDNSequence) *http.Request {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := asn1.Marshal(subject)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), RawSubject: raw, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	r := request("k1", "a")
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{certificate}}, PeerCertificates: []*x509.Certificate{certificate}}
	return r
}

func TestSubjectOfTheCertificateIsTheOwner(t *testing.T) {
	t.Parallel()
	identify := httpguard.Certificate()
	seen := map[string]string{}
	for name, c := range map[string]struct {
		subject pkix.RDNSequence
		want    string
	}{
		"plain":            {pkix.RDNSequence{named(organization, "Acme"), named(commonName, "ann")}, "tls:CN=ann,O=Acme"},
		"two common names": {pkix.RDNSequence{named(commonName, "bob"), named(commonName, "ann")}, "tls:CN=ann,CN=bob"},
		"one with a comma": {pkix.RDNSequence{named(commonName, "ann,O=Acme")}, `tls:CN=ann\,O=Acme`},
		"none":             {pkix.RDNSequence{}, ""},
		"empty":            {pkix.RDNSequence{named(commonName, "")}, ""},
		"anonymous":        {pkix.RDNSequence{named(commonName, "Anonymous")}, ""},
		"a control":        {pkix.RDNSequence{named(commonName, "ann\nbob")}, ""},
		"a zero byte":      {pkix.RDNSequence{named(commonName, "ann\x00bob")}, ""},
	} {
		owner, err := identify(verified(t, c.subject))
		if owner != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, owner, err, c.want)
		}
		if other, twice := seen[owner]; twice && owner != "" {
			t.Errorf("%s and %s are one owner, %s", name, other, owner)
		}
		seen[owner] = name
	}
}

func TestCertificateThatIsNotVerifiedIsNoOwner(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{Identify: httpguard.Certificate()}, paid)
	r.problem(r.post("k1", "a"), 401, "unauthenticated", 0) // no TLS
	req := verified(t, pkix.RDNSequence{named(commonName, "ann")})
	req.TLS.VerifiedChains = nil
	r.problem(r.send(req), 401, "unauthenticated", 0)
	r.want(r.send(verified(t, pkix.RDNSequence{named(commonName, "ann")})), 201, "execute", 1)
	r.want(r.send(verified(t, pkix.RDNSequence{named(commonName, "bob")})), 201, "execute", 2)
	r.want(r.send(verified(t, pkix.RDNSequence{named(commonName, "ann")})), 201, "replay", 2)
}

// signer signs tokens by Ed25519.
type signer struct{ key ed25519.PrivateKey }

func newSigner(t *testing.T) *signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{key}
}

func (s *signer) jwks() []byte {
	return fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":%q}]}`, base64.RawURLEncoding.EncodeToString(s.key.Public().(ed25519.PublicKey)))
}

func (s *signer) token(claims string) string {
	signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","kid":"1"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(s.key, []byte(signed)))
}

func TestClaimOfATokenIsTheOwner(t *testing.T) {
	t.Parallel()
	s, now := newSigner(t), clock.NewManual(time.Unix(1_800_000_000, 0))
	identify, err := httpguard.JWT(httpguard.JWTOptions{Keys: s.jwks(), Issuer: "i", Audience: "a", Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	r := inMemory(t, httpguard.Options{Identify: identify}, paid)
	post := func(sub string) *reply {
		return r.post("k1", "a", "Authorization", "Bearer "+s.token(`{"iss":"i","aud":"a","exp":1800000060,"sub":`+sub+`}`))
	}
	r.want(post(`"ann"`), 201, "execute", 1)
	r.want(post(`"bob"`), 201, "execute", 2)
	r.want(post(`"ann"`), 201, "replay", 2)
	for _, sub := range []string{`""`, `" "`, `"anonymous"`, `"Anonymous"`, `7`, `null`, `"a\nb"`, `"` + strings.Repeat("x", 257) + `"`} {
		r.problem(post(sub), 401, "unauthenticated", 2)
	}
	r.problem(r.post("k1", "a"), 401, "unauthenticated", 2)
	r.problem(r.post("k1", "a", "Authorization", "Bearer "+newSigner(t).token(`{"iss":"i","aud":"a","exp":1800000060,"sub":"ann"}`)), 401, "unauthenticated", 2)
	now.Advance(time.Minute)
	r.problem(post(`"ann"`), 401, "unauthenticated", 2)
}

func TestOwnerConfigSaysOneWayAlone(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	sum := strings.Repeat("a", 64)
	for text, good := range map[string]bool{
		`{header: X-Api-Key}`: true,
		`{bearer: true}`:      true,
		`{certificate: true}`: true,
		`{jwt: {keys: k, issuer: i, audience: a, claim: email, skew: 10s}}`: true,
		`{header: X-Api-Key, known: {` + sum + `: ann}}`:                    true,
		`{}`:                                false,
		`{bearer: false}`:                   false,
		`{header: X-Api-Key, bearer: true}`: false,
		`{certificate: true, bearer: true}`: false,
		`{certificate: true, known: {` + sum + `: ann}}`:       false,
		`{header: X-Api-Key, known: {}}`:                       false,
		`{header: X-Api-Key, known: {` + sum + `: anonymous}}`: false,
		`{jwt: {keys: k, issuer: i}}`:                          false,
		`{jwt: {keys: k, audience: a}}`:                        false,
		`{jwt: {issuer: i, audience: a}}`:                      false,
		`{jwt: {keys: k, issuer: i, audience: a, skew: 1h}}`:   false,
		`{jwt: {keys: k, issuer: i, audience: a, alg: none}}`:  false,
		`{anonymous: true}`:                                    false,
	} {
		c, err := httpguard.ParseConfig([]byte("owner: " + text))
		if err == nil {
			err = c.Owner.Load(func(string) ([]byte, error) { return s.jwks(), nil })
		}
		if (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestKeysThatWereNotReadLetNobodyIn(t *testing.T) {
	t.Parallel()
	c, err := httpguard.ParseConfig([]byte("owner: {jwt: {keys: k, issuer: i, audience: a}}"))
	if err != nil {
		t.Fatal(err)
	}
	if owner, err := c.Options().Identify(request("k1", "a")); err == nil {
		t.Errorf("the owner is %q", owner)
	}
	missing := errors.New("no such file")
	if err := c.Owner.Load(func(string) ([]byte, error) { return nil, missing }); !errors.Is(err, missing) {
		t.Errorf("a missing file: %v", err)
	}
	if err := c.Owner.Load(func(string) ([]byte, error) { return []byte(`{"keys":[]}`), nil }); err == nil {
		t.Error("an empty set of keys is taken")
	}
}
