package budget

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/counterfoil/counterfoil/state"
)

// line is what a budget's definition says about where its amounts count besides: fixed for one generation.
type line struct {
	generation state.Version
	parent     string // "" for none
	parentGen  state.Version
}

// lineage caches lines. What it says is asserted by every batch that rests on it, so that a stale one is found out.
type lineage struct {
	mu    sync.Mutex
	lines map[state.Key]line
	limit int
}

// fill looks up budgets in what is remembered, and gives those that it lacks or has of another generation.
func (l *lineage) fill(scope string, level []share) (missing []*share) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range level {
		s := &level[i]
		if is, ok := l.lines[budgetKey(scope, s.name)]; !ok || !s.becomes(is) {
			missing = append(missing, s)
		}
	}
	return missing
}

func (l *lineage) put(key state.Key, is line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil || len(l.lines) >= l.limit {
		l.lines = make(map[state.Key]line)
	}
	l.lines[key] = is
}

func (l *lineage) forget(keys ...state.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		delete(l.lines, key)
	}
}

func lineOf(b *state.Budget) line {
	return line{generation: b.Generation, parent: b.Parent, parentGen: b.ParentGen}
}

// share is what a call takes from one budget, its entries in it and in all budgets below it added up.
type share struct {
	name string
	// Of a budget that was not looked up yet, only the generation is set, if it must be a certain one.
	line
	above  int // how many ancestors it has
	amount uint64
}

// becomes notes what was found of a budget, unless that is of another generation than it must be.
func (s *share) becomes(is line) bool {
	if !s.generation.IsZero() && s.generation != is.generation {
		return false
	}
	s.line = is
	return true
}

// plan is a call's entries spread over all budgets that they count in, deepest first: where one of them was closed, it
// answers before those above it.
type plan []share

// find gives the place of a budget, −1 if it is not there.
func (p plan) find(name string) int {
	return slices.IndexFunc(p, func(s share) bool { return s.name == name })
}

// chain gives the places of all budgets that an amount counts in which is taken from one, that one first.
func (p plan) chain(name string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := p.find(name); i >= 0 && yield(i); i = p.find(p[i].parent) {
		}
	}
}

// spread finds all ancestors of entries and adds up what counts in each. It fails with an [*UnknownError] if a budget is
// not there.
func (b *Budgets) spread(ctx context.Context, scope string, entries []Entry) (plan, error) {
	p, err := b.lines(ctx, scope, entries)
	if errors.Is(err, ErrBudgetUnknown) {
		// What is remembered may be out of date: no budget is unknown but by what is stored.
		b.forget(scope, p)
		p, err = b.lines(ctx, scope, entries)
	}
	if err != nil {
		return nil, err
	}
	for i := range p {
		for range p.chain(p[i].parent) {
			p[i].above++
		}
	}
	slices.SortFunc(p, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.above, a.above), cmp.Compare(a.name, b.name))
	})
	for _, e := range entries {
		for i := range p.chain(e.Budget) {
			if e.Amount > MaxAmount-p[i].amount {
				return nil, invalidf("the amounts that count in %s add up to more than 2^53−1", p[i].name)
			}
			p[i].amount += e.Amount
		}
	}
	if len(p) > MaxBudgets {
		return nil, invalidf("the entries count in %d budgets with their ancestors, the limit is %d", len(p), MaxBudgets)
	}
	return p, nil
}

// forget drops what is remembered of the budgets of a plan.
func (b *Budgets) forget(scope string, p plan) {
	for _, s := range p {
		b.lineage.forget(budgetKey(scope, s.name))
	}
}

// lines looks up the budgets that entries name and all above them, a level at a time. With an [*UnknownError] it gives all
// that it looked for.
func (b *Budgets) lines(ctx context.Context, scope string, entries []Entry) (plan, error) {
	p := make(plan, len(entries), max(4, len(entries)))
	for i, e := range entries {
		p[i].name = e.Budget
	}
	var unknown []string
	for from, depth := 0, 0; from < len(p) && depth < state.MaxBudgetDepth; depth++ {
		level := p[from:]
		from = len(p)
		missing, err := b.level(ctx, scope, level)
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, missing...)
		for _, s := range level {
			if s.parent == "" {
				continue
			}
			if i := p.find(s.parent); i < 0 {
				p = append(p, share{name: s.parent, line: line{generation: s.parentGen}})
			} else if p[i].generation != s.parentGen {
				unknown = append(unknown, s.parent)
			}
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return p, &UnknownError{Budgets: slices.Compact(unknown)}
	}
	return p, nil
}

// level looks up budgets, from memory or by one read, and names those that are not there. A remembered budget that is not
// of the generation that it must be is read again.
func (b *Budgets) level(ctx context.Context, scope string, level []share) (unknown []string, err error) {
	missing := b.lineage.fill(scope, level)
	if len(missing) == 0 {
		return nil, nil
	}
	keys := make([]state.Key, len(missing))
	for i, s := range missing {
		keys[i] = budgetKey(scope, s.name)
	}
	recs, err := b.store.Read(ctx, keys...)
	if err != nil {
		return nil, err
	}
	for i, rec := range recs {
		found := false
		if rec != nil {
			is := lineOf(rec.Budget())
			b.lineage.put(keys[i], is)
			found = missing[i].becomes(is)
		}
		if !found {
			unknown = append(unknown, missing[i].name)
		}
	}
	return unknown, nil
}
