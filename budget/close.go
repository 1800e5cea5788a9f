package budget

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// closeAtOnce is how many removals are under way at a time, closePage how many budgets one call looks at.
const (
	closeAtOnce = 64
	closePage   = 4096
)

// CloseParams ends a session.
type CloseParams struct {
	Scope string
	// Prefix is one or more whole path segments, with or without a final slash: that budget and all below it.
	Prefix string
	// Limit is how many budgets one call removes at most: 1 to 4096, 0: 4096.
	Limit int
}

// Closed says what a close has removed.
type Closed struct {
	Removed int
	// More says that there are others: call again with the same prefix.
	More bool
}

// Close removes the budgets of a session, the deepest of each call first. Open amounts return to the ancestors, and the open holds are over;
// what is fenced stays in the ancestors until it is settled. It may be called again at any time, and goes on where an
// earlier call, that failed or was cut off, has ended: after an error, what was removed stays removed.
func (b *Budgets) Close(ctx context.Context, p CloseParams) (Closed, error) {
	if p.Limit == 0 {
		p.Limit = closePage
	}
	if p.Limit < 1 || p.Limit > closePage {
		return Closed{}, invalidf("the limit is 1 to %d", closePage)
	}
	prefix, err := segments(p.Prefix, false)
	if err != nil {
		return Closed{}, err
	}
	found, next, err := b.under(ctx, p.Scope, prefix, "", p.Limit)
	if err != nil {
		return Closed{}, err
	}
	levels, damaged := byDepth(found)
	done := Closed{More: next != ""}
	for _, level := range levels {
		n, err := b.removeAll(ctx, level)
		done.Removed += n
		if err != nil {
			return done, err
		}
	}
	return done, damaged
}

// under lists budgets within a prefix by name. It looks at the one that the prefix names and then at those below it, so
// that those beside it are never met.
func (b *Budgets) under(ctx context.Context, scope, prefix, cursor string, limit int) ([]store.Entry, string, error) {
	if prefix == "" {
		return b.store.Scan(ctx, scope, state.KindBudget, "", cursor, limit)
	}
	// What is below begins with the prefix and a slash; a cursor of our own says that the first of it is next.
	below := prefix + "/"
	var found []store.Entry
	if cursor == "" {
		page, _, err := b.store.Scan(ctx, scope, state.KindBudget, prefix, "", 1)
		if err != nil {
			return nil, "", err
		}
		if len(page) == 1 && page[0].Key.ID == prefix {
			found = page
		}
		if len(found) == limit {
			return found, below, nil
		}
	}
	if cursor == below {
		cursor = ""
	}
	page, next, err := b.store.Scan(ctx, scope, state.KindBudget, below, cursor, limit-len(found))
	return append(found, page...), next, err
}

// byDepth groups budgets by how deep they lie below the others that were found, deepest first. It reports the first that
// cannot be read.
func byDepth(found []store.Entry) (levels [][]store.Entry, damaged error) {
	parents := make(map[string]string, len(found))
	for _, e := range found {
		if e.Err != nil {
			damaged = cmp.Or(damaged, e.Err)
			continue
		}
		parents[e.Key.ID] = e.Record.Budget().Parent
	}
	groups := map[int][]store.Entry{}
	for _, e := range found {
		if e.Err != nil {
			continue
		}
		depth := 0
		for name := parents[e.Key.ID]; name != "" && depth < state.MaxBudgetDepth; name = parents[name] {
			depth++
		}
		groups[depth] = append(groups[depth], e)
	}
	depths := make([]int, 0, len(groups))
	for d := range groups {
		depths = append(depths, d)
	}
	slices.Sort(depths)
	for _, d := range slices.Backward(depths) {
		levels = append(levels, groups[d])
	}
	return levels, damaged
}

// removeAll removes budgets none of which is above another, many at a time.
func (b *Budgets) removeAll(ctx context.Context, level []store.Entry) (removed int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	room := make(chan struct{}, closeAtOnce)
	for _, e := range level {
		room <- struct{}{}
		wg.Go(func() {
			ok, failed := b.remove(ctx, e.Key, e.Record)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				removed++
			}
			err = cmp.Or(err, failed)
			<-room
		})
	}
	wg.Wait()
	return removed, err
}

// remove removes one budget, if it is still the one that was found.
func (b *Budgets) remove(ctx context.Context, key state.Key, rec *state.Record) (bool, error) {
	ancestors, err := b.ancestors(ctx, key, rec.Budget())
	if err != nil {
		return false, err
	}
	out, err := b.store.Do(ctx, &state.Batch{Scope: key.Scope, Ops: []state.Op{
		state.Remove{Key: key, Generation: rec.Budget().Generation, Ancestors: ancestors},
	}})
	if err != nil {
		return false, err
	}
	b.lineage.forget(key)
	if !out.Applied {
		if err := refusedWhole(&out, state.Recovering, state.Stale); err != nil {
			return false, err
		}
		return false, unexpected(&out)
	}
	return !out.Skipped[0], nil
}

// ancestors lists the budgets above one, from its parent upwards, as far as they are still those that it was defined
// under.
func (b *Budgets) ancestors(ctx context.Context, key state.Key, of *state.Budget) ([]state.Ancestor, error) {
	var list []state.Ancestor
	next := line{parent: of.Parent, parentGen: of.ParentGen}
	for next.parent != "" && len(list) < state.MaxBudgetDepth {
		above := []share{{name: next.parent, line: line{generation: next.parentGen}}}
		unknown, err := b.level(ctx, key.Scope, above)
		if err != nil {
			return nil, err
		}
		if unknown != nil {
			break
		}
		list = append(list, state.Ancestor{Key: budgetKey(key.Scope, next.parent), Generation: next.parentGen})
		next = above[0].line
	}
	return list, nil
}
