package budget

import (
	"context"
	"fmt"
	"strings"

	"github.com/counterfoil/counterfoil/state"
)

// Window says after which time a budget's amounts begin at 0 again.
type Window = state.Window

// The sorts of [Window]. A fixed one is aligned to the Unix epoch, a week begins on Monday, and days begin at the first
// instant of their date in the window's zone.
const (
	Lifetime = state.WindowLifetime
	Fixed    = state.WindowFixed
	Day      = state.WindowDay
	Week     = state.WindowWeek
	Month    = state.WindowMonth
)

// Definition is what a budget is. Unit, Window and Parent are fixed once it is defined; its limit may change.
type Definition struct {
	Name      string // 1 to 8 path segments of 1 to 64 characters A–Z a–z 0–9 . _ ~ -
	Unit      string // 1 to 64 bytes
	Limit     uint64 // 0 to MaxAmount; 0 refuses every amount above 0
	Unlimited bool   // nothing is refused; Limit is 0
	Window    Window
	Parent    string // a budget of the same unit, "" for none; a name implies no parent
}

// Budget is where a budget stands and what it is.
type Budget struct {
	Figures
	Window Window
	Parent string // "" for none
}

// DefineParams defines a budget, or changes its limit.
type DefineParams struct {
	Scope string
	Definition
}

// Defined is a budget that is defined as asked.
type Defined struct {
	Budget
	Created bool // it was not there before
}

// Define makes a budget, or changes the limit of the one that is there. Its refusals are [ErrDiffers], also
// if its parent was closed since, and [ErrBudgetUnknown] of a parent that nobody defined. A lower limit takes back nothing: it only refuses what is asked from
// then on.
func (b *Budgets) Define(ctx context.Context, p DefineParams) (Defined, error) {
	put := state.PutBudget{
		Key: budgetKey(p.Scope, p.Name), Unit: p.Unit, Limit: p.Limit, Unlimited: p.Unlimited, Window: p.Window, Parent: p.Parent,
	}
	out, err := b.store.Do(ctx, &state.Batch{Scope: p.Scope, Ops: []state.Op{put}, Read: []state.Key{put.Key}})
	if err != nil {
		return Defined{}, err
	}
	if r, ok := out.Refused(0); ok {
		switch {
		case r.Reason == state.Absent:
			return Defined{}, &UnknownError{Budgets: []string{p.Parent}}
		case r.Reason == state.Differs && r.Figures != nil && r.Figures.Name != p.Name:
			return Defined{}, fmt.Errorf("%w: its parent counts %s", ErrDiffers, r.Figures.Unit)
		case r.Reason == state.Differs:
			return Defined{}, ErrDiffers
		case r.Reason == state.BudgetGone:
			return Defined{}, fmt.Errorf("%w: its parent was closed since, and what it counts in cannot be had back", ErrDiffers)
		}
	}
	if !out.Applied {
		if err := refusedWhole(&out, state.Recovering, state.Stale, state.Full, state.OwnerFull); err != nil {
			return Defined{}, err
		}
		return Defined{}, unexpected(&out)
	}
	b.lineage.forget(put.Key)
	return Defined{Budget{*out.Figures[0], p.Window, p.Parent}, out.Records[0] == nil}, nil
}

// GetParams names a budget.
type GetParams struct {
	Scope string
	Name  string
}

// Get tells where a budget stands, and waits until all that it tells is durable. Its refusal is [ErrBudgetUnknown].
func (b *Budgets) Get(ctx context.Context, p GetParams) (Budget, error) {
	if err := state.CheckBudgetName(p.Name); err != nil {
		return Budget{}, invalidf("%v", err)
	}
	key := budgetKey(p.Scope, p.Name)
	out, err := b.store.Do(ctx, &state.Batch{Scope: p.Scope, Read: []state.Key{key}})
	switch {
	case err != nil:
		return Budget{}, err
	case len(out.Records) != 1:
		return Budget{}, unexpected(&out)
	case out.Records[0] == nil:
		return Budget{}, &UnknownError{Budgets: []string{p.Name}}
	}
	return standing(key, out.Records[0], out.Now)
}

func standing(key state.Key, rec *state.Record, now int64) (Budget, error) {
	is, end, err := rec.Budget().At(now)
	if err != nil {
		return Budget{}, &state.RecordError{Key: key, Err: state.ErrCorrupt}
	}
	return Budget{is.Figures(key.ID, end), is.Window, is.Parent}, nil
}

// ListParams asks for budgets by name.
type ListParams struct {
	Scope string
	// Prefix is one or more whole path segments: that budget and all below it. "" for all.
	Prefix string
	Cursor string // "" for the start, else Page.Next
	Limit  int    // 1 to 500; 0: 50
}

// Page is a part of a list.
type Page struct {
	Items []Budget
	Next  string // "" at the end
}

// List tells where budgets stand, by name. It is a view of the moment for people: what it shows may still be under way.
func (b *Budgets) List(ctx context.Context, p ListParams) (Page, error) {
	if p.Limit == 0 {
		p.Limit = 50
	}
	if p.Limit < 1 || p.Limit > 500 {
		return Page{}, invalidf("the limit is 1 to 500")
	}
	prefix, err := segments(p.Prefix, true)
	if err != nil {
		return Page{}, err
	}
	// A scope that does not exist is an error, not an empty list.
	out, err := b.store.Do(ctx, &state.Batch{Scope: p.Scope, Read: []state.Key{state.ScopeKey(p.Scope)}})
	if err != nil {
		return Page{}, err
	}
	found, next, err := b.under(ctx, p.Scope, prefix, p.Cursor, p.Limit)
	if err != nil {
		return Page{}, err
	}
	page := Page{Next: next, Items: make([]Budget, 0, len(found))}
	for _, e := range found {
		if e.Err != nil {
			return Page{}, e.Err
		}
		item, err := standing(e.Key, e.Record, out.Now)
		if err != nil {
			return Page{}, err
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// segments checks a prefix of whole path segments and takes a final slash off.
func segments(prefix string, all bool) (string, error) {
	if prefix == "" && all {
		return "", nil
	}
	prefix = strings.TrimSuffix(prefix, "/")
	if err := state.CheckBudgetName(prefix); err != nil {
		return "", invalidf("prefix: %v", err)
	}
	return prefix, nil
}

// Within reports whether a budget is the one that prefix names, or below it: whole path segments count, so that acme/s10
// is not within acme/s1. Everything is within "".
func Within(prefix, name string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && (prefix == "" || rest == "" || rest[0] == '/')
}
