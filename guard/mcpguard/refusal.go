package mcpguard

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/guard"
)

// Codes of refusals that are not of the store.
const (
	// UpstreamUnreachable: the server did not get the call, which can be sent again.
	UpstreamUnreachable api.Code = "upstream_unreachable"
	// ApprovalPending: an operator has not decided yet.
	ApprovalPending api.Code = "approval_pending"
	// ApprovalDenied: an operator has decided against the call.
	ApprovalDenied api.Code = "approval_denied"
)

// Refusal says why a call was refused: it is the member [MetaRefusal] of _meta in a result with isError.
type Refusal struct {
	Code       api.Code        `json:"code"`
	Retryable  bool            `json:"retryable"` // the same call again, with the same key, may get another answer
	RetryAfter int64           `json:"retry_after_seconds,omitzero"`
	Operation  string          `json:"operation_id,omitzero"` // that an operator has to resolve
	Approval   string          `json:"approval_id,omitzero"`
	Field      string          `json:"field,omitzero"` // of a permit that is bound to another call
	Budgets    []RefusedBudget `json:"budgets,omitzero"`

	text string // what a model reads
}

// RefusedBudget is a budget that an amount did not fit.
type RefusedBudget struct {
	Budget   string `json:"budget"`
	Unit     string `json:"unit"`
	Limit    uint64 `json:"limit"`
	Used     uint64 `json:"used"`
	Amount   uint64 `json:"amount"`
	ResetsAt string `json:"resets_at,omitzero"` // RFC 3339; "": never
}

func invalid(text string) *Refusal { return &Refusal{Code: api.Invalid, text: text} }

// advice is what a model should do, by code; "" for what the problem itself says.
var advice = map[api.Code]string{
	api.InFlight:           "The same call is at work already. Wait, then send exactly the same call again: you will get its result.",
	api.OutcomeUnknown:     "Nobody knows whether this call has had its effect. Do not try it again, also not with another key: tell the person you work for, who must find out and resolve it.",
	api.KeyReused:          "The idempotency key was used for a call with other arguments. If this is a new call, give it a new key.",
	api.KeyExpired:         "This very call has happened, and its result is no longer kept. Do not repeat it.",
	api.ReceiptNotRetained: "This very call has happened, and its result was too large to keep. Do not repeat it; look at what it has done.",
	api.BudgetExceeded:     "The call does not fit the budget.",
	api.BudgetUnknown:      "A budget that this call counts in is not defined. Tell the person you work for.",
	api.OwnerQuota:         "Too many calls are remembered for this agent. Try again later.",
	api.CommitUnknown:      "The store did not say whether the call was accepted; the tool was not called. Send exactly the same call again, with the same key.",
	api.Stale:              "The call took too long to be accepted; the tool was not called. Send exactly the same call again.",
	api.PermitReplayed:     "The permit of this call, or its approval, was used before. The tool was not called.",
	api.PermitExpired:      "The permit of this call has expired. The tool was not called.",
	ApprovalPending:        "A person has to approve this very call. The tool was not called. Send exactly the same call again later.",
	ApprovalDenied:         "A person has denied this call. The tool was not called. Do not send it again.",
	UpstreamUnreachable:    "The server of the tool cannot be reached; the tool was not called. Send exactly the same call again later.",
	api.Overloaded:         "As many calls are in progress as are taken; the tool was not called. Send exactly the same call again later.",
	api.NotFound:           "The server has no such tool.",
}

// refusalOf says what a refusal of the Caller means to a model.
func refusalOf(err error, now time.Time) *Refusal {
	p := guard.Problem(err, now)
	r := &Refusal{Code: p.Code, Retryable: p.Retryable, RetryAfter: int64(math.Ceil(p.RetryAfter.Seconds())), Field: p.Field}
	if advice[p.Code] == "" {
		row, _ := p.Code.Info()
		r.text = strings.TrimSuffix(row.Title+": "+p.Detail, ": ") + ". " + row.Do + " The tool was not called."
	}
	var exceeded *budget.ExceededError
	if p.Code == api.BudgetExceeded && errors.As(err, &exceeded) {
		r.exceeded(exceeded.Refused)
	}
	return r
}

// exceeded says by how much.
func (r *Refusal) exceeded(refused []counterfoil.Figures) {
	var text []string
	for i := range refused {
		f := &refused[i]
		b := RefusedBudget{Budget: f.Name, Unit: f.Unit, Limit: f.Limit, Used: f.Spent + f.Held, Amount: f.Amount}
		again := "it never begins anew, so waiting does not help"
		if !f.Lifetime {
			b.ResetsAt = time.UnixMilli(f.ResetsAt).UTC().Format("2006-01-02T15:04:05.000Z")
			again = "it begins anew at " + b.ResetsAt
		}
		r.Budgets = append(r.Budgets, b)
		text = append(text, fmt.Sprintf("Budget %s: limit %d %s, used %d, this call needs %d; %s.", b.Budget, b.Limit, b.Unit, b.Used, b.Amount, again))
	}
	r.text = strings.Join(text, " ")
}

// said is what a model reads.
func (r *Refusal) said() string {
	text := strings.TrimSpace(advice[r.Code] + " " + r.text)
	if r.RetryAfter > 0 {
		text += fmt.Sprintf(" Try again in %d s.", r.RetryAfter)
	}
	return "Refused (" + string(r.Code) + "): " + text
}

// textContent is a block of content.
type textContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// refusalResult is the result of a call that was refused. It is a result, and no error of the protocol, so that the model
// reads it.
type refusalResult struct {
	Meta       map[string]*Refusal `json:"_meta"`
	Content    []textContent       `json:"content"`
	IsError    bool                `json:"isError"`
	ResultType string              `json:"resultType"`
}

// result makes the result of a refused call.
func (r *Refusal) result() []byte {
	body, err := json.Marshal(&refusalResult{
		Meta: map[string]*Refusal{MetaRefusal: r}, Content: []textContent{{"text", r.said()}}, IsError: true, ResultType: "complete",
	})
	if err != nil { // it is plain data
		return []byte(`{"content":[],"isError":true}`)
	}
	return body
}
