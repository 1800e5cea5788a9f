package jwt

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// Limits of a token.
const (
	MaxToken = 8 << 10         // bytes
	MaxSkew  = 5 * time.Minute // that clocks may be apart
)

// Why a token is refused. The texts can be shown to who sent it.
var (
	errShape          = errors.New("the token is not three parts of base64url, or it is too long")
	errEncoding       = errors.New("a part of the token is no canonical base64url")
	errHeader         = errors.New("the header of the token is no strict JSON object of the members that a JWT has")
	errExtension      = errors.New("the token asks for an extension that is not supported")
	errType           = errors.New("the token is not of the type JWT")
	errAlgorithm      = errors.New("the token is signed by another algorithm than EdDSA, ES256 or RS256")
	errNoKey          = errors.New("the token is signed by a key that is not known here")
	errNoKid          = errors.New("the token has no kid, and several keys could have signed it")
	errOtherAlgorithm = errors.New("the key of the token is for another algorithm")
	errSignature      = errors.New("the signature of the token is wrong")
	errClaims         = errors.New("the claims of the token are no strict JSON object, or one of them has another form than it must have")
	errExpired        = errors.New("the token has expired, or says nowhere when it does")
	errEarly          = errors.New("the token is not valid yet")
	errIssuer         = errors.New("the token is of another issuer")
	errAudience       = errors.New("the token is for another audience")
	errNoClaim        = errors.New("the token does not have the claim that names its owner, as a string that is not empty")
)

// Options configure a [Verifier].
type Options struct {
	Keys     *Keys
	Issuer   string        // that iss must be. Required
	Audience string        // that aud must be or contain. Required
	Skew     time.Duration // that the issuer's clock may be apart, at most [MaxSkew]
	Clock    clock.Clock   // nil: the machine's
}

// Verifier accepts the tokens of one issuer for one audience. It is safe for concurrent use.
type Verifier struct{ o Options }

// New makes a verifier. It fails if an option is missing or out of range.
func New(o Options) (*Verifier, error) {
	switch {
	case o.Keys == nil || len(o.Keys.list) == 0:
		return nil, errors.New("jwt: keys are required")
	case o.Issuer == "" || o.Audience == "":
		return nil, errors.New("jwt: issuer and audience are required: a token for somebody else must not be taken")
	case o.Skew < 0 || o.Skew > MaxSkew:
		return nil, errors.New("jwt: a skew is 0s to " + MaxSkew.String())
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	return &Verifier{o}, nil
}

// Claim verifies a token and gives the value of one of its claims, which must be a string that is not empty.
func (v *Verifier) Claim(token, name string) (string, error) {
	payload, err := v.open(token)
	if err != nil {
		return "", err
	}
	claims, err := readObject(payload, MaxToken)
	if err != nil {
		return "", errClaims
	}
	if err := v.judge(claims); err != nil {
		return "", err
	}
	value, err := claims.text(name)
	if err != nil || value == "" {
		return "", errNoClaim
	}
	return value, nil
}

// open verifies the signature of a token and gives its payload.
func (v *Verifier) open(token string) ([]byte, error) {
	if len(token) > MaxToken || strings.Count(token, ".") != 2 {
		return nil, errShape
	}
	end := strings.LastIndexByte(token, '.')
	first, second, _ := strings.Cut(token[:end], ".")
	head, err := decode64(first)
	if err != nil {
		return nil, err
	}
	payload, err := decode64(second)
	if err != nil {
		return nil, err
	}
	signature, err := decode64(token[end+1:])
	if err != nil {
		return nil, err
	}
	k, err := v.key(head)
	if err != nil {
		return nil, err
	}
	if len(signature) == 0 || !k.verify([]byte(token[:end]), signature) {
		return nil, errSignature
	}
	return payload, nil
}

// key reads a header and finds the key. Members that only describe the token are not looked at, nor are keys that it
// brings with it.
func (v *Verifier) key(head []byte) (*key, error) {
	var alg, typ, kid string
	h, err := readObject(head, MaxToken)
	if err != nil || h.texts(map[string]*string{"alg": &alg, "typ": &typ, "kid": &kid}) != nil {
		return nil, errHeader
	}
	for _, extension := range []string{"crit", "b64", "zip", "enc"} {
		if _, asked := h[extension]; asked {
			return nil, errExtension
		}
	}
	switch strings.TrimPrefix(strings.ToLower(typ), "application/") {
	case "", "jwt", "at+jwt":
	default:
		return nil, errType
	}
	by := algorithm(alg)
	if alg == "Ed25519" { // the name that RFC 9864 gives to EdDSA with this curve
		by = edDSA
	}
	if by != edDSA && by != es256 && by != rs256 {
		return nil, errAlgorithm
	}
	if _, named := h["kid"]; named && kid == "" {
		return nil, errNoKey
	}
	return v.o.Keys.find(kid, by)
}

// judge looks at the claims of RFC 7519 4.1.
func (v *Verifier) judge(claims object) error {
	now, skew := seconds(v.o.Clock.Now()), v.o.Skew.Seconds()
	exp, given, err := numericDate(claims, "exp")
	if err != nil {
		return err
	}
	if !given || now >= exp+skew {
		return errExpired
	}
	for _, name := range []string{"nbf", "iat"} {
		from, given, err := numericDate(claims, name)
		if err != nil {
			return err
		}
		if given && now < from-skew {
			return errEarly
		}
	}
	issuer, err := claims.text("iss")
	if err != nil {
		return errClaims
	}
	if issuer != v.o.Issuer {
		return errIssuer
	}
	return v.audience(claims)
}

// audience looks at aud, a string or a list of strings.
func (v *Verifier) audience(claims object) error {
	var list []string
	if one, err := claims.text("aud"); err == nil {
		list = []string{one}
	} else if canonical.Decode(claims["aud"], &list) != nil {
		return errClaims
	}
	if !slices.Contains(list, v.o.Audience) {
		return errAudience
	}
	return nil
}

// numericDate reads a claim of seconds since 1970, which may have a fraction.
func numericDate(claims object, name string) (at float64, given bool, err error) {
	value, given := claims[name]
	if !given {
		return 0, false, nil
	}
	if canonical.Decode(value, &at) != nil {
		return 0, true, errClaims
	}
	return at, true, nil
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
