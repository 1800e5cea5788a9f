package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/client"
)

func (a *app) budgetCommand() *cobra.Command {
	return group("budget", "Limits that nothing goes over: spend at once, or hold and capture",
		a.budgetSet(), a.budgetShow(), a.budgetList(), a.budgetSpend(), a.budgetRefund(), a.budgetHold(), a.budgetCapture(), a.budgetVoid(), a.budgetExtend(), a.budgetClose())
}

// budgetPath names a budget; its slashes are percent-encoded.
func budgetPath(text string) (string, error) {
	var n api.BudgetName
	if err := n.UnmarshalText([]byte(text)); err != nil {
		return "", badValue("NAME: %w", err)
	}
	return "/v1/budgets/" + segment(text), nil
}

func (a *app) budgetSet() *cobra.Command {
	var req api.PutBudgetRequest
	var unit, limit, window, zone, parent string
	c := a.asking("set NAME", "Define a budget, or change its limit", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		path, err := budgetPath(c.args[0])
		if err != nil {
			return err
		}
		if req.Unit, err = name("--unit", unit); err != nil {
			return err
		}
		if req.Limit, err = parseLimit(limit); err != nil {
			return badValue("--limit: %w", err)
		}
		if req.Window, err = parseWindow(window, zone); err != nil {
			return badValue("--window: %w", err)
		}
		req.Parent = api.BudgetName(parent)
		var ans api.Budget
		if err := at.Do(ctx, client.Request{Method: http.MethodPut, Path: path, Body: &req, Again: true}, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "%s", figuresLine(&ans.Figures))
	})
	f := c.Flags()
	f.StringVar(&unit, "unit", "", "what is counted: calls, tokens, usd_micros, …")
	f.StringVar(&limit, "limit", "", "an integer, or unlimited")
	f.StringVar(&window, "window", "lifetime", "when it starts anew: lifetime (never), a number of seconds, day, week or month")
	f.StringVar(&zone, "zone", "UTC", "time `zone` of a day, week or month")
	f.StringVar(&parent, "parent", "", "a budget of the same unit that counts along")
	return c
}

func parseLimit(text string) (api.Limit, error) {
	if text == "unlimited" {
		return api.Unlimited(), nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > api.MaxInteger {
		return api.Limit{}, errors.New("want an integer from 0 to 9007199254740991, or unlimited")
	}
	return api.LimitOf(n), nil
}

func parseWindow(text, zone string) (api.Window, error) {
	switch text {
	case "lifetime":
		return api.Window{Kind: api.WindowLifetime}, nil
	case api.PeriodDay, api.PeriodWeek, api.PeriodMonth:
		return api.Window{Kind: api.WindowCalendar, Period: text, Zone: zone}, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return api.Window{}, errors.New("want lifetime, a number of seconds, day, week or month")
	}
	return api.Window{Kind: api.WindowFixed, Seconds: api.Seconds(n)}, nil
}

func limitText(l api.Limit) string {
	if n, ok := l.Amount(); ok {
		return strconv.FormatUint(n, 10)
	}
	return "unlimited"
}

// figuresLine says where a budget stands.
func figuresLine(f *api.Figures) string {
	text := fmt.Sprintf("%s: %s of %s %s left (spent %d, held %d)", f.Name, limitText(f.Remaining), limitText(f.Limit), f.Unit, f.Spent, f.Held)
	if f.ResetsAt != (api.Time{}) {
		text += ", anew at " + f.ResetsAt.String()
	}
	return text
}

func figuresLines(list []api.Figures) string {
	lines := make([]string, len(list))
	for i := range list {
		lines[i] = figuresLine(&list[i])
	}
	return strings.Join(lines, "\n")
}

func (a *app) budgetShow() *cobra.Command {
	return a.asking("show NAME", "Show where a budget stands", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		path, err := budgetPath(c.args[0])
		if err != nil {
			return err
		}
		var ans api.Budget
		if err := at.get(ctx, path, nil, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "%s", figuresLine(&ans.Figures))
	})
}

func (a *app) budgetList() *cobra.Command {
	var list listFlags
	c := a.asking("list [PREFIX]", "List budgets by name", cobra.MaximumNArgs(1), func(ctx context.Context, c *call, at *reached) error {
		q := list.query()
		if len(c.args) > 0 {
			q.Set("prefix", c.args[0])
		}
		var ans api.List[api.Budget]
		if err := at.get(ctx, "/v1/budgets", q, &ans); err != nil {
			return err
		}
		if c.json {
			return c.printJSON(&ans)
		}
		c.more(ans.NextCursor)
		return c.table("NAME\tUNIT\tLIMIT\tSPENT\tHELD\tREMAINING\tANEW AT", func(w *tabwriter.Writer) {
			for i := range ans.Items {
				b := &ans.Items[i]
				anew := "never"
				if b.ResetsAt != (api.Time{}) {
					anew = b.ResetsAt.String()
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", b.Name, b.Unit, limitText(b.Limit), b.Spent, b.Held, limitText(b.Remaining), anew)
			}
		})
	})
	list.bind(c.Flags())
	return c
}

func (a *app) budgetSpend() *cobra.Command {
	return a.asking("spend REQUEST-ID BUDGET=AMOUNT…", "Spend at once from all the budgets named, or from none", cobra.MinimumNArgs(2),
		func(ctx context.Context, c *call, at *reached) (err error) {
			var req api.SpendRequest
			if req.RequestID, err = name("REQUEST-ID", c.args[0]); err != nil {
				return err
			}
			if req.Entries, err = parseEntries(c.args[1:]); err != nil {
				return err
			}
			var ans api.SpendAnswer
			if err := at.post(ctx, "/v1/spends", &req, &ans); err != nil {
				return err
			}
			return c.answer(&ans, "spent, id %s\n%s", ans.SpendID, figuresLines(ans.Budgets))
		})
}

func (a *app) budgetRefund() *cobra.Command {
	return a.asking("refund SPEND-ID", "Give back exactly what a spend took, once", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		id, err := digest("SPEND-ID", c.args[0])
		if err != nil {
			return err
		}
		var ans api.RefundAnswer
		if err := at.post(ctx, "/v1/spends/"+string(id)+"/refund", struct{}{}, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "refunded")
	})
}

func (a *app) budgetHold() *cobra.Command {
	var req api.HoldRequest
	c := a.asking("hold REQUEST-ID BUDGET=AMOUNT…", "Hold amounts in all the budgets named, or in none", cobra.MinimumNArgs(2),
		func(ctx context.Context, c *call, at *reached) (err error) {
			if req.TTL == 0 {
				return badValue("--ttl is missing: say how long it is held, 1s to 168h")
			}
			if req.RequestID, err = name("REQUEST-ID", c.args[0]); err != nil {
				return err
			}
			if req.Entries, err = parseEntries(c.args[1:]); err != nil {
				return err
			}
			var ans api.HoldAnswer
			if err := at.post(ctx, "/v1/holds", &req, &ans); err != nil {
				return err
			}
			return c.answer(&ans, "held until %s, id %s\n%s", ans.ExpiresAt, ans.HoldID, figuresLines(ans.Budgets))
		})
	secondsFlag(c.Flags(), &req.TTL, "ttl", "how long it is held, 1s to 168h")
	return c
}

func (c *call) holdPath(after string) (string, error) {
	id, err := digest("HOLD-ID", c.args[0])
	return "/v1/holds/" + string(id) + after, err
}

func (a *app) budgetCapture() *cobra.Command {
	var tokenFile string
	c := a.asking("capture HOLD-ID [BUDGET=AMOUNT…]", "Charge a hold and return the rest; without amounts all of it is returned", cobra.MinimumNArgs(1),
		func(ctx context.Context, c *call, at *reached) error {
			path, err := c.holdPath("/capture")
			if err != nil {
				return err
			}
			var req api.CaptureRequest
			if req.Entries, err = parseEntries(c.args[1:]); err != nil {
				return err
			}
			if tokenFile != "" {
				if req.Token, err = (&heldFlags{tokenFile}).token(c.app); err != nil {
					return err
				}
			}
			var ans api.CaptureAnswer
			if err := at.post(ctx, path, &req, &ans); err != nil {
				return err
			}
			return c.answer(&ans, "captured\n%s", figuresLines(ans.Budgets))
		})
	c.Flags().StringVar(&tokenFile, "token-file", "", "after a bare consume: `file` with the token that it answered, - for stdin")
	return c
}

func (a *app) budgetVoid() *cobra.Command {
	return a.asking("void HOLD-ID", "Give back all that an open hold holds", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		path, err := c.holdPath("/void")
		if err != nil {
			return err
		}
		var ans api.VoidAnswer
		if err := at.post(ctx, path, struct{}{}, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "void")
	})
}

func (a *app) budgetExtend() *cobra.Command {
	var req api.ExtendRequest
	c := a.asking("extend HOLD-ID", "Prolong an open hold, from now on", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		path, err := c.holdPath("/extend")
		if err != nil {
			return err
		}
		if req.TTL == 0 {
			return badValue("--ttl is missing: say how long it is held from now on, 1s to 168h")
		}
		var ans api.ExtendAnswer
		if err := at.post(ctx, path, &req, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "held until %s", ans.ExpiresAt)
	})
	secondsFlag(c.Flags(), &req.TTL, "ttl", "how long from now on, 1s to 168h")
	return c
}

func (a *app) budgetClose() *cobra.Command {
	return a.asking("close PREFIX", "Remove a budget and all below it; what they hold returns to their ancestors", cobra.ExactArgs(1),
		func(ctx context.Context, c *call, at *reached) error {
			var req api.CloseRequest
			if err := req.Prefix.UnmarshalText([]byte(c.args[0])); err != nil {
				return badValue("PREFIX: %w", err)
			}
			var ans api.CloseAnswer
			if err := at.post(ctx, "/v1/budgets/close", &req, &ans); err != nil {
				return err
			}
			return c.answer(&ans, "removed %d budgets", ans.BudgetsRemoved)
		})
}
