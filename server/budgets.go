package server

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
)

// budgetRoutes are about what may be used, and what is.
func (s *Server) budgetRoutes() []Route {
	takes := with(begins, api.BudgetUnknown, api.BudgetExceeded, api.RequestIDReused)
	return []Route{
		handle(Route{
			Method: http.MethodPut, Path: "/v1/budgets/{name}", Doc: "Defines a budget (201), or changes the limit of the one that is there (200).",
			Statuses: []int{http.StatusCreated, http.StatusOK}, Codes: with(begins, api.BudgetDiffers, api.BudgetUnknown),
		}, s.putBudget),
		handle(Route{
			Method: http.MethodGet, Path: "/v1/budgets/{name}", Doc: "Shows where a budget stands.", Codes: []api.Code{api.BudgetUnknown},
		}, s.readBudget),
		handle(Route{Method: http.MethodGet, Path: "/v1/budgets", Doc: "Lists where budgets stand, by name."}, s.listBudgets),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/budgets/close", Doc: "Ends a session: removes a budget and all below it; what is open returns to the ancestors.",
			Codes: with(writes, api.Recovering),
		}, s.closeBudgets),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/spends", Doc: "Spends from all budgets that are named, ancestors too, or from none.",
			Statuses: []int{http.StatusCreated, http.StatusOK}, Codes: takes,
		}, s.spend),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/spends/{id}/refund", Doc: "Gives back exactly what a spend took, once.", Codes: writes,
		}, s.refund),
	}
}

func (s *Server) putBudget(ctx context.Context, who *access.Principal, req *api.PutBudgetRequest) (int, *api.Budget, error) {
	names := []api.BudgetName{req.Name}
	if req.Parent != "" {
		names = append(names, req.Parent)
	}
	if err := mayUse(who, names...); err != nil {
		return 0, nil, err
	}
	window, err := windowOf(&req.Window)
	if err != nil {
		return 0, nil, err
	}
	limit, _ := req.Limit.Amount()
	done, err := s.core.Budgets.Define(ctx, budget.DefineParams{Scope: who.Scope, Definition: budget.Definition{
		Name: string(req.Name), Unit: string(req.Unit), Limit: limit, Unlimited: req.Limit.IsUnlimited(), Window: window, Parent: string(req.Parent),
	}})
	if err != nil {
		return 0, nil, err
	}
	status := http.StatusOK
	if done.Created {
		status = http.StatusCreated
	}
	return status, budgetView(&done.Budget), nil
}

var periods = map[string]budget.Window{
	api.PeriodDay: {Kind: budget.Day}, api.PeriodWeek: {Kind: budget.Week}, api.PeriodMonth: {Kind: budget.Month},
}

func windowOf(w *api.Window) (budget.Window, error) {
	var out budget.Window
	switch w.Kind {
	case api.WindowLifetime:
		out.Kind = budget.Lifetime
	case api.WindowFixed:
		out.Kind, out.Seconds = budget.Fixed, uint64(w.Seconds) //nolint:gosec // at least 1
	case api.WindowCalendar:
		out = periods[w.Period]
		out.Zone = w.Zone
	}
	if err := out.Validate(); err != nil {
		p := api.NewProblem(api.Invalid, "a fixed window has 1 second to ten years, a calendar window a name of the IANA time zone database")
		p.Pointer = "/window"
		return budget.Window{}, p
	}
	return out, nil
}

func windowView(w budget.Window) api.Window {
	switch w.Kind {
	case budget.Fixed:
		return api.Window{Kind: api.WindowFixed, Seconds: api.Seconds(w.Seconds)} //nolint:gosec // at most ten years
	case budget.Day:
		return api.Window{Kind: api.WindowCalendar, Period: api.PeriodDay, Zone: w.Zone}
	case budget.Week:
		return api.Window{Kind: api.WindowCalendar, Period: api.PeriodWeek, Zone: w.Zone}
	case budget.Month:
		return api.Window{Kind: api.WindowCalendar, Period: api.PeriodMonth, Zone: w.Zone}
	}
	return api.Window{Kind: api.WindowLifetime}
}

func budgetView(b *budget.Budget) *api.Budget {
	return &api.Budget{Figures: figures(&b.Figures), Window: windowView(b.Window), Parent: api.BudgetName(b.Parent)}
}

func (s *Server) readBudget(ctx context.Context, who *access.Principal, req *api.BudgetRequest) (int, *api.Budget, error) {
	if err := mayUse(who, req.Name); err != nil {
		return 0, nil, err
	}
	b, err := s.core.Budgets.Get(ctx, budget.GetParams{Scope: who.Scope, Name: string(req.Name)})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, budgetView(&b), nil
}

func (s *Server) listBudgets(ctx context.Context, who *access.Principal, req *api.BudgetsRequest) (int, *api.List[api.Budget], error) {
	if req.Prefix != "" {
		if err := mayUse(who, api.BudgetName(req.Prefix)); err != nil {
			return 0, nil, err
		}
	}
	at, after, err := readCursor(req.Cursor)
	if err != nil {
		return 0, nil, err
	}
	prefixes := listed(who, string(req.Prefix))
	if at >= len(prefixes) {
		return 0, nil, errCursor
	}
	out := &api.List[api.Budget]{Items: make([]api.Budget, 0, req.Limit)}
	for ; at < len(prefixes) && len(out.Items) < req.Limit; at++ {
		page, err := s.core.Budgets.List(ctx, budget.ListParams{Scope: who.Scope, Prefix: prefixes[at], Cursor: after, Limit: req.Limit - len(out.Items)})
		if err != nil {
			return 0, nil, err
		}
		for i := range page.Items {
			out.Items = append(out.Items, *budgetView(&page.Items[i]))
		}
		if after = page.Next; after != "" {
			break
		}
	}
	if at < len(prefixes) {
		out.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(at) + ":" + after))
	}
	return http.StatusOK, out, nil
}

// listed gives the prefixes under which a list looks: all that the principal may use, unless it asks for one. Budgets
// beyond them are not even passed over: a cursor would name them.
func listed(who *access.Principal, asked string) []string {
	if asked != "" || len(who.Budgets) == 0 {
		return []string{asked}
	}
	own := slices.Sorted(slices.Values(who.Budgets))
	return slices.DeleteFunc(slices.Clone(own), func(p string) bool {
		return slices.ContainsFunc(own, func(other string) bool { return strings.HasPrefix(p, other+"/") })
	})
}

// readCursor gives the number of the prefix at which a list goes on, and after which budget.
func readCursor(cursor string) (at int, after string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return 0, "", errCursor
	}
	number, after, found := strings.Cut(string(text), ":")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || !found {
		return 0, "", errCursor
	}
	return int(n), after, nil
}

var errCursor = api.NewProblem(api.Invalid, "the cursor is not one that a list gave")

func (s *Server) closeBudgets(ctx context.Context, who *access.Principal, req *api.CloseRequest) (int, *api.CloseAnswer, error) {
	if err := mayUse(who, api.BudgetName(req.Prefix)); err != nil {
		return 0, nil, err
	}
	out := &api.CloseAnswer{}
	for more := true; more; {
		done, err := s.core.Budgets.Close(ctx, budget.CloseParams{Scope: who.Scope, Prefix: string(req.Prefix)})
		out.BudgetsRemoved += done.Removed
		if err != nil {
			return 0, nil, err
		}
		more = done.More
	}
	return http.StatusOK, out, nil
}

func (s *Server) spend(ctx context.Context, who *access.Principal, req *api.SpendRequest) (int, *api.SpendAnswer, error) {
	entries, err := charged(who, req.Entries)
	if err != nil {
		return 0, nil, err
	}
	done, err := s.core.Budgets.Spend(ctx, budget.SpendParams{Scope: who.Scope, Owner: who.Owner, RequestID: string(req.RequestID), Entries: entries})
	if err != nil {
		return 0, nil, inEntries(err, "/entries", req.Entries)
	}
	return created(done.Repeated), &api.SpendAnswer{
		SpendID: api.Digest(done.ID), Remaining: smallest(who, done.Budgets), Budgets: figuresOf(who, done.Budgets), Repeated: done.Repeated,
	}, nil
}

// created is the status of something new, or of the same request again.
func created(repeated bool) int {
	if repeated {
		return http.StatusOK
	}
	return http.StatusCreated
}

func (s *Server) refund(ctx context.Context, who *access.Principal, req *api.RefundRequest) (int, *api.RefundAnswer, error) {
	_, err := s.core.Budgets.Refund(ctx, budget.RefundParams{Scope: who.Scope, Owner: who.Owner, SpendID: string(req.ID)})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.RefundAnswer{Refunded: true}, nil
}
