package httpguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"

	strictjson "github.com/go-json-experiment/json"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/ids"
)

// The tags of fingerprints, one for each way to look at a body. A fingerprint is the length-prefixed SHA-256, under its
// tag, of method, path as sent, raw query, media type and body. No other header is part of it.
const (
	tagRaw    = "counterfoil.http.v1"
	tagJSON   = "counterfoil.http-json.v1"
	tagChosen = "counterfoil.http-fields.v1"
)

// Fingerprint says what makes two requests the same request, beside method, path, query and media type.
type Fingerprint struct {
	// JSON compares bodies by their canonical JSON (RFC 8785) and not by their bytes. A body that is no strict JSON is
	// then refused.
	JSON bool
	// Only is the JSON pointers (RFC 6901) whose values alone count; empty: the whole body. It implies JSON.
	Only []string
	// Except is the JSON pointers whose values do not count, such as a time of sending. It implies JSON, and excludes Only.
	Except []string
}

var errContentTypes = errors.New("the header Content-Type is there more than once")

// of gives the fingerprint of a request.
func (f *Fingerprint) of(r *http.Request, body []byte) (counterfoil.Fingerprint, error) {
	types := r.Header["Content-Type"]
	if len(types) > 1 {
		return counterfoil.Fingerprint{}, errContentTypes
	}
	tag, content := tagRaw, body
	var err error
	switch {
	case len(f.Only) > 0 || len(f.Except) > 0:
		tag = tagChosen
		content, err = f.choose(body)
	case f.JSON && len(body) > 0:
		tag = tagJSON
		content, err = canonical.Transform(nil, body)
	}
	if err != nil {
		return counterfoil.Fingerprint{}, err
	}
	return ids.Hash(tag, []byte(r.Method), []byte(r.URL.EscapedPath()), []byte(r.URL.RawQuery), []byte(essence(types)), content), nil
}

// essence is the media type without its parameters, the whole value if it is not of that form.
func essence(types []string) string {
	if len(types) == 0 {
		return ""
	}
	media, _, err := mime.ParseMediaType(types[0])
	if err != nil {
		return strings.ToLower(types[0])
	}
	return media
}

// onlyJSON reports whether every reader takes the body for JSON in UTF-8: as a form, in another charset, or uncompressed,
// the same bytes may say something else.
func onlyJSON(h http.Header) bool {
	types, coded := h["Content-Type"], h["Content-Encoding"]
	if len(types) != 1 || len(coded) > 1 || len(coded) == 1 && !strings.EqualFold(coded[0], "identity") {
		return false
	}
	for _, connection := range h["Connection"] { // what it names does not go on
		if strings.Contains(strings.ToLower(connection), "content-") {
			return false
		}
	}
	media, parameters, err := mime.ParseMediaType(types[0])
	charset, named := parameters["charset"]
	return err == nil && (media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")) &&
		(!named || strings.EqualFold(charset, "utf-8"))
}

// choose gives what counts of a body.
func (f *Fingerprint) choose(body []byte) ([]byte, error) {
	strict, err := canonical.Transform(nil, body)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(strict))
	decoder.UseNumber()
	var doc any
	if err := decoder.Decode(&doc); err != nil {
		return nil, err
	}
	kept := doc
	if len(f.Only) > 0 {
		// What is not there is left out, so that it differs from a null.
		chosen := map[string]any{}
		for _, pointer := range f.Only {
			if value, ok := at(doc, pointer); ok {
				chosen[pointer] = value
			}
		}
		kept = chosen
	}
	for _, pointer := range f.Except {
		remove(doc, pointer)
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	return canonical.Transform(nil, text)
}

// steps are the reference tokens of a JSON pointer.
func steps(pointer string) []string {
	out := strings.Split(pointer[1:], "/")
	for i, s := range out {
		out[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return out
}

func checkPointer(pointer string) error {
	if pointer == "" || pointer[0] != '/' {
		return errors.New("want a JSON pointer that begins with /")
	}
	for rest := pointer; ; {
		_, after, found := strings.Cut(rest, "~")
		if !found {
			return nil
		}
		if after == "" || after[0] != '0' && after[0] != '1' {
			return errors.New("a JSON pointer writes ~ as ~0 and / as ~1")
		}
		rest = after
	}
}

// at finds the value at a pointer.
func at(doc any, pointer string) (any, bool) {
	for _, step := range steps(pointer) {
		switch in := doc.(type) {
		case map[string]any:
			value, ok := in[step]
			if !ok {
				return nil, false
			}
			doc = value
		case []any:
			i, ok := index(step, len(in))
			if !ok {
				return nil, false
			}
			doc = in[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// index reads an array's reference token: digits without leading zeros.
func index(step string, length int) (int, bool) {
	i, err := strconv.Atoi(step)
	if err != nil || i < 0 || i >= length || strconv.Itoa(i) != step {
		return 0, false
	}
	return i, true
}

// remove takes a member out of the object that holds it. An element of an array becomes null, so that the others keep
// their places.
func remove(doc any, pointer string) {
	cut := strings.LastIndexByte(pointer, '/')
	parent := doc
	if cut > 0 {
		var ok bool
		if parent, ok = at(doc, pointer[:cut]); !ok {
			return
		}
	}
	last := steps(pointer[cut:])[0]
	switch in := parent.(type) {
	case map[string]any:
		delete(in, last)
	case []any:
		if i, ok := index(last, len(in)); ok {
			in[i] = nil
		}
	}
}

// quote writes a string as JSON.
func quote(s string) (string, error) {
	text, err := strictjson.Marshal(s)
	return string(text), err
}
