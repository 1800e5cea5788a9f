package enginetest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

func dueClauses() []clause {
	return []clause{
		{"DueListsOldestFirstUpToTheTimeIncluded", nil, dueOrder},
		{"DueGoesOnFromTheCursor", nil, dueCursor},
		{"DueGoesOnThoughTheRecordAtTheCursorIsGone", nil, dueCursorDeleted},
		{"DueKeepsKindsScopesAndIndexesApart", nil, dueApart},
		{"DueFollowsChangesOfTheTime", nil, dueFollows},
		{"DueRefusesAnUnknownIndexAndALimitOfZero", nil, dueRefuses},
	}
}

const far = int64(1) << 50

func listDue(t *testing.T, e engine.Engine, s string, index engine.Index, kind state.Kind, before int64, limit int) []engine.DueKey {
	t.Helper()
	var all []engine.DueKey
	cursor := ""
	for {
		page, next, err := e.Due(t.Context(), s, index, kind, before, cursor, limit)
		if err != nil {
			t.Fatalf("Due: %v", err)
		}
		if len(page) > limit || (next != "" && len(page) == 0) {
			t.Fatalf("Due gave %d entries of at most %d and cursor %q", len(page), limit, next)
		}
		all = append(all, page...)
		if cursor = next; next == "" {
			return all
		}
	}
}

func wantDue(t *testing.T, e engine.Engine, index engine.Index, before int64, wanted ...engine.DueKey) {
	t.Helper()
	for _, limit := range []int{1, 2, 3, 100} {
		if got := listDue(t, e, scope, index, state.KindOperation, before, limit); !slices.Equal(got, wanted) {
			t.Fatalf("due at %d by %d: %v, want %v", before, limit, got, wanted)
		}
	}
}

func at(time int64, id string) engine.DueKey { return engine.DueKey{Key: key(id), At: time} }

func dueOrder(t *testing.T, f Fixture) {
	mustWrite(t, f.Engine,
		set(key("z"), due(5, 0)), set(key("y"), due(256, 0)), set(key("\xff"), due(7, 0)), set(key("\x00"), due(7, 0)),
		set(key("a"), due(math.MaxInt64, 0)), set(key("b"), due(1, 0)), set(key("never"), due(0, 0)), set(key("c"), due(1<<40, 0)))
	wantDue(t, f.Engine, engine.ByExpiry, 0)
	wantDue(t, f.Engine, engine.ByExpiry, 1, at(1, "b"))
	wantDue(t, f.Engine, engine.ByExpiry, 6, at(1, "b"), at(5, "z"))
	wantDue(t, f.Engine, engine.ByExpiry, 7, at(1, "b"), at(5, "z"), at(7, "\x00"), at(7, "\xff"))
	wantDue(t, f.Engine, engine.ByExpiry, math.MaxInt64, at(1, "b"), at(5, "z"), at(7, "\x00"), at(7, "\xff"), at(256, "y"),
		at(1<<40, "c"), at(math.MaxInt64, "a"))
	wantDue(t, f.Engine, engine.ByExpiry, -1)
}

func dueCursor(t *testing.T, f Fixture) {
	var changes []engine.Change
	var wanted []engine.DueKey
	for i := range 50 {
		k := key(fmt.Sprintf("%02d", i))
		changes = append(changes, set(k, due(int64(1+i/10), 0)))
		wanted = append(wanted, engine.DueKey{Key: k, At: int64(1 + i/10)})
	}
	mustWrite(t, f.Engine, changes...)
	for _, limit := range []int{1, 7, 10, 49, 50, 51} {
		if got := listDue(t, f.Engine, scope, engine.ByExpiry, state.KindOperation, far, limit); !slices.Equal(got, wanted) {
			t.Fatalf("by %d: %v", limit, got)
		}
	}
}

func dueCursorDeleted(t *testing.T, f Fixture) {
	mustWrite(t, f.Engine, set(key("a"), due(1, 0)), set(key("b"), due(2, 0)), set(key("c"), due(3, 0)))
	page, next, err := f.Engine.Due(t.Context(), scope, engine.ByExpiry, state.KindOperation, far, "", 1)
	if err != nil || len(page) != 1 || next == "" {
		t.Fatalf("first page %v, %q, %v", page, next, err)
	}
	mustWrite(t, f.Engine, set(key("a"), nil), set(key("b"), nil))
	page, next, err = f.Engine.Due(t.Context(), scope, engine.ByExpiry, state.KindOperation, far, next, 5)
	if err != nil || next != "" || !slices.Equal(page, []engine.DueKey{at(3, "c")}) {
		t.Fatalf("second page %v, %q, %v", page, next, err)
	}
}

func dueApart(t *testing.T, f Fixture) {
	place := func(s string, kind state.Kind, it *state.Sealed) {
		mustWrite(t, f.Engine, set(state.Key{Scope: s, Kind: kind, ID: "k"}, it))
	}
	place("a", state.KindHold, due(10, 20))
	place("ab", state.KindHold, due(11, 0))
	place("b", state.KindHold, due(0, 12))
	place("a", state.KindSpend, due(13, 0))
	for _, c := range []struct {
		scope string
		index engine.Index
		kind  state.Kind
		at    int64 // 0: nothing is listed
	}{
		{"a", engine.ByExpiry, state.KindHold, 10}, {"a", engine.ByLease, state.KindHold, 20},
		{"ab", engine.ByExpiry, state.KindHold, 11}, {"ab", engine.ByLease, state.KindHold, 0},
		{"b", engine.ByExpiry, state.KindHold, 0}, {"b", engine.ByLease, state.KindHold, 12},
		{"a", engine.ByExpiry, state.KindSpend, 13}, {"a", engine.ByLease, state.KindSpend, 0},
		{"a", engine.ByExpiry, state.KindOperation, 0}, {"c", engine.ByExpiry, state.KindHold, 0},
		{"", engine.ByExpiry, state.KindHold, 0},
	} {
		got := listDue(t, f.Engine, c.scope, c.index, c.kind, far, 10)
		if c.at == 0 && len(got) != 0 || c.at != 0 && (len(got) != 1 || got[0].At != c.at || got[0].Key.Scope != c.scope || got[0].Key.Kind != c.kind) {
			t.Errorf("%q %v %v: %v, want time %d", c.scope, c.index, c.kind, got, c.at)
		}
	}
}

func dueFollows(t *testing.T, f Fixture) {
	e := f.Engine
	mustWrite(t, e, set(key("k"), due(10, 100)), set(key("other"), due(15, 0)))
	for _, step := range []struct {
		item          *state.Sealed
		expiry, lease int64
	}{
		{due(20, 100), 20, 100}, // later
		{due(5, 90), 5, 90},     // earlier
		{due(5, 90), 5, 90},     // unchanged
		{due(0, 90), 0, 90},     // out of one index
		{due(7, 0), 7, 0},       // and of the other
		{nil, 0, 0},             // deleted
		{due(8, 9), 8, 9},       // created again
	} {
		mustWrite(t, e, set(key("k"), step.item))
		expiries := []engine.DueKey{at(15, "other")}
		switch {
		case step.expiry > 15:
			expiries = append(expiries, at(step.expiry, "k"))
		case step.expiry > 0:
			expiries = append([]engine.DueKey{at(step.expiry, "k")}, expiries...)
		}
		wantDue(t, e, engine.ByExpiry, far, expiries...)
		var leases []engine.DueKey
		if step.lease > 0 {
			leases = append(leases, at(step.lease, "k"))
		}
		wantDue(t, e, engine.ByLease, far, leases...)
	}
}

func dueRefuses(t *testing.T, f Fixture) {
	for _, index := range []engine.Index{0, 3} {
		if _, _, err := f.Engine.Due(t.Context(), scope, index, state.KindHold, far, "", 1); err == nil {
			t.Errorf("index %d was taken", index)
		}
	}
	for _, limit := range []int{0, -1} {
		if _, _, err := f.Engine.Due(t.Context(), scope, engine.ByExpiry, state.KindHold, far, "", limit); err == nil {
			t.Errorf("limit %d was taken", limit)
		}
	}
	page, _, err := f.Engine.Due(t.Context(), scope, engine.ByExpiry, state.KindHold, far, "", math.MaxInt)
	if err != nil || len(page) != 0 {
		t.Errorf("limit %d: %v, %v", math.MaxInt, page, err)
	}
}
