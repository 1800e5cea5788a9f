package state

import (
	"errors"
	"fmt"
)

// Recount compares the quota records of a scope with the records that they
// count, and reports the first difference: the count of a meter, of the scope
// or of an owner, in a shard, or allowances above the cap they were granted
// under. It takes all readable records of the scope, and is for operators'
// checks and for tests.
func Recount(scope string, records map[Key]*Record) error {
	t := tally{}
	for key, r := range records {
		t.record(key.Kind, r, 1)
	}
	want := map[Key]uint64{}
	for _, l := range t {
		want[quotaKey(scope, l.meter, l.owner, l.shard)] = uint64(l.delta) //nolint:gosec // only added to.
	}
	for key, r := range records {
		if key.Kind != KindQuota {
			continue
		}
		if r.quota == nil || want[key] != r.quota.Used {
			return fmt.Errorf("a quota of kind %s counts %d records, there are %d", Kind(key.ID[0]), r.quota.Used, want[key])
		}
		delete(want, key)
	}
	for key, n := range want {
		if n != 0 {
			return fmt.Errorf("%d records of kind %s are not counted", n, Kind(key.ID[0]))
		}
	}
	return allowances(records)
}

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
		m := key.ID[:len(key.ID)-2]
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
