package approval

import (
	"bytes"
	"encoding/hex"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// How long a request may wait for a decision.
const (
	DefaultTTL = time.Hour
	MinTTL     = time.Minute
	MaxTTL     = 24 * time.Hour
)

// DeniedFor is how long a denied call stays denied.
const DeniedFor = 24 * time.Hour

// Limits of what is kept.
const (
	MaxArguments = 64 << 10 // bytes of canonical JSON
	MaxNote      = 1024     // bytes
)

// tries bounds how often a step is tried against others who change the same request.
const tries = 16

// Approvals keeps requests on a store. It is safe for concurrent use, in any number of processes.
type Approvals struct{ store *store.Store }

// New returns the approvals of a store.
func New(s *store.Store) *Approvals { return &Approvals{store: s} }

// Call is one exact call. Every field must be given.
type Call struct {
	Subject, Capability, Server, Tool, RequestID string
	ParameterHash                                string // 64 lower-case hex digits: SHA-256 of the canonical JSON of the arguments
}

// ID returns the id of an owner's request for the approval of a call, as 64 lower-case hex digits: the length-prefixed
// hash with tag counterfoil.approval.v1 of owner, subject, capability, server, tool, request id and parameter hash.
func ID(owner string, c Call) string {
	return ids.Approval(owner, c.Subject, c.Capability, c.Server, c.Tool, c.RequestID, c.ParameterHash)
}

// State is where a request is in its life.
type State string

// The states of a request.
const (
	Pending State = "pending" // it waits for a decision
	Granted State = "granted" // its permit can be used, once
	Denied  State = "denied"
	Expired State = "expired" // nobody decided in time, or the permit's time is over: it can be asked for anew
)

// Request is a request as it stands.
type Request struct {
	ID        string
	Owner     string
	Call      Call
	Arguments []byte // canonical JSON
	State     State
	AskedAt   time.Time
	// ExpiresAt is until when it can be decided, its permit can be used, or it stays denied.
	ExpiresAt time.Time
	// DecidedBy, DecidedAt and Note say who decided, when and why; zero if nobody has.
	DecidedBy string
	DecidedAt time.Time
	Note      string
}

func keyOf(scope, id string) (state.Key, error) {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != 32 || strings.ToLower(id) != id {
		return state.Key{}, invalidf("the id of a request is 64 lower-case hex digits")
	}
	return state.Key{Scope: scope, Kind: state.KindApproval, ID: string(raw)}, nil
}

// check refuses a call with a field that no permit could have.
func (c *Call) check() error {
	for _, f := range []struct{ name, value string }{
		{"subject", c.Subject}, {"capability", c.Capability}, {"server", c.Server}, {"tool", c.Tool}, {"request id", c.RequestID},
	} {
		if err := state.CheckName(f.value); err != nil {
			return invalidf("%s: %v", f.name, err)
		}
	}
	return nil
}

// argumentsOf gives the arguments in canonical form, which must be those of the call.
func argumentsOf(c *Call, arguments []byte) ([]byte, error) {
	if len(arguments) > 4*MaxArguments {
		return nil, invalidf("the arguments have more than %d bytes", MaxArguments)
	}
	text, err := canonical.Transform(nil, arguments)
	if err != nil {
		return nil, invalidf("arguments: %v", err)
	}
	sum, err := canonical.Hash(text)
	if err != nil {
		return nil, invalidf("arguments: %v", err)
	}
	switch {
	case len(text) > MaxArguments:
		return nil, invalidf("the arguments have more than %d bytes", MaxArguments)
	case hex.EncodeToString(sum[:]) != c.ParameterHash:
		return nil, invalidf("the parameter hash is not that of the arguments")
	}
	return bytes.Clone(text), nil
}

func checkCaller(scope, owner string) error {
	if err := state.CheckName(owner); err != nil {
		return invalidf("owner: %v", err)
	}
	return checkScope(scope)
}

func checkScope(scope string) error {
	if err := state.CheckScopeName(scope); err != nil {
		return invalidf("%v", err)
	}
	return nil
}

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
