package mcpguard

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

// DefaultMaxFrame is how many bytes a frame may have if nothing else is said.
const DefaultMaxFrame = 16 << 20

// Codes of JSON-RPC 2.0 (5.1) that the guard answers with.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

// rpcError is the refusal of a frame.
type rpcError struct {
	code int
	text string // never a value of the frame
	id   jsontext.Value
	data jsontext.Value
}

func (e *rpcError) Error() string { return e.text }

func refuseFrame(code int, text string) *rpcError { return &rpcError{code: code, text: text} }

// frame is one message of a client, as every reader must understand it.
type frame struct {
	raw    []byte         // as received
	id     jsontext.Value // nil without one
	method string         // "" for an answer
	params jsontext.Value // nil without any
}

// request reports whether the frame asks for an answer.
func (f *frame) request() bool { return f.method != "" && f.id != nil }

// The members of a message, and of the parameters of a call of a tool. A reader that takes other letter case for the same
// name would read another message, so that such names are refused.
var (
	envelopeNames = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	callNames     = []string{"name", "arguments", "_meta", "task", "inputResponses", "requestState"}
)

// MaxBatch is how many messages a batch may have.
const MaxBatch = 100

// decodeFrames reads what a client sent: one message, or a batch of them (2025-03-26 only). Whatever two readers could
// understand differently is refused: JSON with duplicate members, lone surrogates, invalid UTF-8 or trailing data, a
// carriage return, which some readers take for the end of a line, and a member in other letter case.
func decodeFrames(raw []byte, maxBytes int) (frames []*frame, batch bool, refused *rpcError) {
	if len(raw) > maxBytes {
		return nil, false, refuseFrame(codeInvalidRequest, "the message has more bytes than are taken")
	}
	if bytes.ContainsRune(bytes.TrimRight(raw, "\r\n"), '\r') {
		return nil, false, refuseFrame(codeParse, "a carriage return inside of a message")
	}
	if trimmed := bytes.TrimLeft(raw, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '[' {
		f, refused := decodeFrame(raw)
		return []*frame{f}, false, refused
	}
	var parts []jsontext.Value
	if err := canonical.Decode(raw, &parts); err != nil {
		return nil, true, refuseFrame(codeParse, err.Error())
	}
	if len(parts) == 0 || len(parts) > MaxBatch {
		return nil, true, refuseFrame(codeInvalidRequest, "a batch has 1 to 100 messages")
	}
	for _, part := range parts {
		f, refused := decodeFrame(part)
		if refused != nil {
			refused.id = nil
			return nil, true, refused
		}
		frames = append(frames, f)
	}
	return frames, true, nil
}

func decodeFrame(raw []byte) (*frame, *rpcError) {
	var members map[string]jsontext.Value
	if err := canonical.Decode(raw, &members); err != nil {
		return nil, refuseFrame(codeParse, err.Error())
	}
	f := &frame{raw: raw, params: members["params"]}
	refused := f.read(members)
	if refused != nil {
		refused.id = f.id
		return nil, refused
	}
	return f, nil
}

func (f *frame) read(members map[string]jsontext.Value) *rpcError {
	if name := misspelled(members, envelopeNames); name != "" {
		return refuseFrame(codeInvalidRequest, "a member is spelled almost as "+name)
	}
	if id, ok := members["id"]; ok {
		if !validID(id) {
			return refuseFrame(codeInvalidRequest, "the id must be a string of 1 to 256 bytes or an integer")
		}
		f.id = id
	}
	if string(members["jsonrpc"]) != `"2.0"` {
		return refuseFrame(codeInvalidRequest, `want "jsonrpc": "2.0"`)
	}
	_, result := members["result"]
	_, failed := members["error"]
	method, named := members["method"]
	switch {
	case !named && (result == failed || f.id == nil):
		return refuseFrame(codeInvalidRequest, "want a method, or an id and either result or error")
	case !named:
		return nil
	case result || failed:
		return refuseFrame(codeInvalidRequest, "a message has a method or an answer, not both")
	}
	if json.Unmarshal(method, &f.method) != nil || f.method == "" {
		return refuseFrame(codeInvalidRequest, "the method must be a string")
	}
	return nil
}

// misspelled gives the known name that a member has in other letter case, "" if there is none. Some readers fold case as
// [strings.EqualFold] does.
func misspelled(members map[string]jsontext.Value, known []string) string {
	for name := range members {
		for _, k := range known {
			if name != k && strings.EqualFold(name, k) {
				return k
			}
		}
	}
	return ""
}

// validID reports whether every reader takes an id for the same: a short string, or an integer of at most 15 digits.
func validID(id jsontext.Value) bool {
	if id.Kind() == '"' {
		var text string
		return json.Unmarshal(id, &text) == nil && text != "" && len(text) <= 256
	}
	digits := strings.TrimPrefix(string(id), "-")
	return digits != "" && len(digits) <= 15 && strings.Trim(digits, "0123456789") == "" && (digits[0] != '0' || string(id) == "0")
}

// idKey makes ids comparable that are spelled differently.
func idKey(id jsontext.Value) string {
	key, err := canonical.Transform(nil, id)
	if err != nil {
		return string(id)
	}
	return string(key)
}

// answer is what a server answered a request.
type answer struct {
	raw    []byte         // the message as received; nil where there is none
	result jsontext.Value // nil with an error
	failed bool           // it is an error
	code   int            // of the error; 0 if it has none
	status int            // of HTTP, if that is the error; else 0
}

var errAnswer = errors.New("mcpguard: the server's answer is no strict JSON-RPC")

// decodeAnswer reads a message of a server. ok says that it is the answer to a request, of which id names one; err, that it
// is one which two readers could understand differently.
func decodeAnswer(raw []byte) (a *answer, id string, ok bool, err error) {
	var members map[string]jsontext.Value
	strict := canonical.Decode(raw, &members)
	if strict != nil {
		members = nil
		if json.Unmarshal(raw, &members, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
			return nil, "", false, nil //nolint:nilerr // noise on the server's side is not the guard's to judge
		}
	}
	rawID, named := members["id"]
	if _, asks := members["method"]; asks || !named {
		return nil, "", false, nil
	}
	id = idKey(rawID)
	result, succeeded := members["result"]
	failure, failed := members["error"]
	if strict != nil || succeeded == failed || succeeded && result.Kind() != '{' {
		return nil, id, true, errAnswer
	}
	a = &answer{raw: raw, result: result, failed: failed}
	if failed {
		var e struct {
			Code int `json:"code"`
		}
		if json.Unmarshal(failure, &e) != nil {
			return nil, id, true, errAnswer
		}
		a.code = e.Code
	}
	return a, id, true, nil
}
