package mcpguard

import (
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/permit"
)

// The tags of the hashes by which calls are compared. They carry the version: another rule gets another tag.
const (
	tagCall    = "counterfoil.mcp.call.v1"    // server, tool, arguments
	tagTask    = "counterfoil.mcp.task.v1"    // the same, when a task is asked for
	tagAnswer  = "counterfoil.mcp.answer.v1"  // server, tool, arguments, responses, state
	tagDerived = "counterfoil.mcp.derived.v1" // server, run, tool, arguments
	tagRound   = "counterfoil.mcp.round.v1"   // key, state
)

// claim is what a call must be granted before the server gets it.
type claim struct {
	policy *Policy
	begin  counterfoil.BeginParams
}

// policyOf gives the policy of a tool.
func (g *Guard) policyOf(tool string) *Policy {
	if p, ok := g.tools[tool]; ok {
		return p
	}
	return g.base
}

// foldTool gives what servers may take for the same name: in small letters, of the usual width, without spaces around it
// and what nobody sees.
func foldTool(name string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		switch {
		case '\uff01' <= c && c <= '\uff5e':
			c -= 0xfee0
		case !unicode.IsPrint(c) && !unicode.IsSpace(c), unicode.In(c, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
			return -1
		}
		return unicode.ToLower(c)
	}, name))
}

// judge says what a call must be granted. It looks at nothing but the call and the configuration. The tool that a permit
// is bound to is left open, since its schema is the server's.
func (g *Guard) judge(c *toolCall) (*claim, *Refusal) {
	if _, known := g.tools[c.tool]; !known && g.folded[foldTool(c.tool)] {
		return nil, invalid("the name of the tool is almost that of another tool that the guard knows: spell it as the server lists it")
	}
	p := g.policyOf(c.tool)
	key, refused := g.keyOf(c, p)
	if refused != nil {
		return nil, refused
	}
	v := &claim{policy: p, begin: counterfoil.BeginParams{Key: key, Fingerprint: g.fingerprint(c), Lease: p.Lease}}
	if v.begin.Spend, refused = p.spend(c); refused != nil {
		return nil, refused
	}
	if refused = v.permit(c, g.options.Server); refused != nil {
		return nil, refused
	}
	return v, nil
}

// keyOf finds the key of a call: what names it must agree. The ids of the protocol are no key, since a call that is sent
// again has others.
func (g *Guard) keyOf(c *toolCall, p *Policy) (string, *Refusal) {
	key, refused := c.word(MetaKey)
	if refused != nil {
		return "", refused
	}
	argument, refused := c.argument(p.KeyArgument)
	if refused != nil {
		return "", refused
	}
	header, refused := g.keyHeader(c)
	if refused != nil {
		return "", refused
	}
	for _, other := range []string{argument, header} {
		if key != "" && other != "" && key != other {
			return "", invalid("the call has two different keys")
		}
		take(&key, other)
	}
	switch {
	case len(key) > 256 || strings.ContainsFunc(key, unicode.IsControl):
		return "", invalid("a key has at most 256 bytes, and no control characters")
	case ownKey.MatchString(key):
		return "", invalid("a key of this form is one that the guard makes itself")
	case key != "":
		return key, nil
	case p.Keys == Derived:
		return g.derive(c)
	}
	return "", invalid("the call has no key: put one that names this very call into _meta, as " + MetaKey)
}

// argument gives a member of the arguments that must be a string if it is there.
func (c *toolCall) argument(name string) (string, *Refusal) {
	if name == "" {
		return "", nil
	}
	var members map[string]jsontext.Value
	if json.Unmarshal(c.arguments, &members) != nil || members[name] == nil {
		return "", nil
	}
	var key string
	if json.Unmarshal(members[name], &key) != nil || key == "" || members[name].Kind() != '"' {
		return "", invalid("the argument that holds the key must be a string that is not empty")
	}
	return key, nil
}

func (g *Guard) keyHeader(c *toolCall) (string, *Refusal) {
	if g.options.KeyHeader == "" || len(c.header.Values(g.options.KeyHeader)) == 0 {
		return "", nil
	}
	key, err := httpguard.KeyOf(c.header, g.options.KeyHeader)
	if err != nil {
		return "", invalid("the header " + g.options.KeyHeader + " " + err.Error())
	}
	return key, nil
}

// derive makes the key of a call that names none.
func (g *Guard) derive(c *toolCall) (string, *Refusal) {
	run := c.run
	if run == "" {
		var refused *Refusal
		if run, refused = c.word(MetaRun); refused != nil {
			return "", refused
		}
	}
	if run == "" {
		return "", invalid("the call has neither a key nor a run to derive one from: start the guard with --run, or send " + MetaKey + " or " + MetaRun + " in _meta")
	}
	return hashed(ids.Hash(tagDerived, g.options.Server, run, c.tool, string(c.arguments))), nil
}

// ownKey matches the keys that the guard makes.
var ownKey = regexp.MustCompile(`^mcp-[0-9a-f]{64}$`)

func hashed(sum [32]byte) string { return "mcp-" + hex.EncodeToString(sum[:]) }

// fingerprint is what makes a call the same call.
func (g *Guard) fingerprint(c *toolCall) counterfoil.Fingerprint {
	switch {
	case c.continues():
		return ids.Hash(tagAnswer, g.options.Server, c.tool, string(c.arguments), string(c.responses), c.stateOf())
	case c.task:
		return ids.Hash(tagTask, g.options.Server, c.tool, string(c.arguments))
	}
	return ids.Hash(tagCall, g.options.Server, c.tool, string(c.arguments))
}

func (c *toolCall) stateOf() string {
	if c.state == nil {
		return ""
	}
	return *c.state
}

// roundKey is the key of the call that goes on after one of key has asked for input with a state.
func roundKey(key, state string) string { return hashed(ids.Hash(tagRound, key, state)) }

// noPermit stands for the permit of a call that has none: it is refused as malformed, after an operation that exists has
// answered.
var noPermit = []byte("{}")

// permit adds the permit that the tool asks for.
func (v *claim) permit(c *toolCall, server string) *Refusal {
	value, given := c.meta[MetaPermit]
	if v.policy.Capability == "" {
		if given {
			return invalid("the call has a permit, and this tool asks for none")
		}
		return nil
	}
	hash, err := permit.ParameterHash(c.arguments)
	if err != nil {
		return invalid("the arguments cannot be part of a permit")
	}
	v.begin.Permit = noPermit
	v.begin.Expected = permit.Expected{
		Subject: c.owner, Capability: v.policy.Capability, Server: server, RequestID: v.begin.Key, ParameterHash: hash,
	}
	if !given {
		return nil
	}
	if value.Kind() == '{' {
		v.begin.Permit = value
		return nil
	}
	var text string
	if value.Kind() != '"' || json.Unmarshal(value, &text) != nil {
		return invalid(MetaPermit + " in _meta must be the permit, or a string of base64url")
	}
	wire, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(text, "="))
	if err != nil || strings.ContainsAny(text, "\r\n") || len(wire) == 0 {
		return invalid(MetaPermit + " in _meta is no base64url")
	}
	v.begin.Permit = wire
	return nil
}

// awaits reports whether the call has no permit of its own.
func (v *claim) awaits() bool {
	return v.policy.Capability != "" && len(v.begin.Permit) == len(noPermit) && string(v.begin.Permit) == string(noPermit)
}

// ToolName is the tool that a permit of a tool of MCP is bound to: its name, an @, and the first 16 hex digits of the
// SHA-256 of the canonical JSON of its inputSchema. A tool whose schema changes is another tool.
func ToolName(name string, inputSchema []byte) (string, error) {
	sum, err := canonical.Hash(inputSchema)
	if err != nil {
		return "", err
	}
	return name + "@" + hex.EncodeToString(sum[:8]), nil
}
