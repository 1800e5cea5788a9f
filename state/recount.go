package state

import (
	"errors"
	"fmt"
)

// Recount compares the quota records of a scope with the records that they
// count, and reports the first difference: the count of a meter, of the scope
// or of an owner, in all shards together, or allowances above the cap that they
// were granted under. It takes all readable records of the scope, and is for
// operators' checks and for tests.
func Recount(scope string, records map[Key]*Record) error {
	t := tally{}
	for key, r := range records {
		t.record(key.Kind, r, 1)
	}
	left := map[string]int64{}
	for _, l := range t {
		left[countOf(quotaKey(scope, l.meter, l.owner, 0))] += l.delta
	}
	for key, r := range records {
		if key.Kind == KindQuota {
			left[countOf(key)] -= int64(r.quota.Used) //nolint:gosec // at most MaxAmount.
		}
	}
	for id, n := range left {
		if n != 0 {
			return fmt.Errorf("a quota of kind %s counts %d too few", Kind(id[0]), n)
		}
	}
	return allowances(records)
}

// countOf is the ID of a quota record without its shard.
func countOf(key Key) string { return key.ID[:len(key.ID)-2] }

// allowances checks that no shard has used more than it was allowed, unless it
// took over a record that a lowered cap has no room for, and that what the
// shards of a meter are allowed together stays within the latest cap.
func allowances(records map[Key]*Record) error {
	allowed, highest := map[string]uint64{}, map[string]uint64{}
	for key, r := range records {
		if key.Kind != KindQuota {
			continue
		}
		if q := r.quota; q.Cap != 0 && q.Used > q.Allowance {
			return errors.New("a shard of a quota uses more than it is allowed")
		}
		m := countOf(key)
		allowed[m] += r.quota.Allowance
		highest[m] = max(highest[m], r.quota.Cap)
	}
	for m, sum := range allowed {
		if sum > highest[m] {
			return errors.New("the allowances of a quota exceed its cap")
		}
	}
	return nil
}
