package api

import "encoding/json"

// ApprovalRequest asks for the approval of a call: POST /v1/approvals.
type ApprovalRequest struct {
	Subject    Name            `json:"subject" doc:"Who may make the call."`
	Capability Name            `json:"capability" doc:"By which capability."`
	Server     Name            `json:"server" doc:"On which tool server."`
	Tool       Name            `json:"tool" doc:"Which tool."`
	RequestID  Name            `json:"request_id" doc:"For which request."`
	Arguments  json.RawMessage `json:"arguments" doc:"The call's arguments, any JSON; at most 64 KiB. An operator is shown them."`
	TTL        Seconds         `json:"ttl_seconds,omitzero" minimum:"60" maximum:"86400" default:"3600" doc:"How long it waits for a decision."`
}

// The states of a request for an approval, besides [StatePending] and [StateExpired].
const (
	StateGranted = "granted"
	StateDenied  = "denied"
)

// ApprovalAnswer is where a request for an approval stands, for its owner.
type ApprovalAnswer struct {
	ID        Digest          `json:"id"`
	State     string          `json:"state" enum:"pending,granted,denied,expired"`
	ExpiresAt Time            `json:"expires_at" doc:"Until when it can be decided, its permit can be used, or it stays denied."`
	Note      string          `json:"note,omitzero" doc:"What the operator said."`
	Permit    json.RawMessage `json:"permit,omitzero" doc:"Of a granted one: to be used once, for this very call."`
}

// Outcome is what the header Counterfoil-Outcome says.
func (a *ApprovalAnswer) Outcome() string { return a.State }

// ApprovalIDRequest names a request: GET /v1/approvals/{id}.
type ApprovalIDRequest struct {
	ID Digest `json:"-" path:"id"`
}

// GrantRequest grants a request: POST /v1/approvals/{id}/grant.
type GrantRequest struct {
	ID   Digest  `json:"-" path:"id"`
	TTL  Seconds `json:"ttl_seconds,omitzero" minimum:"1" maximum:"3600" default:"300" doc:"How long its permit can be used."`
	Note string  `json:"note,omitzero" maxLength:"1024" doc:"Why; kept with the request, and shown to its owner."`
}

// DenyRequest denies a request: POST /v1/approvals/{id}/deny.
type DenyRequest struct {
	ID   Digest `json:"-" path:"id"`
	Note string `json:"note,omitzero" maxLength:"1024" doc:"Why; kept with the request, and shown to its owner."`
}

// ApprovalsRequest lists requests: GET /v1/approvals.
type ApprovalsRequest struct {
	Page
	State string `json:"-" query:"state" enum:"pending,granted,denied,expired"`
}

// Approval is a request for an approval as an operator sees it, without its permit.
type Approval struct {
	ID            Digest          `json:"id"`
	State         string          `json:"state" enum:"pending,granted,denied,expired"`
	Owner         Name            `json:"owner"`
	Subject       Name            `json:"subject"`
	Capability    Name            `json:"capability"`
	Server        Name            `json:"server"`
	Tool          Name            `json:"tool"`
	RequestID     Name            `json:"request_id"`
	Arguments     json.RawMessage `json:"arguments" doc:"In canonical form (RFC 8785)."`
	ParameterHash Digest          `json:"parameter_hash"`
	AskedAt       Time            `json:"asked_at"`
	ExpiresAt     Time            `json:"expires_at" doc:"Until when it can be decided, its permit can be used, or it stays denied."`
	Decided       *Decision       `json:"decided,omitzero"`
}

// Decision is what an operator decided about a request.
type Decision struct {
	By   string `json:"by" doc:"The name of the credential."`
	At   Time   `json:"at"`
	Note string `json:"note,omitzero"`
}

// DecisionAnswer is a request that is decided.
type DecisionAnswer struct {
	Approval
	Repeated bool `json:"repeated,omitzero" doc:"It was decided like this before."`
}

// ApprovalList is a part of a list of requests.
type ApprovalList struct {
	List[Approval]
	Damaged []Digest `json:"damaged,omitzero" doc:"Requests whose records cannot be read."`
}
