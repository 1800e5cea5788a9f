package api

import "github.com/counterfoil/counterfoil/internal/canonical"

// The kinds and periods of a budget's window.
const (
	WindowLifetime = "lifetime"
	WindowFixed    = "fixed"
	WindowCalendar = "calendar"

	PeriodDay   = "day"
	PeriodWeek  = "week"
	PeriodMonth = "month"
)

// Window says when a budget starts anew: never, every so many seconds from the Unix epoch, or with each day, week
// (Monday) or month of a time zone.
type Window struct {
	Kind    string  `json:"kind" enum:"lifetime,fixed,calendar"`
	Seconds Seconds `json:"seconds,omitzero" doc:"fixed: the length."`
	Period  string  `json:"period,omitzero" enum:"day,week,month" doc:"calendar"`
	Zone    string  `json:"zone,omitzero" maxLength:"256" doc:"calendar: an IANA time zone."`
}

// Check refuses members that the kind does not have, and the lack of those that it needs.
func (w *Window) Check() error {
	for _, m := range []struct {
		name, kind string
		given      bool
	}{
		{"seconds", WindowFixed, w.Seconds != 0},
		{"period", WindowCalendar, w.Period != ""},
		{"zone", WindowCalendar, w.Zone != ""},
	} {
		switch {
		case m.kind == w.Kind && !m.given:
			return missing("/" + m.name)
		case m.kind != w.Kind && m.given:
			return &canonical.Error{Kind: canonical.ErrMalformed, Pointer: "/" + m.name, Reason: "only for a window of kind " + m.kind}
		}
	}
	return nil
}

// PutBudgetRequest defines a budget or changes its limit: PUT /v1/budgets/{name}.
type PutBudgetRequest struct {
	Name   BudgetName `json:"-" path:"name"`
	Unit   Name       `json:"unit" maxLength:"64" doc:"What is counted: calls, tokens, usd_micros, …"`
	Limit  Limit      `json:"limit" doc:"An integer, or \"unlimited\"."`
	Window Window     `json:"window"`
	Parent BudgetName `json:"parent,omitzero" doc:"A budget of the same unit that counts along; its name need not be a prefix."`
}

// BudgetRequest reads a budget: GET /v1/budgets/{name}.
type BudgetRequest struct {
	Name BudgetName `json:"-" path:"name"`
}

// Figures is where a budget stands in its present window.
type Figures struct {
	Name            BudgetName `json:"name"`
	Unit            string     `json:"unit"`
	Limit           Limit      `json:"limit"`
	Spent           uint64     `json:"spent"`
	Held            uint64     `json:"held" doc:"Held and fenced."`
	Remaining       Limit      `json:"remaining" doc:"Never below 0."`
	WindowStartedAt Time       `json:"window_started_at,omitzero"`
	ResetsAt        Time       `json:"resets_at,omitzero"`
}

// Budget is a budget with its definition.
type Budget struct {
	Figures
	Window Window     `json:"window"`
	Parent BudgetName `json:"parent,omitzero"`
}

// BudgetsRequest lists budgets by name: GET /v1/budgets.
type BudgetsRequest struct {
	Page
	Prefix BudgetPrefix `json:"-" query:"prefix" doc:"That budget and all below it."`
}

// CloseRequest removes a budget and all below it: POST /v1/budgets/close.
type CloseRequest struct {
	Prefix BudgetPrefix `json:"prefix"`
}

// CloseAnswer says how many budgets were removed.
type CloseAnswer struct {
	BudgetsRemoved int `json:"budgets_removed"`
}

// SpendRequest spends at once: POST /v1/spends.
type SpendRequest struct {
	RequestID Name    `json:"request_id" doc:"The same again for a repetition."`
	Entries   []Entry `json:"entries" minItems:"1" maxItems:"16"`
}

// SpendAnswer is a spend: 201, or 200 for the same request again.
type SpendAnswer struct {
	SpendID   Digest    `json:"spend_id"`
	Remaining *uint64   `json:"remaining,omitzero" nullable:"false" doc:"The smallest of all budgets that have a limit."`
	Budgets   []Figures `json:"budgets" doc:"Where each budget stands, ancestors too."`
	Repeated  bool      `json:"repeated,omitzero"`
}

// RefundRequest gives a spend back: POST /v1/spends/{id}/refund.
type RefundRequest struct {
	ID Digest `json:"-" path:"id"`
}

// RefundAnswer says that it is given back.
type RefundAnswer struct {
	Refunded bool `json:"refunded"`
}

// HoldRequest holds amounts: POST /v1/holds.
type HoldRequest struct {
	RequestID Name    `json:"request_id" doc:"The same again for a repetition."`
	Entries   []Entry `json:"entries" minItems:"1" maxItems:"16"`
	TTL       Seconds `json:"ttl_seconds" minimum:"1" maximum:"604800"`
}

// HoldAnswer is a hold: 201, or 200 for the same request again.
type HoldAnswer struct {
	HoldID    Digest    `json:"hold_id"`
	ExpiresAt Time      `json:"expires_at" doc:"At most 6.25 % later than asked."`
	Budgets   []Figures `json:"budgets" doc:"Where each budget stands, ancestors too."`
	Repeated  bool      `json:"repeated,omitzero"`
}

// CaptureRequest charges a hold and gives the rest back: POST /v1/holds/{id}/capture.
type CaptureRequest struct {
	ID      Digest  `json:"-" path:"id"`
	Entries []Entry `json:"entries" maxItems:"16" doc:"What is charged; a budget of the hold that is not named is returned."`
	Token   Token   `json:"token,omitzero" doc:"After a bare consume: the token that it answered, which stands for the owner."`
}

// CaptureAnswer is what was charged.
type CaptureAnswer struct {
	Captured   []Entry   `json:"captured"`
	Uncaptured []Entry   `json:"uncaptured,omitzero" doc:"What exceeded the hold and did not fit the budgets."`
	Budgets    []Figures `json:"budgets"`
}

// VoidRequest gives a hold back: POST /v1/holds/{id}/void.
type VoidRequest struct {
	ID Digest `json:"-" path:"id"`
}

// VoidAnswer says that the hold is void.
type VoidAnswer struct {
	Voided bool `json:"voided"`
}

// ExtendRequest prolongs a hold: POST /v1/holds/{id}/extend.
type ExtendRequest struct {
	ID  Digest  `json:"-" path:"id"`
	TTL Seconds `json:"ttl_seconds" minimum:"1" maximum:"604800" doc:"From now on."`
}

// ExtendAnswer is the new end of the hold.
type ExtendAnswer struct {
	ExpiresAt Time `json:"expires_at"`
}

// ReadHoldRequest reads a hold: GET /v1/holds/{id}.
type ReadHoldRequest struct {
	ID Digest `json:"-" path:"id"`
}

// The states of a hold, besides [StateExpired].
const (
	StateOpen     = "open"
	StateFenced   = "fenced"
	StateCaptured = "captured"
	StateVoided   = "voided"
)

// Hold is a hold as it stands.
type Hold struct {
	HoldID    Digest  `json:"hold_id"`
	State     string  `json:"state" enum:"open,fenced,captured,voided,expired"`
	Entries   []Entry `json:"entries"`
	ExpiresAt Time    `json:"expires_at,omitzero"`
}
