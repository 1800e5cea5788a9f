package api

import (
	"encoding/json"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

// Entry is an amount of one budget.
type Entry struct {
	Budget BudgetName `json:"budget"`
	Amount uint64     `json:"amount" maximum:"9007199254740991"`
}

// UnmarshalJSON refuses an entry without its amount: 0 must be said.
func (e *Entry) UnmarshalJSON(src []byte) error {
	var read struct {
		Budget *BudgetName     `json:"budget"`
		Amount json.RawMessage `json:"amount"`
	}
	if err := canonical.Decode(src, &read); err != nil {
		return err
	}
	if read.Budget == nil {
		return missing("/budget")
	}
	if read.Amount == nil {
		return missing("/amount")
	}
	n, err := integer(read.Amount)
	if err != nil {
		return under("/amount", err)
	}
	*e = Entry{Budget: *read.Budget, Amount: n}
	return nil
}

// MintRequest asks for a permit: POST /v1/permits. Exactly one of Arguments and ParameterHash is given.
type MintRequest struct {
	Subject       Name            `json:"subject" doc:"Who may make the call."`
	Capability    Name            `json:"capability" doc:"By which capability."`
	Server        Name            `json:"server" doc:"On which tool server."`
	Tool          Name            `json:"tool" doc:"Which tool."`
	RequestID     Name            `json:"request_id" doc:"For which request."`
	Arguments     json.RawMessage `json:"arguments,omitzero" doc:"The call's arguments, any JSON; instead of parameter_hash."`
	ParameterHash Digest          `json:"parameter_hash,omitzero" doc:"SHA-256 of the canonical JSON (RFC 8785) of the arguments."`
	TTL           Seconds         `json:"ttl_seconds,omitzero" minimum:"1" maximum:"3600" default:"30"`
	Hold          *MintHold       `json:"hold,omitzero" doc:"Amounts to hold until the permit is used or expires. Also needs the role spend."`
}

// MintHold is what a permit holds.
type MintHold struct {
	Entries []Entry `json:"entries" minItems:"1" maxItems:"16"`
}

// Check refuses both or neither of arguments and parameter_hash.
func (r *MintRequest) Check() error { return oneOfArguments(r.Arguments, r.ParameterHash) }

// MintAnswer is a permit: 201, or 200 for the same request again.
type MintAnswer struct {
	Permit        json.RawMessage `json:"permit" doc:"The signed permit: send it on byte for byte."`
	ParameterHash Digest          `json:"parameter_hash"`
	ExpiresAt     Time            `json:"expires_at"`
	HoldID        Digest          `json:"hold_id,omitzero"`
	Budgets       []Figures       `json:"budgets,omitzero" doc:"Where each budget stands, ancestors too."`
	Repeated      bool            `json:"repeated,omitzero"`
}

// Expected is the call that is about to happen. Exactly one of Arguments and ParameterHash is given.
type Expected struct {
	Subject       Name            `json:"subject"`
	Capability    Name            `json:"capability"`
	Server        Name            `json:"server"`
	Tool          Name            `json:"tool"`
	RequestID     Name            `json:"request_id"`
	Arguments     json.RawMessage `json:"arguments,omitzero" doc:"The call's arguments, any JSON; instead of parameter_hash."`
	ParameterHash Digest          `json:"parameter_hash,omitzero"`
}

// Check refuses both or neither of arguments and parameter_hash.
func (e *Expected) Check() error { return oneOfArguments(e.Arguments, e.ParameterHash) }

// ConsumeRequest uses a permit for the expected call: POST /v1/permits/consume.
type ConsumeRequest struct {
	Permit   json.RawMessage `json:"permit" doc:"The permit as it was issued."`
	Expected Expected        `json:"expected" doc:"The call as the caller knows it, not as the permit says."`
	Token    Token           `json:"token,omitzero" doc:"Drawn at random before the first send; the same again for a repetition."`
}

// ConsumeAnswer is the use of a permit. Exactly one caller ever gets it.
type ConsumeAnswer struct {
	Consumed bool   `json:"consumed"`
	NonceID  string `json:"nonce_id"`
	HoldID   Digest `json:"hold_id,omitzero"`
	Token    Token  `json:"token" doc:"The one given, or the one that the server drew; it captures the permit's hold."`
	Repeated bool   `json:"repeated,omitzero"`
}

// CheckRequest verifies a permit without using it: POST /v1/permits/check.
type CheckRequest struct {
	Permit   json.RawMessage `json:"permit" doc:"The permit as it was issued."`
	Expected Expected        `json:"expected"`
	Token    Token           `json:"token,omitzero" doc:"Ignored: the body of a consume is taken as it is."`
}

// CheckAnswer says that a consume would have succeeded.
type CheckAnswer struct {
	Valid bool `json:"valid"`
}

// RevokeRequest refuses permits issued up to now: POST /v1/revocations. Without members it is the whole scope.
type RevokeRequest struct {
	Subject    Name `json:"subject,omitzero"`
	Capability Name `json:"capability,omitzero"`
}

// RevokeAnswer is the time up to which permits are refused.
type RevokeAnswer struct {
	Floor Time `json:"floor"`
}

func oneOfArguments(arguments json.RawMessage, hash Digest) error {
	return exactlyOne(arguments != nil, hash != "", "arguments", "parameter_hash")
}

func exactlyOne(a, b bool, nameA, nameB string) error {
	switch {
	case a && b:
		return &canonical.Error{Kind: canonical.ErrMalformed, Pointer: "/" + nameB, Reason: "give either " + nameA + " or " + nameB + ", not both"}
	case !a && !b:
		return &canonical.Error{Kind: canonical.ErrMalformed, Reason: "give either " + nameA + " or " + nameB}
	}
	return nil
}

func missing(pointer string) error {
	return &canonical.Error{Kind: canonical.ErrMalformed, Pointer: pointer, Reason: "missing member"}
}

// under puts a pointer in front of that of err.
func under(pointer string, err error) error {
	if e, ok := err.(*canonical.Error); ok { //nolint:errorlint // made in this package, never wrapped
		e.Pointer = pointer + e.Pointer
	}
	return err
}
