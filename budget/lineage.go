package budget

import (
	"cmp"
	"context"
	"errors"
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

func (l *lineage) get(key state.Key) (line, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.lines[key]
	return found, ok
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
	name       string
	generation state.Version
	above      int // how many ancestors it has
	amount     uint64
}

// plan is a call's entries spread over all budgets that they count in, deepest first.
type plan struct {
	shares []share
	// of says, for each entry, which shares it counts in.
	of [][]int
}

// spread finds all ancestors of entries and adds up what counts in each. It fails with an [*UnknownError] if a budget is
// not there.
func (b *Budgets) spread(ctx context.Context, scope string, entries []Entry) (plan, error) {
	lines, err := b.lines(ctx, scope, entries)
	if errors.Is(err, ErrBudgetUnknown) {
		// What is remembered may be out of date: no budget is unknown but by what is stored.
		for name := range lines {
			b.lineage.forget(budgetKey(scope, name))
		}
		lines, err = b.lines(ctx, scope, entries)
	}
	if err != nil {
		return plan{}, err
	}
	var p plan
	for _, e := range entries {
		var chain []int
		for name := e.Budget; name != ""; name = lines[name].parent {
			i := slices.IndexFunc(p.shares, func(s share) bool { return s.name == name })
			if i < 0 {
				i = len(p.shares)
				p.shares = append(p.shares, share{name: name, generation: lines[name].generation, above: above(lines, name)})
			}
			if e.Amount > MaxAmount-p.shares[i].amount {
				return plan{}, invalidf("the amounts that count in %s add up to more than 2^53−1", name)
			}
			p.shares[i].amount += e.Amount
			chain = append(chain, i)
		}
		p.of = append(p.of, chain)
	}
	if len(p.shares) > MaxBudgets {
		return plan{}, invalidf("the entries count in %d budgets with their ancestors, the limit is %d", len(p.shares), MaxBudgets)
	}
	p.sort()
	return p, nil
}

// sort puts the deepest budgets first: where one of them was closed, it answers before those above it.
func (p *plan) sort() {
	order := make([]int, len(p.shares))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.shares[b].above, p.shares[a].above), cmp.Compare(p.shares[a].name, p.shares[b].name))
	})
	sorted, place := make([]share, len(order)), make([]int, len(order))
	for to, from := range order {
		sorted[to], place[from] = p.shares[from], to
	}
	p.shares = sorted
	for _, chain := range p.of {
		for i := range chain {
			chain[i] = place[chain[i]]
		}
	}
}

func above(lines map[string]line, name string) int {
	n := 0
	for name = lines[name].parent; name != ""; name = lines[name].parent {
		n++
	}
	return n
}

// lines looks up the budgets that entries name and all above them, a level at a time. With an [*UnknownError] it gives those
// that were found.
func (b *Budgets) lines(ctx context.Context, scope string, entries []Entry) (map[string]line, error) {
	lines := make(map[string]line, len(entries)+4)
	level := make(map[string]state.Version, len(entries))
	for _, e := range entries {
		level[e.Budget] = state.Version{}
	}
	var unknown []string
	for range state.MaxBudgetDepth {
		found, err := b.level(ctx, scope, level)
		if err != nil {
			return nil, err
		}
		next := map[string]state.Version{}
		for name, want := range level {
			is, ok := found[name]
			if !ok || !want.IsZero() && is.generation != want {
				unknown = append(unknown, name)
				continue
			}
			if lines[name] = is; is.parent != "" {
				next[is.parent] = is.parentGen
			}
		}
		if level = next; len(level) == 0 {
			break
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return lines, &UnknownError{Budgets: slices.Compact(unknown)}
	}
	return lines, nil
}

// level looks up budgets, from memory or by one read. A remembered budget that is not of the generation asked for is read
// again.
func (b *Budgets) level(ctx context.Context, scope string, names map[string]state.Version) (map[string]line, error) {
	found := make(map[string]line, len(names))
	var missing []state.Key
	for name, want := range names {
		key := budgetKey(scope, name)
		if is, ok := b.lineage.get(key); ok && (want.IsZero() || is.generation == want) {
			found[name] = is
			continue
		}
		missing = append(missing, key)
	}
	if len(missing) == 0 {
		return found, nil
	}
	recs, err := b.store.Read(ctx, missing...)
	if err != nil {
		return nil, err
	}
	for i, rec := range recs {
		if rec == nil {
			continue
		}
		is := lineOf(rec.Budget())
		found[missing[i].ID] = is
		b.lineage.put(missing[i], is)
	}
	return found, nil
}
