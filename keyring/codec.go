package keyring

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/state"
)

// format names the file's format; a later one has another name.
const format = "counterfoil.keyring.v1"

// The file is one JSON object: the format, the SHA-256 of an ASCII tag and the bytes of the member keyring, and that
// member. Keys and ids are lower-case hex, times integer Unix milliseconds. There is one encoding of a document.
type fileJSON struct {
	Format  string          `json:"format"`
	SHA256  string          `json:"sha256"`
	Keyring json.RawMessage `json:"keyring"`
}

type documentJSON struct {
	ID        string          `json:"id"`
	Serial    uint64          `json:"serial"`
	Write     string          `json:"write"`
	Integrity []integrityJSON `json:"integrity"`
	Scopes    []scopeJSON     `json:"scopes"`
}

type integrityJSON struct {
	Key   string `json:"key"`
	Added int64  `json:"added"`
}

type scopeJSON struct {
	Scope    string         `json:"scope"`
	Accepted []acceptedJSON `json:"accepted"`
	Retired  []retiredJSON  `json:"retired,omitempty"`
}

type acceptedJSON struct {
	Public string `json:"public"`
	Seed   string `json:"seed,omitempty"`
	Own    bool   `json:"own,omitempty"`
	Added  int64  `json:"added"`
	Signs  int64  `json:"signs,omitempty"`
}

type retiredJSON struct {
	Public string `json:"public"`
	At     int64  `json:"at"`
}

// encode returns the file of d. Names of scopes are valid UTF-8, else d would not have passed its check.
func encode(d *document) ([]byte, error) {
	out := documentJSON{
		ID: hex.EncodeToString(d.id[:]), Serial: d.serial, Write: hex.EncodeToString(d.write[:]), Scopes: []scopeJSON{},
	}
	for _, k := range d.integrity {
		out.Integrity = append(out.Integrity, integrityJSON{Key: hex.EncodeToString(k.key.bytes[:]), Added: k.added})
	}
	for _, name := range d.names() {
		out.Scopes = append(out.Scopes, encodeScope(name, d.scopes[name]))
	}
	body, err := marshal(out)
	if err != nil {
		return nil, err
	}
	digest := sum(body)
	file, err := marshal(fileJSON{Format: format, SHA256: hex.EncodeToString(digest[:]), Keyring: body})
	if err != nil {
		return nil, err
	}
	if file = append(file, '\n'); len(file) > maxFile {
		return nil, fmt.Errorf("%w: the file would have more than %d bytes", ErrFull, maxFile)
	}
	return file, nil
}

func encodeScope(name string, s *scopeKeys) scopeJSON {
	out := scopeJSON{Scope: name, Accepted: []acceptedJSON{}}
	for _, k := range s.accepted {
		a := acceptedJSON{Public: k.public.String(), Own: k.own, Added: k.added, Signs: k.signs}
		if !k.seed.isZero() {
			a.Seed = hex.EncodeToString(k.seed.bytes[:])
		}
		out.Accepted = append(out.Accepted, a)
	}
	for _, k := range s.retired {
		out.Retired = append(out.Retired, retiredJSON{Public: k.public.String(), At: k.at})
	}
	return out
}

// marshal is json.Marshal without the escapes for HTML, which a raw value inside another would get a second time.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decode reads a file. Its errors are [ErrForeign] and [ErrCorrupt] and show nothing of the file's values.
func decode(src []byte, before *snapshot) (*snapshot, error) {
	if err := recognise(src); err != nil {
		return nil, err
	}
	var file fileJSON
	if err := canonical.DecodeLimited(src, maxFile, &file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if digest := sum(file.Keyring); hex.EncodeToString(digest[:]) != file.SHA256 {
		return nil, fmt.Errorf("%w: the content is not what its checksum says", ErrCorrupt)
	}
	var in documentJSON
	if err := canonical.Decode(file.Keyring, &in); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	d, err := in.document()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	at, err := newSnapshot(d, before)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	// One document has one file: what a reader skipped or took twice shows here.
	if again, err := encode(d); err != nil || !bytes.Equal(again, src) {
		return nil, fmt.Errorf("%w: it is not written as this program writes it", ErrCorrupt)
	}
	at.file = sha256.Sum256(src)
	return at, nil
}

// recognise tells files of other formats from damaged ones: a keyring begins with its format.
func recognise(src []byte) error {
	const head = `{"format":"` + format + `",`
	switch {
	case bytes.HasPrefix(src, []byte(head)):
		return nil
	case len(src) < len(head) && bytes.HasPrefix([]byte(head), src):
		return fmt.Errorf("%w: it is cut off", ErrCorrupt)
	}
	return fmt.Errorf("%w: it does not begin as %s does; is this directory a keyring, of a version that this program knows?", ErrForeign, format)
}

func (in *documentJSON) document() (*document, error) {
	d := &document{serial: in.Serial, scopes: make(map[string]*scopeKeys, len(in.Scopes))}
	var write [len(state.KeyID{})]byte
	if !unhex(d.id[:], in.ID) || !unhex(write[:], in.Write) {
		return nil, errHex
	}
	d.write = write
	for _, k := range in.Integrity {
		var key [state.IntegrityKeyBytes]byte
		if !unhex(key[:], k.Key) {
			return nil, errHex
		}
		d.integrity = append(d.integrity, integrityKey{key: newSecret(key), added: k.Added})
	}
	for _, s := range in.Scopes {
		if d.scopes[s.Scope] != nil {
			return nil, errors.New("a scope stands twice")
		}
		keys, err := s.keys()
		if err != nil {
			return nil, err
		}
		d.scopes[s.Scope] = keys
	}
	return d, nil
}

func (in *scopeJSON) keys() (*scopeKeys, error) {
	s := &scopeKeys{accepted: make([]acceptedKey, 0, len(in.Accepted)), retired: slices.Grow([]retiredKey(nil), len(in.Retired))}
	for _, a := range in.Accepted {
		k := acceptedKey{own: a.Own, added: a.Added, signs: a.Signs}
		if !unhex(k.public[:], a.Public) {
			return nil, errHex
		}
		if a.Seed != "" {
			var seed [32]byte
			if !unhex(seed[:], a.Seed) {
				return nil, errHex
			}
			k.seed = newSecret(seed)
		}
		s.accepted = append(s.accepted, k)
	}
	for _, r := range in.Retired {
		k := retiredKey{at: r.At}
		if !unhex(k.public[:], r.Public) {
			return nil, errHex
		}
		s.retired = append(s.retired, k)
	}
	return s, nil
}

var errHex = errors.New("a key or id is not lower-case hex of its length")

// unhex fills dst from exactly twice as many lower-case hex digits.
func unhex(dst []byte, text string) bool {
	if len(text) != 2*len(dst) {
		return false
	}
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(dst, []byte(text))
	return err == nil
}
