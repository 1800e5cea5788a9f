package mcpguard

import (
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

// Members of _meta that the guard reads and writes.
const (
	MetaKey      = "io.counterfoil/idempotency-key" // of a call: its key
	MetaRun      = "io.counterfoil/run-id"          // of a call: the run that it belongs to
	MetaPermit   = "io.counterfoil/permit"          // of a call: its permit, an object or a string of base64url
	MetaReplayed = "io.counterfoil/replayed"        // of a result: true if it is the recorded one of an earlier call
	MetaRefusal  = "io.counterfoil/refusal"         // of a result: why the call was refused, a [Refusal]
)

// toolCall is a call of a tool as every reader must understand it.
type toolCall struct {
	tool      string
	arguments []byte // canonical JSON; "{}" without any
	meta      map[string]jsontext.Value
	header    http.Header // nil where there are none
	owner     string
	run       string // the run that the configuration names, "" for none
	// task says that a task is asked for, whose handle is the result.
	task bool
	// responses and state continue a call that asked its client for input (2026-07-28); nil in a first round.
	responses []byte // canonical JSON
	state     *string
}

// continues reports whether the call goes on with one that asked for input.
func (c *toolCall) continues() bool { return c.responses != nil || c.state != nil }

// callParams are all parameters that calls have in any version of the protocol. Another one is refused: it might change what
// the call does, and would be no part of its fingerprint.
type callParams struct {
	Name           string         `json:"name"`
	Arguments      jsontext.Value `json:"arguments"`
	Meta           jsontext.Value `json:"_meta"`
	Task           jsontext.Value `json:"task"`
	InputResponses jsontext.Value `json:"inputResponses"`
	RequestState   *string        `json:"requestState"`
}

// decodeCall reads the parameters of a call.
func decodeCall(params jsontext.Value) (*toolCall, *rpcError) {
	if params == nil {
		return nil, refuseFrame(codeInvalidParams, "a call of a tool needs params")
	}
	var members map[string]jsontext.Value
	if err := canonical.Decode(params, &members); err != nil {
		return nil, refuseFrame(codeInvalidParams, "params: "+err.Error())
	}
	if name := misspelled(members, callNames); name != "" {
		return nil, refuseFrame(codeInvalidParams, "params: a member is spelled almost as "+name)
	}
	var p callParams
	if err := canonical.Decode(params, &p); err != nil {
		return nil, refuseFrame(codeInvalidParams, "params: "+err.Error())
	}
	c := &toolCall{tool: p.Name, task: p.Task != nil, state: p.RequestState}
	return c, c.read(&p)
}

func (c *toolCall) read(p *callParams) *rpcError {
	if c.tool == "" || len(c.tool) > 256 {
		return refuseFrame(codeInvalidParams, "params: the name of the tool has 1 to 256 bytes")
	}
	var refused *rpcError
	if c.arguments, refused = object("arguments", p.Arguments); refused != nil {
		return refused
	}
	if c.arguments == nil {
		c.arguments = []byte("{}")
	}
	if c.responses, refused = object("inputResponses", p.InputResponses); refused != nil {
		return refused
	}
	if _, refused = object("task", p.Task); refused != nil {
		return refused
	}
	if p.Meta == nil {
		return nil
	}
	if p.Meta.Kind() != '{' || json.Unmarshal(p.Meta, &c.meta) != nil {
		return refuseFrame(codeInvalidParams, "params: _meta must be an object")
	}
	return nil
}

// object gives the canonical form of an object, nil of what is not there.
func object(name string, value jsontext.Value) ([]byte, *rpcError) {
	if value == nil {
		return nil, nil
	}
	if value.Kind() != '{' {
		return nil, refuseFrame(codeInvalidParams, "params: "+name+" must be an object")
	}
	text, err := canonical.Transform(nil, value)
	if err != nil {
		return nil, refuseFrame(codeInvalidParams, "params: "+name+": "+err.Error())
	}
	return text, nil
}

// word gives a member of _meta that must be a string if it is there.
func (c *toolCall) word(name string) (string, *Refusal) {
	value, ok := c.meta[name]
	if !ok {
		return "", nil
	}
	var text string
	if value.Kind() != '"' || json.Unmarshal(value, &text) != nil || text == "" {
		return "", invalid(name + " in _meta must be a string that is not empty")
	}
	return text, nil
}
