package approval

import (
	"encoding/hex"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/state"
)

// body is what a record keeps, as strict JSON: there are few, and people wait for them.
type body struct {
	Version    int            `json:"v"`
	Subject    string         `json:"subject"`
	Capability string         `json:"capability"`
	Server     string         `json:"server"`
	Tool       string         `json:"tool"`
	RequestID  string         `json:"request_id"`
	Hash       string         `json:"parameter_hash"`
	Arguments  jsontext.Value `json:"arguments"`
	Asked      int64          `json:"asked"` // ms
	Decision   *decision      `json:"decision,omitzero"`
}

// decision is what an operator decided.
type decision struct {
	State  State          `json:"state"` // Granted or Denied
	By     string         `json:"by"`
	At     int64          `json:"at"` // ms
	Note   string         `json:"note,omitzero"`
	Permit jsontext.Value `json:"permit,omitzero"` // of a grant
}

const bodyVersion = 1

func newBody(c *Call, arguments []byte, now int64) *body {
	return &body{
		Version: bodyVersion, Subject: c.Subject, Capability: c.Capability, Server: c.Server, Tool: c.Tool, RequestID: c.RequestID,
		Hash: c.ParameterHash, Arguments: arguments, Asked: now,
	}
}

func (b *body) call() Call {
	return Call{
		Subject: b.Subject, Capability: b.Capability, Server: b.Server, Tool: b.Tool, RequestID: b.RequestID, ParameterHash: b.Hash,
	}
}

func (b *body) encode() ([]byte, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, invalidf("%v", err)
	}
	return text, nil
}

// decode reads the body of a record, which must belong to its key and its state.
func decode(key state.Key, r *state.Record) (*body, error) {
	b := new(body)
	if err := json.Unmarshal(r.Body, b, json.RejectUnknownMembers(true)); err != nil {
		return nil, corrupt(r)
	}
	settled := r.State == state.Settled
	switch {
	case b.Version != bodyVersion, ID(r.Owner, b.call()) != hex.EncodeToString([]byte(key.ID)), settled != (b.Decision != nil):
		return nil, corrupt(r)
	case settled && b.Decision.State != Granted && b.Decision.State != Denied, settled && (b.Decision.State == Granted) != (b.Decision.Permit != nil):
		return nil, corrupt(r)
	}
	return b, nil
}

// request gives a record as it stands.
func request(key state.Key, r *state.Record, now int64) (*Request, *body, error) {
	b, err := decode(key, r)
	if err != nil {
		return nil, nil, err
	}
	q := &Request{
		ID: hex.EncodeToString([]byte(key.ID)), Owner: r.Owner, Call: b.call(), Arguments: b.Arguments, State: Pending, AskedAt: at(b.Asked), ExpiresAt: at(r.Expires),
	}
	if d := b.Decision; d != nil {
		q.State, q.DecidedBy, q.DecidedAt, q.Note = d.State, d.By, at(d.At), d.Note
	}
	if r.Expires <= now {
		q.State = Expired
	}
	return q, b, nil
}

func corrupt(r *state.Record) error {
	return fmt.Errorf("approval: %w: the body of a %s record", state.ErrCorrupt, r.State)
}
