package api

import (
	"net/http"
	"strings"
	"time"
)

// ProblemType is the media type of a [Problem] (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is a refusal as it goes over the wire (RFC 9457), and as a Go error. It never repeats a value of the request.
type Problem struct { //nolint:errname // it is called so where it comes from, RFC 9457
	Type      string `json:"type" doc:"Where the code is explained: /problems/<code>."`
	Title     string `json:"title" doc:"What the code means, in one sentence that never changes."`
	Status    int    `json:"status" doc:"The HTTP status."`
	Detail    string `json:"detail,omitzero" doc:"What is wrong with this request, and what to do."`
	Instance  string `json:"instance,omitzero" doc:"urn:uuid of this answer; the server's log has it too."`
	Code      Code   `json:"code" doc:"The code: what a program should look at."`
	Retryable bool   `json:"retryable" doc:"Whether the same request may be sent again with a hope of another answer."`

	Pointer string          `json:"pointer,omitzero" doc:"malformed, invalid, budget_unknown: JSON pointer (RFC 6901) to the place in the body."`
	Field   string          `json:"field,omitzero" doc:"permit_binding_mismatch: which field differs." enum:"subject,capability,server,tool,request_id,parameter_hash"`
	Refused []RefusedBudget `json:"refused,omitzero" doc:"budget_exceeded: every budget that is in the way."`
	Digest  Digest          `json:"digest,omitzero" doc:"receipt_not_retained: SHA-256 of the receipt's body."`
	Length  *int64          `json:"length,omitzero" nullable:"false" doc:"receipt_not_retained: length of the receipt's body in bytes."`

	// RetryAfter goes into the header of that name, rounded up to seconds; 0 means none.
	RetryAfter time.Duration `json:"-"`
	// Allow goes into the header of that name.
	Allow []string `json:"-"`
	// Quotas goes into the headers RateLimit and RateLimit-Policy.
	Quotas []Quota `json:"-"`
}

// StatusRetryBudget is the status of [BudgetExceeded] where waiting helps.
const StatusRetryBudget = http.StatusTooManyRequests

// RefusedBudget is a budget that a spend or hold would exceed. Of an ancestor that the token is not for it has the name
// alone.
type RefusedBudget struct {
	Budget BudgetName `json:"budget"`
	*RefusedFigures
}

// RefusedFigures is where a refused budget stood at the decision.
type RefusedFigures struct {
	Unit      string `json:"unit" required:"false"`
	Limit     Limit  `json:"limit" required:"false"`
	Spent     uint64 `json:"spent" required:"false"`
	Held      uint64 `json:"held" required:"false" doc:"Held and fenced."`
	Remaining Limit  `json:"remaining" required:"false"`
	Amount    uint64 `json:"amount" required:"false" doc:"What the request asks of it."`
	ResetsAt  Time   `json:"resets_at,omitzero" doc:"End of its window; absent for a lifetime."`
}

// Quota is a budget as the headers RateLimit and RateLimit-Policy show it.
type Quota struct {
	Name      string
	Limit     uint64
	Remaining uint64
	Window    time.Duration // of the budget
	Reset     time.Duration // until the window ends
}

// NewProblem returns the problem of a code with its usual status, title and wait. A code that is not in the table gives
// [Internal]: an unknown refusal must not look like a known one. Detail must not repeat a value of the request.
func NewProblem(code Code, detail string) *Problem {
	row, ok := code.Info()
	if !ok {
		row, _ = Internal.Info()
		detail = ""
	}
	return &Problem{
		Type: "/problems/" + string(row.Code), Title: row.Title, Status: row.Status(), Detail: detail,
		Code: row.Code, Retryable: row.Retry == RetryAlways, RetryAfter: row.Wait,
	}
}

// Error says what the problem is.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(string(p.Code))
	b.WriteString(": ")
	if p.Detail != "" {
		b.WriteString(p.Detail)
	} else {
		b.WriteString(p.Title)
	}
	if p.Pointer != "" {
		b.WriteString(" at ")
		b.WriteString(p.Pointer)
	}
	return b.String()
}

// Is reports whether target is a problem of the same code.
func (p *Problem) Is(target error) bool {
	other, ok := target.(*Problem)
	return ok && other.Code == p.Code
}
