package statetest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/counterfoil/counterfoil/state"
)

// Compare says how the records of a store differ from what the model holds, ""
// if they do not. Counts and writer slots, of which a model knows nothing, and
// damaged records are left out.
func (m *Model) Compare(records map[state.Key]*state.Record) string {
	for key, f := range m.Facts {
		r, ok := records[key]
		switch {
		case f.Damaged:
		case !ok:
			return fmt.Sprintf("%s %q is gone, want %s", key.Kind, key.ID, Show(f.Seen))
		case !reflect.DeepEqual(*see(r), f.Seen):
			return fmt.Sprintf("%s %q is %s, want %s", key.Kind, key.ID, Show(*see(r)), Show(f.Seen))
		case r.Version != f.Version:
			return fmt.Sprintf("%s %q is of another commit", key.Kind, key.ID)
		case !sameBudget(r.Budget(), f.Budget):
			return fmt.Sprintf("%s %q is %s, want %s", key.Kind, key.ID, Show(r.Budget()), Show(f.Budget))
		}
	}
	for key := range records {
		if _, ok := m.Facts[key]; !ok && key.Kind != state.KindQuota && key.Kind != state.KindWriter {
			return fmt.Sprintf("%s %q is there, want none", key.Kind, key.ID)
		}
	}
	return ""
}

func sameBudget(r *state.Budget, b *Budget) bool {
	if r == nil || b == nil {
		return r == nil && b == nil
	}
	holds := map[int64]Hold{}
	for _, h := range r.Held {
		holds[h.Until] = Hold{h.Amount, h.Since}
	}
	same := Budget{r.Unit, r.Limit, r.Unlimited, r.Window, r.Parent, r.ParentGen, r.Generation, r.Start, r.Spent, r.Fenced, holds}
	if len(holds) == 0 && len(b.Holds) == 0 {
		same.Holds = b.Holds
	}
	return len(holds) == len(r.Held) && reflect.DeepEqual(same, *b)
}

// Same reports whether two states hold the same records.
func Same(a, b map[state.Key]*state.Record) bool { return reflect.DeepEqual(a, b) }

// SortedKeys gives the keys of a map in their order.
func SortedKeys[V any](m map[state.Key]V) []state.Key {
	return slices.SortedFunc(maps.Keys(m), state.Key.Compare)
}
