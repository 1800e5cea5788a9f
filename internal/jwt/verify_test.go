package jwt_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/jwt"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// issuer has a key of each kind.
type issuer struct {
	ed  ed25519.PrivateKey
	ec  *ecdsa.PrivateKey
	rsa *rsa.PrivateKey
	set string
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	_, ed, errEd := ed25519.GenerateKey(rand.Reader)
	ec, errEC := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, errRSA := rsa.GenerateKey(rand.Reader, 2048)
	if errEd != nil || errEC != nil || errRSA != nil {
		t.Fatal(errEd, errEC, errRSA)
	}
	point, err := ec.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{ed, ec, key, fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"ed","use":"sig","x":%q},
		{"kty":"EC","crv":"P-256","kid":"ec","alg":"ES256","x":%q,"y":%q},{"kty":"RSA","kid":"rsa","n":%q,"e":"AQAB","x5c":["ignored"]},
		{"kty":"RSA","kid":"enc","use":"enc","n":"x","e":"y"},{"kty":"EC","crv":"P-521","kid":"521","x":"","y":""}]}`,
		b64(ed.Public().(ed25519.PublicKey)), b64(point[1:33]), b64(point[33:]), b64(key.N.Bytes()))}
}

func (i *issuer) verifier(t *testing.T) *jwt.Verifier {
	t.Helper()
	keys, err := jwt.ParseKeys([]byte(i.set))
	if err != nil {
		t.Fatal(err)
	}
	v, err := jwt.New(jwt.Options{Keys: keys, Issuer: "https://id.example", Audience: "payments", Skew: 10 * time.Second, Clock: clock.NewManual(now)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sign makes a token by the key of that name.
func (i *issuer) sign(t *testing.T, with, header, claims string) string {
	t.Helper()
	signed := b64([]byte(header)) + "." + b64([]byte(claims))
	return signed + "." + b64(i.signature(t, with, signed))
}

func (i *issuer) signature(t *testing.T, with, signed string) []byte {
	t.Helper()
	sum := sha256.Sum256([]byte(signed))
	switch with {
	case "ed":
		return ed25519.Sign(i.ed, []byte(signed))
	case "ec":
		r, s, err := ecdsa.Sign(rand.Reader, i.ec, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.rsa, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

var good = fmt.Sprintf(`{"iss":"https://id.example","aud":["other","payments"],"sub":"ann","exp":%d,"nbf":%d,"iat":%d.5}`, now.Unix()+60, now.Unix()-60, now.Unix()-60)

func TestTokenOfEachAlgorithmIsAccepted(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := i.verifier(t)
	for _, c := range []struct{ key, header string }{
		{"ed", `{"alg":"EdDSA","kid":"ed","typ":"JWT"}`},
		{"ed", `{"alg":"Ed25519","kid":"ed","typ":"at+jwt"}`},
		{"ed", `{"alg":"EdDSA"}`},
		{"ec", `{"typ":"application/at+jwt","kid":"ec","alg":"ES256","x5t":"ignored","jku":"https://evil.example/keys"}`},
		{"rsa", `{"alg":"RS256","kid":"rsa"}`},
		{"rsa", `{"alg":"RS256"}`},
	} {
		if sub, err := v.Claim(i.sign(t, c.key, c.header, good), "sub"); err != nil || sub != "ann" {
			t.Errorf("%s: %q, %v", c.header, sub, err)
		}
	}
}

func TestHeaderThatIsNotPlainIsRefused(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := i.verifier(t)
	for header, want := range map[string]string{
		`{"alg":"none"}`:                                         "algorithm",
		`{"alg":"HS256","kid":"rsa"}`:                            "algorithm",
		`{"alg":"PS256","kid":"rsa"}`:                            "algorithm",
		`{"alg":"eddsa"}`:                                        "algorithm",
		`{}`:                                                     "algorithm",
		`{"alg":"ES256","kid":"ed"}`:                             "for another algorithm",
		`{"alg":"EdDSA","kid":"ec"}`:                             "for another algorithm",
		`{"alg":"EdDSA","kid":"unknown"}`:                        "not known",
		`{"alg":"EdDSA","kid":""}`:                               "not known",
		`{"alg":"EdDSA","kid":null}`:                             "strict",
		`{"alg":"EdDSA","kid":7}`:                                "strict",
		`{"alg":"EdDSA","alg":"EdDSA"}`:                          "strict",
		`{"alg":"EdDSA","\u0061lg":"none"}`:                      "strict",
		`{"alg":"EdDSA"} `:                                       "",
		`{"alg":"EdDSA"}{}`:                                      "strict",
		`["EdDSA"]`:                                              "strict",
		`{"alg":"EdDSA","x":"` + "\xff" + `"}`:                   "strict",
		`{"alg":"EdDSA","x":{"a":1,"a":2}}`:                      "strict",
		`{"alg":"EdDSA","crit":["exp"],"exp":1}`:                 "extension",
		`{"alg":"EdDSA","crit":[]}`:                              "extension",
		`{"alg":"EdDSA","b64":false}`:                            "extension",
		`{"alg":"EdDSA","b64":false,"crit":["b64"]}`:             "extension",
		`{"alg":"EdDSA","zip":"DEF"}`:                            "extension",
		`{"alg":"EdDSA","enc":"A128GCM"}`:                        "extension",
		`{"alg":"EdDSA","typ":"dpop+jwt"}`:                       "type",
		`{"alg":"EdDSA","typ":"secevent+jwt"}`:                   "type",
		`{"alg":"EdDSA","kid":"ed","ALG":"none","note":"other"}`: "",
	} {
		_, err := v.Claim(i.sign(t, "ed", header, good), "sub")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", header, err, want)
		}
	}
}

func TestTokenThatNobodySignedIsRefused(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := i.verifier(t)
	header, claims := b64([]byte(`{"alg":"EdDSA","kid":"ed"}`)), b64([]byte(good))
	der, err := x509.MarshalPKIXPublicKey(&i.rsa.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	symmetric := b64([]byte(`{"alg":"HS256","kid":"rsa"}`)) + "." + claims
	mac := hmac.New(sha256.New, der)
	mac.Write([]byte(symmetric))
	_, stranger, _ := ed25519.GenerateKey(rand.Reader)
	own := b64([]byte(fmt.Sprintf(`{"alg":"EdDSA","jwk":{"kty":"OKP","crv":"Ed25519","x":%q}}`, b64(stranger.Public().(ed25519.PublicKey))))) + "." + claims
	for name, token := range map[string]string{
		"none":                                 b64([]byte(`{"alg":"none"}`)) + "." + claims + ".",
		"no signature":                         header + "." + claims + ".",
		"zero signature":                       header + "." + claims + "." + b64(make([]byte, 64)),
		"ECDSA zero signature":                 b64([]byte(`{"alg":"ES256"}`)) + "." + claims + "." + b64(make([]byte, 64)),
		"the public key as the secret of HMAC": symmetric + "." + b64(mac.Sum(nil)),
		"a key that the token brings":          own + "." + b64(ed25519.Sign(stranger, []byte(own))),
		"a stranger's key":                     header + "." + claims + "." + b64(ed25519.Sign(stranger, []byte(header+"."+claims))),
		"the signature of other claims":        header + "." + claims + "." + b64(i.signature(t, "ed", header+"."+b64([]byte(`{}`)))),
		"ECDSA in ASN.1":                       b64([]byte(`{"alg":"ES256"}`)) + "." + claims + "." + b64(asn1Signature(t, i.ec, b64([]byte(`{"alg":"ES256"}`))+"."+claims)),
	} {
		if sub, err := v.Claim(token, "sub"); err == nil {
			t.Errorf("%s: accepted as %s", name, sub)
		}
	}
}

func asn1Signature(t *testing.T, key *ecdsa.PrivateKey, signed string) []byte {
	t.Helper()
	sum := sha256.Sum256([]byte(signed))
	signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

func TestTokenInAnotherSpellingIsRefused(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := i.verifier(t)
	token := i.sign(t, "ed", `{"alg":"EdDSA"}`, good)
	dot := strings.LastIndex(token, ".")
	last := token[len(token)-1:]
	for name, other := range map[string]string{
		"a line end in the signature": token[:dot+10] + "\n" + token[dot+10:],
		"a line end after it":         token + "\n",
		"a carriage return":           token[:5] + "\r" + token[5:],
		"padding":                     token + "==",
		"other spare bits":            token[:len(token)-1] + string("BCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[strings.Index("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", last)]),
		"two parts":                   token[:dot],
		"four parts":                  token + ".",
		"a space":                     " " + token,
		"nothing":                     "",
		"only dots":                   "..",
		"too long":                    i.sign(t, "ed", `{"alg":"EdDSA"}`, `{"x":"`+strings.Repeat("x", jwt.MaxToken)+`",`+good[1:]),
	} {
		if _, err := v.Claim(other, "sub"); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := v.Claim(token, "sub"); err != nil {
		t.Fatal(err)
	}
}

func TestClaimsAreJudged(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := i.verifier(t)
	claims := func(change, to string) string {
		changed := strings.Replace(good, change, to, 1)
		if changed == good {
			t.Fatalf("%s is not there", change)
		}
		return changed
	}
	at := func(seconds int64) string { return fmt.Sprint(now.Unix() + seconds) }
	for name, c := range map[string]struct{ claims, want string }{
		"expired":                 {claims(at(60), at(-10)), "expired"},
		"expired within the skew": {claims(at(60), at(-9)), ""},
		"no expiry":               {claims(`"exp":`+at(60)+`,`, ""), "expired"},
		"expiry as text":          {claims(at(60), `"`+at(60)+`"`), "form"},
		"expiry null":             {claims(at(60), "null"), "form"},
		"expiry beyond doubles":   {claims(at(60), "1e400"), "strict"},
		"expiry too large":        {claims(at(60), "1e300"), "strict"},
		"not yet":                 {claims(`"nbf":`+at(-60), `"nbf":`+at(11)), "not valid yet"},
		"not before in the skew":  {claims(`"nbf":`+at(-60), `"nbf":`+at(10)), ""},
		"issued ahead":            {claims(`"iat":`+at(-60), `"iat":`+at(11)), "not valid yet"},
		"other issuer":            {claims("id.example", "id.example/"), "issuer"},
		"no issuer":               {claims(`"iss":"https://id.example",`, ""), "issuer"},
		"issuer as a list":        {claims(`"https://id.example"`, `["https://id.example"]`), "form"},
		"one audience":            {claims(`["other","payments"]`, `"payments"`), ""},
		"other audience":          {claims(`["other","payments"]`, `["other"]`), "audience"},
		"audience in a number":    {claims(`["other","payments"]`, `["payments",7]`), "form"},
		"no audience":             {claims(`"aud":["other","payments"],`, ""), "audience"},
		"empty audience":          {claims(`["other","payments"]`, `[]`), "audience"},
		"no subject":              {claims(`"sub":"ann",`, ""), "claim"},
		"empty subject":           {claims(`"ann"`, `""`), "claim"},
		"subject as a number":     {claims(`"ann"`, `7`), "claim"},
		"subject twice":           {claims(`"sub":"ann"`, `"sub":"ann","sub":"bob"`), "strict"},
		"subject twice, escaped":  {claims(`"sub":"ann"`, `"sub":"ann","s\u0075b":"bob"`), "strict"},
		"no object":               {`"ann"`, "strict"},
		"two objects":             {good + good, "strict"},
		"lone surrogate":          {claims(`"ann"`, `"\ud800"`), "strict"},
	} {
		_, err := v.Claim(i.sign(t, "ed", `{"alg":"EdDSA"}`, c.claims), "sub")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "ann") || strings.Contains(err.Error(), "other/")) {
			t.Errorf("%s: the error repeats a claim: %v", name, err)
		}
	}
}

func TestBadKeySetIsRefused(t *testing.T) {
	t.Parallel()
	weak := b64(new(big.Int).Lsh(big.NewInt(1), 1023).Bytes())
	for name, set := range map[string]string{
		"nothing":          ``,
		"no keys":          `{"keys":[]}`,
		"no such member":   `{}`,
		"a bare list":      `[]`,
		"only encryption":  `{"keys":[{"kty":"RSA","use":"enc","n":"x","e":"AQAB"}]}`,
		"symmetric":        `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`,
		"private":          `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}]}`,
		"short Ed25519":    `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AAAA"}]}`,
		"identity point":   `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + b64(append([]byte{1}, make([]byte, 31)...)) + `"}]}`,
		"padded x":         `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo="}]}`,
		"not on the curve": `{"keys":[{"kty":"EC","crv":"P-256","x":"` + b64(make([]byte, 32)) + `","y":"` + b64(make([]byte, 32)) + `"}]}`,
		"short modulus":    `{"keys":[{"kty":"RSA","n":"` + weak + `","e":"AQAB"}]}`,
		"exponent 1":       `{"keys":[{"kty":"RSA","n":"` + strings.Repeat("_", 342) + `","e":"AQ"}]}`,
		"other algorithm":  `{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"RS256","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
		"kid twice": `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
			{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
		"member twice": `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
	} {
		if _, err := jwt.ParseKeys([]byte(set)); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "nWGxne") || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%s: the error repeats a secret: %v", name, err)
		}
	}
}

func TestTokenWithoutKidNeedsOneKeyOfItsAlgorithm(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	_, second, _ := ed25519.GenerateKey(rand.Reader)
	i.set = strings.Replace(i.set, `{"keys":[`, fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":%q},`, b64(second.Public().(ed25519.PublicKey))), 1)
	v := i.verifier(t)
	if _, err := v.Claim(i.sign(t, "ed", `{"alg":"EdDSA"}`, good), "sub"); err == nil || !strings.Contains(err.Error(), "no kid") {
		t.Errorf("without kid: %v", err)
	}
	if _, err := v.Claim(i.sign(t, "ed", `{"alg":"EdDSA","kid":"ed"}`, good), "sub"); err != nil {
		t.Errorf("with kid: %v", err)
	}
}

func TestVerifierNeedsKeysIssuerAndAudience(t *testing.T) {
	t.Parallel()
	keys, err := jwt.ParseKeys([]byte(newIssuer(t).set))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []jwt.Options{
		{Issuer: "i", Audience: "a"}, {Keys: new(jwt.Keys), Issuer: "i", Audience: "a"}, {Keys: keys, Audience: "a"}, {Keys: keys, Issuer: "i"},
		{Keys: keys, Issuer: "i", Audience: "a", Skew: -1}, {Keys: keys, Issuer: "i", Audience: "a", Skew: time.Hour},
	} {
		if _, err := jwt.New(o); err == nil {
			t.Errorf("%+v: accepted", o)
		}
	}
}
