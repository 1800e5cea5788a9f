package budget

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

// checkEntries reports what makes entries unusable: none or too many of them, a name that no budget can have, a budget
// named twice, an amount that is too large.
func checkEntries(entries []Entry) error {
	switch {
	case len(entries) == 0:
		return invalidf("no budget is named; give at least one entry")
	case len(entries) > MaxEntries:
		return invalidf("%d entries, the limit is %d", len(entries), MaxEntries)
	}
	return checkEach(entries)
}

func checkEach(entries []Entry) error {
	for i, e := range entries {
		if err := state.CheckBudgetName(e.Budget); err != nil {
			return invalidf("entry %d: %v", i, err)
		}
		if e.Amount > MaxAmount {
			return invalidf("entry %d: the amount is above 2^53−1", i)
		}
		for _, earlier := range entries[:i] {
			if earlier.Budget == e.Budget {
				return invalidf("entry %d: an earlier entry names the same budget", i)
			}
		}
	}
	return nil
}

// Sum gives entries that take what each of the lists takes: an amount for one budget in several of them is added up. It
// fails with [ErrInvalid] if a sum is above [MaxAmount].
func Sum(lists ...[]Entry) ([]Entry, error) {
	var all []Entry
	for _, list := range lists {
		for _, e := range list {
			i := slices.IndexFunc(all, func(o Entry) bool { return o.Budget == e.Budget })
			if i < 0 {
				all = append(all, Entry{Budget: e.Budget})
				i = len(all) - 1
			}
			if e.Amount > MaxAmount-all[i].Amount {
				return nil, invalidf("the amounts of a budget add up to more than 2^53−1")
			}
			all[i].Amount += e.Amount
		}
	}
	return all, nil
}

// digest tells one request from another: what is asked, for which amounts in whichever order.
func digest(what string, entries []Entry, bind state.Digest) state.Digest {
	var room [MaxEntries]Entry
	sorted := append(room[:0], entries...)
	slices.SortFunc(sorted, func(a, b Entry) int { return cmp.Compare(a.Budget, b.Budget) })
	parts := append(make([]string, 0, 2+2*MaxEntries), what, string(bind[:]))
	for _, e := range sorted {
		parts = append(parts, e.Budget, strconv.FormatUint(e.Amount, 10))
	}
	return ids.Hash("counterfoil.budget-request.v1", parts...)
}
