package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/state"
)

// DefineBudget makes a budget, or changes the limit of the one that is there; see [budget.Budgets.Define].
func (c *Caller) DefineBudget(ctx context.Context, p budget.Definition) (budget.Budget, error) {
	req := api.PutBudgetRequest{Unit: api.Name(p.Unit), Limit: api.LimitOf(p.Limit), Window: wireWindow(p.Window), Parent: api.BudgetName(p.Parent)}
	if p.Unlimited {
		req.Limit = api.Unlimited()
	}
	var a api.Budget
	err := c.do(ctx, Request{Method: http.MethodPut, Path: budgetPath(p.Name), Body: &req, Again: true}, aboutBudget, &a)
	if err != nil {
		return budget.Budget{}, err
	}
	return budgetOf(&a)
}

// Budget tells where a budget stands.
func (c *Caller) Budget(ctx context.Context, name string) (budget.Budget, error) {
	var a api.Budget
	if err := c.get(ctx, aboutBudget, budgetPath(name), nil, &a); err != nil {
		return budget.Budget{}, err
	}
	return budgetOf(&a)
}

// Budgets lists budgets by name; see [budget.Budgets.List].
func (c *Caller) Budgets(ctx context.Context, p budget.ListParams) (budget.Page, error) {
	q := page(p.Cursor, p.Limit)
	set(q, "prefix", p.Prefix)
	var a api.List[api.Budget]
	if err := c.get(ctx, aboutBudget, "/v1/budgets", q, &a); err != nil {
		return budget.Page{}, err
	}
	out := budget.Page{Next: a.NextCursor}
	for i := range a.Items {
		b, err := budgetOf(&a.Items[i])
		if err != nil {
			return budget.Page{}, err
		}
		out.Items = append(out.Items, b)
	}
	return out, nil
}

// CloseBudgets removes the budget of that name and all below it, and tells how many there were.
func (c *Caller) CloseBudgets(ctx context.Context, prefix string) (int, error) {
	var a api.CloseAnswer
	if err := c.post(ctx, aboutBudget, "/v1/budgets/close", &api.CloseRequest{Prefix: api.BudgetPrefix(prefix)}, &a); err != nil {
		return 0, err
	}
	return a.BudgetsRemoved, nil
}

// Spend takes amounts at once; see [budget.Budgets.Spend]. Scope, Owner and Token of the parameters are not used: the
// request id makes a repetition known.
func (c *Caller) Spend(ctx context.Context, p budget.SpendParams) (budget.Spent, error) {
	var a api.SpendAnswer
	req := api.SpendRequest{RequestID: api.Name(p.RequestID), Entries: entries(p.Entries)}
	if err := c.post(ctx, aboutSpend, "/v1/spends", &req, &a); err != nil {
		return budget.Spent{}, err
	}
	if !isDigest(a.SpendID) {
		return budget.Spent{}, strange(aboutSpend)
	}
	out := budget.Spent{ID: string(a.SpendID), Budgets: figures(a.Budgets), Repeated: a.Repeated}
	if a.Remaining != nil {
		out.Remaining, out.Limited = *a.Remaining, true
	}
	return out, nil
}

// Refund gives back exactly what a spend took, once; see [budget.Budgets.Refund].
func (c *Caller) Refund(ctx context.Context, spendID string) error {
	path, err := under("/v1/spends/", spendID, "/refund", aboutSpend)
	if err != nil {
		return err
	}
	var a api.RefundAnswer
	if err := c.post(ctx, aboutSpend, path, struct{}{}, &a); err != nil {
		return err
	}
	if !a.Refunded {
		return strange(aboutSpend)
	}
	return nil
}

// GetHold tells where a hold is in its life. Its owner does not go over the wire.
func (c *Caller) GetHold(ctx context.Context, holdID string) (budget.HoldView, error) {
	path, err := under("/v1/holds/", holdID, "", aboutHold)
	if err != nil {
		return budget.HoldView{}, err
	}
	var a api.Hold
	if err := c.get(ctx, aboutHold, path, nil, &a); err != nil {
		return budget.HoldView{}, err
	}
	if a.State == "" {
		return budget.HoldView{}, strange(aboutHold)
	}
	return budget.HoldView{ID: string(a.HoldID), State: budget.HoldState(a.State), Entries: entriesOf(a.Entries), ExpiresAt: a.ExpiresAt.Time()}, nil
}

// Capture settles a hold; see [budget.Budgets.Capture]. Without a list in the parameters the hold is charged in full: its
// entries are read first.
func (c *Caller) Capture(ctx context.Context, p budget.CaptureParams) (budget.Captured, error) {
	path, err := under("/v1/holds/", p.HoldID, "/capture", aboutHold)
	if err != nil {
		return budget.Captured{}, err
	}
	if p.Capture == nil {
		h, err := c.GetHold(ctx, p.HoldID)
		if err != nil {
			return budget.Captured{}, err
		}
		p.Capture = &h.Entries
	}
	var a api.CaptureAnswer
	if err := c.post(ctx, aboutHold, path, &api.CaptureRequest{Entries: capture(p.Capture), Token: givenToken(p.Token)}, &a); err != nil {
		return budget.Captured{}, err
	}
	if a.Captured == nil {
		return budget.Captured{}, strange(aboutHold)
	}
	return budget.Captured{Captured: entriesOf(a.Captured), Uncaptured: entriesOf(a.Uncaptured), Budgets: figures(a.Budgets)}, nil
}

// Extend moves the end of an open hold; see [budget.Budgets.Extend].
func (c *Caller) Extend(ctx context.Context, p budget.ExtendParams) (budget.Extended, error) {
	path, err := under("/v1/holds/", p.HoldID, "/extend", aboutHold)
	if err != nil {
		return budget.Extended{}, err
	}
	var a api.ExtendAnswer
	if err := c.post(ctx, aboutHold, path, &api.ExtendRequest{TTL: seconds(p.TTL)}, &a); err != nil {
		return budget.Extended{}, err
	}
	if a.ExpiresAt == (api.Time{}) {
		return budget.Extended{}, strange(aboutHold)
	}
	return budget.Extended{ExpiresAt: a.ExpiresAt.Time()}, nil
}

// budgetPath names a budget; its slashes are percent-encoded.
func budgetPath(name string) string { return "/v1/budgets/" + url.PathEscape(name) }

// kinds gives the names of windows on the wire.
var kinds = map[state.WindowKind]api.Window{
	state.WindowLifetime: {Kind: api.WindowLifetime},
	state.WindowFixed:    {Kind: api.WindowFixed},
	state.WindowDay:      {Kind: api.WindowCalendar, Period: api.PeriodDay},
	state.WindowWeek:     {Kind: api.WindowCalendar, Period: api.PeriodWeek},
	state.WindowMonth:    {Kind: api.WindowCalendar, Period: api.PeriodMonth},
}

func wireWindow(w state.Window) api.Window {
	out := kinds[w.Kind]
	out.Zone = w.Zone
	if w.Seconds > 0 {
		out.Seconds = api.Seconds(min(w.Seconds, api.MaxInteger))
	}
	return out
}

func budgetOf(a *api.Budget) (budget.Budget, error) {
	out := budget.Budget{Figures: figure(&a.Figures), Parent: string(a.Parent)}
	for kind, w := range kinds {
		if w.Kind == a.Window.Kind && w.Period == a.Window.Period {
			out.Window = state.Window{Kind: kind, Seconds: uint64(a.Window.Seconds), Zone: a.Window.Zone} //nolint:gosec // at least 0
			return out, nil
		}
	}
	return budget.Budget{}, strange(aboutBudget)
}
