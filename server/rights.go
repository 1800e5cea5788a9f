package server

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
)

// mayUse refuses budgets that are not the principal's.
func mayUse(who *access.Principal, names ...api.BudgetName) error {
	for _, name := range names {
		if !who.MayUse(string(name)) {
			return api.NewProblem(api.Forbidden, "the token is not for this budget")
		}
	}
	return nil
}

// entriesOf refuses entries of budgets that are not the principal's.
func entriesOf(who *access.Principal, given []api.Entry) ([]budget.Entry, error) {
	out := make([]budget.Entry, len(given))
	for i, e := range given {
		if err := mayUse(who, e.Budget); err != nil {
			return nil, err
		}
		out[i] = budget.Entry{Budget: string(e.Budget), Amount: e.Amount}
	}
	return out, nil
}

// mayUseHold refuses a hold of the principal's owner, made with another token, in budgets that are not the principal's. One
// that does not exist is refused by what is asked of it.
func (s *Server) mayUseHold(ctx context.Context, who *access.Principal, id api.Digest) error {
	if len(who.Budgets) == 0 {
		return nil
	}
	held, err := s.core.Budgets.GetHold(ctx, budget.GetHoldParams{Scope: who.Scope, Owner: who.Owner, HoldID: string(id)})
	if errors.Is(err, budget.ErrHoldUnknown) {
		return nil
	}
	for _, e := range held.Entries {
		if !who.MayUse(e.Budget) {
			return api.NewProblem(api.Forbidden, "the token is not for a budget of this hold")
		}
	}
	return err
}

// charged is what a begin or spend of the principal takes: the given entries, and what its token always takes.
func charged(who *access.Principal, given []api.Entry) ([]budget.Entry, error) {
	entries, err := entriesOf(who, given)
	if err != nil || len(who.Always) == 0 {
		return entries, err
	}
	always := make([]budget.Entry, len(who.Always))
	for i, e := range who.Always {
		always[i] = budget.Entry{Budget: e.Budget, Amount: e.Amount}
	}
	return budget.Sum(entries, always)
}

// inEntries says which of the entries names a budget that nobody defined. Any other error stays as it is.
func inEntries(err error, pointer string, entries []api.Entry) error {
	var unknown *budget.UnknownError
	if !errors.As(err, &unknown) {
		return err
	}
	p := api.NewProblem(api.BudgetUnknown, budgetUnknown)
	for i, e := range entries {
		if slices.Contains(unknown.Budgets, string(e.Budget)) {
			p.Pointer = pointer + "/" + strconv.Itoa(i) + "/budget"
			break
		}
	}
	return p
}

const budgetUnknown = "nobody defined this budget, or it was closed"

// figuresOf shows the budgets that the principal may see. Ancestors beyond are left out: they count along, but their
// figures are others'.
func figuresOf(who *access.Principal, all []budget.Figures) []api.Figures {
	out := make([]api.Figures, 0, len(all))
	for i := range all {
		if who.MayUse(all[i].Name) {
			out = append(out, figures(&all[i]))
		}
	}
	return out
}

func figures(f *budget.Figures) api.Figures {
	return api.Figures{
		Name: api.BudgetName(f.Name), Unit: f.Unit, Limit: limitOf(f, f.Limit), Spent: f.Spent, Held: f.Held, Remaining: limitOf(f, f.Remaining),
		WindowStartedAt: api.TimeOf(f.WindowAt), ResetsAt: api.TimeOf(f.ResetsAt),
	}
}

func limitOf(f *budget.Figures, amount uint64) api.Limit {
	if f.Unlimited {
		return api.Unlimited()
	}
	return api.LimitOf(amount)
}

// smallest is the least that remains in any budget that the principal may see, nil if none has a limit.
func smallest(who *access.Principal, all []budget.Figures) *uint64 {
	var seen []budget.Figures
	for i := range all {
		if who.MayUse(all[i].Name) {
			seen = append(seen, all[i])
		}
	}
	if least, limited := budget.Smallest(seen); limited {
		return &least
	}
	return nil
}

// budgetExceeded is the problem of amounts that do not fit: 402 if waiting cannot help, else 429 with the time to wait. Of
// budgets that the principal may not see it shows the name alone.
func budgetExceeded(who *access.Principal, e *budget.ExceededError, now time.Time) *api.Problem {
	p := api.NewProblem(api.BudgetExceeded, "refused lists every budget that has less left than is asked for; nothing was taken")
	for i := range e.Refused {
		f := &e.Refused[i]
		row := api.RefusedBudget{Budget: api.BudgetName(f.Name)}
		if who == nil || who.MayUse(f.Name) {
			row.RefusedFigures = &api.RefusedFigures{
				Unit: f.Unit, Limit: limitOf(f, f.Limit), Spent: f.Spent, Held: f.Held, Remaining: limitOf(f, f.Remaining),
				Amount: f.Amount, ResetsAt: api.TimeOf(f.ResetsAt),
			}
			p.Quotas = append(p.Quotas, quota(f, now))
		}
		p.Refused = append(p.Refused, row)
	}
	at, helps := e.RetryAt()
	if !helps {
		p.Quotas = nil
		return p
	}
	p.Status, p.Retryable, p.RetryAfter = api.StatusRetryBudget, true, max(at.Sub(now), time.Second)
	return p
}

func quota(f *budget.Figures, now time.Time) api.Quota {
	return api.Quota{
		Name: f.Name, Limit: f.Limit, Remaining: f.Remaining,
		Window: time.Duration(f.ResetsAt-f.WindowAt) * time.Millisecond,
		Reset:  max(time.UnixMilli(f.ResetsAt).Sub(now), 0),
	}
}
