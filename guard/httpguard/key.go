package httpguard

import (
	"errors"
	"net/http"
)

// DefaultKeyHeader is the header of draft-ietf-httpapi-idempotency-key-header.
const DefaultKeyHeader = "Idempotency-Key"

// MaxKey is how many characters a key has at most.
const MaxKey = 255

// What a header of a key may not be.
var (
	errKeyMissing  = errors.New("is missing")
	errKeyRepeated = errors.New("is there more than once")
	errKeyEmpty    = errors.New("is empty")
	errKeyLong     = errors.New("has more than 255 characters")
	errKeyString   = errors.New("is no string of RFC 8941: want one pair of quotes around printable ASCII, with \\\" and \\\\ as the only escapes")
	errKeyBare     = errors.New("has characters that a bare key may not have: want visible ASCII without quote, comma, semicolon and space, or a quoted string")
)

// keyOf reads the key of a request; it is "" with errKeyMissing if there is none.
func keyOf(h http.Header, name string) (string, error) {
	values := h[http.CanonicalHeaderKey(name)]
	switch {
	case len(values) == 0:
		return "", errKeyMissing
	case len(values) > 1:
		return "", errKeyRepeated
	}
	return parseKey(values[0])
}

// parseKey reads the value of a header that holds a key. A value that begins with a quote is a string of RFC 8941 (3.3.3),
// without parameters; any other is the key itself. Both spellings of a key give the same key.
func parseKey(value string) (string, error) {
	key := value
	var err error
	if value != "" && value[0] == '"' {
		key, err = unquote(value)
	} else {
		err = checkBare(value)
	}
	switch {
	case err != nil:
		return "", err
	case key == "":
		return "", errKeyEmpty
	case len(key) > MaxKey:
		return "", errKeyLong
	}
	return key, nil
}

func unquote(value string) (string, error) {
	var key []byte
	for i := 1; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			if i != len(value)-1 {
				return "", errKeyString
			}
			return string(key), nil
		case c == '\\':
			if i++; i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", errKeyString
			}
			key = append(key, value[i])
		case c < 0x20 || c > 0x7e:
			return "", errKeyString
		default:
			key = append(key, c)
		}
	}
	return "", errKeyString
}

func checkBare(value string) error {
	for i := range len(value) {
		if c := value[i]; c <= 0x20 || c > 0x7e || c == '"' || c == ',' || c == ';' {
			return errKeyBare
		}
	}
	return nil
}
