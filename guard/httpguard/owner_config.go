package httpguard

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// OwnerConfig is the part of a file of options that says who the owner of a request is: by one of header, bearer,
// certificate and jwt.
type OwnerConfig struct {
	Header      string            `yaml:"header"`      // the owner is who knows the value of this header
	Bearer      bool              `yaml:"bearer"`      // or the bearer token
	Known       map[string]string `yaml:"known"`       // only these: lower-case hex SHA-256 of the value, and the owner
	Certificate bool              `yaml:"certificate"` // the subject of the client's TLS certificate
	JWT         *JWTConfig        `yaml:"jwt"`         // a claim of a JSON Web Token

	token Identify // by JWT, once [OwnerConfig.Load] has read its keys
}

// JWTConfig says whose JSON Web Tokens are taken; see [JWT].
type JWTConfig struct {
	Keys     string        `yaml:"keys"` // file with the issuer's JSON Web Key Set
	Issuer   string        `yaml:"issuer"`
	Audience string        `yaml:"audience"`
	Claim    string        `yaml:"claim"`
	Skew     time.Duration `yaml:"skew"`
}

// Given reports whether it says anything at all.
func (o *OwnerConfig) Given() bool {
	return o.Header != "" || o.Bearer || o.Known != nil || o.Certificate || o.JWT != nil
}

// Check refuses what names nobody, or in two ways.
func (o *OwnerConfig) Check() error {
	ways := 0
	for _, way := range []bool{o.Header != "", o.Bearer, o.Certificate, o.JWT != nil} {
		if way {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("httpguard: say who the owner of a request is, in one way: owner: {header: NAME}, {bearer: true}, {certificate: true} or {jwt: {…}}")
	}
	if o.Header != "" && !token(o.Header) {
		return errors.New("httpguard: owner: header is no name of a header")
	}
	if o.JWT != nil && (o.JWT.Keys == "" || o.JWT.Issuer == "" || o.JWT.Audience == "") {
		return errors.New("httpguard: owner: jwt needs keys (a file with a JSON Web Key Set), issuer and audience")
	}
	return o.checkKnown()
}

func (o *OwnerConfig) checkKnown() error {
	if o.Known == nil {
		return nil
	}
	if o.Certificate || o.JWT != nil || len(o.Known) == 0 {
		return errors.New("httpguard: owner: known lists at least one value of a header or bearer token, and goes with these alone")
	}
	for sum, owner := range o.Known {
		raw, err := hex.DecodeString(sum)
		if err != nil || len(raw) != 32 || strings.ToLower(sum) != sum {
			return errors.New("httpguard: owner: known has what is no SHA-256 in lower-case hex; 'printf %s \"$KEY\" | sha256sum' gives it")
		}
		if err := checkOwner(owner); err != nil {
			return fmt.Errorf("httpguard: owner: known: %w", err)
		}
	}
	return nil
}

// Load reads the file that the options name, if any. Without it, the tokens of a [JWTConfig] are all refused.
func (o *OwnerConfig) Load(read func(name string) ([]byte, error)) error {
	if o.JWT == nil {
		return nil
	}
	keys, err := read(o.JWT.Keys)
	if err != nil {
		return fmt.Errorf("httpguard: owner: jwt: keys: %w", err)
	}
	j := o.JWT
	o.token, err = JWT(JWTOptions{Keys: keys, Issuer: j.Issuer, Audience: j.Audience, Claim: j.Claim, Skew: j.Skew})
	if err != nil {
		return fmt.Errorf("httpguard: owner: jwt: %w", err)
	}
	return nil
}

var errNotLoaded = errors.New("the keys that verify tokens were not read")

// Identify names the owner of a request as configured.
func (o *OwnerConfig) Identify() Identify {
	switch {
	case o.JWT != nil && o.token != nil:
		return o.token
	case o.JWT != nil:
		return func(*http.Request) (string, error) { return "", errNotLoaded }
	case o.Certificate:
		return Certificate()
	case len(o.Known) > 0:
		return Known(o.Header, o.Known)
	case o.Bearer:
		return Bearer()
	}
	return Header(o.Header)
}
