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
		t = t.record(key.Kind, r, 1)
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
	return allowances(scope, records)
}

// countOf is the ID of a quota record without its shard.
func countOf(key Key) string { return key.ID[:len(key.ID)-2] }

// allowances checks that no shard has used more than it was allowed, unless it
// took over a record that a lowered cap has no room for, and that what shards
// may grow to on their own, together with what the others use, stays within the
// cap.
func allowances(scope string, records map[Key]*Record) error {
	body := records[ScopeKey(scope)]
	if body == nil {
		return nil
	}
	grown, grows := map[string]uint64{}, map[string]bool{}
	for key, r := range records {
		if key.Kind != KindQuota {
			continue
		}
		q, id := r.quota, countOf(key)
		if q.Cap != 0 && q.Used > q.Allowance {
			return errors.New("a shard of a quota uses more than it is allowed")
		}
		if q.Cap == capOf(body.scope, id) && q.Allowance > q.Used {
			grown[id] += q.Allowance
			grows[id] = true
		} else {
			grown[id] += q.Used
		}
	}
	for id, sum := range grown {
		if grows[id] && sum > capOf(body.scope, id) {
			return errors.New("the shards of a quota can grow above its cap")
		}
	}
	return nil
}

func capOf(s *Scope, id string) uint64 {
	return s.Caps.of(meter{Kind(id[0]), meterWhat(id[1])}, len(id) > 2)
}
