package jwt

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

// object is a JSON object of which only some members matter.
type object map[string]jsontext.Value

// readObject reads strict JSON: no member twice at any depth, and numbers that everybody reads alike.
func readObject(src []byte, most int) (o object, err error) {
	if err := canonical.Check(src, most); err != nil {
		return nil, err
	}
	return o, canonical.Decode(src, &o)
}

// text reads a member that is a string; "" if it is absent.
func (o object) text(name string) (s string, err error) {
	value, given := o[name]
	if !given {
		return "", nil
	}
	return s, canonical.Decode(value, &s)
}

// texts reads members that are strings.
func (o object) texts(members map[string]*string) error {
	for name, to := range members {
		var err error
		if *to, err = o.text(name); err != nil {
			return err
		}
	}
	return nil
}
