package enginetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

func scanClauses() []clause {
	return []clause{
		{"ScanListsByPrefixInByteOrder", nil, scanPrefix},
		{"ScanKeepsKindsAndScopesApart", nil, scanApart},
		{"ScanGoesOnThoughTheRecordAtTheCursorIsGone", nil, scanCursorDeleted},
		{"ScanGivesTheRecordsThemselves", nil, scanItems},
		{"ScanRefusesALimitOfZero", nil, scanRefuses},
	}
}

func scopesClauses() []clause {
	return []clause{
		{"ScopesListsThoseWithAScopeRecordInByteOrder", nil, scopesOrder},
		{"ScopesForgetsADeletedScopeRecord", nil, scopesDeleted},
		{"ScopesRefusesALimitOfZero", nil, scopesRefuses},
	}
}

func scanAll(t *testing.T, e engine.Engine, s string, kind state.Kind, prefix string, limit int) []engine.Found {
	t.Helper()
	var all []engine.Found
	cursor := ""
	for {
		page, next, err := e.Scan(t.Context(), s, kind, prefix, cursor, limit)
		if err != nil {
			t.Fatalf("Scan: %v", err)
		}
		if len(page) > limit || (next != "" && len(page) == 0) {
			t.Fatalf("Scan gave %d records of at most %d and cursor %q", len(page), limit, next)
		}
		all = append(all, page...)
		if cursor = next; next == "" {
			return all
		}
	}
}

func ids(found []engine.Found) []string {
	var all []string
	for _, f := range found {
		all = append(all, f.Key.ID)
	}
	return all
}

func scanPrefix(t *testing.T, f Fixture) {
	stored := []string{
		"\x00", "\x00\x00", "\x00\xff", "\x01", "A", "a", "a\x00", "a\x00b", "a/", "a/b", "aa", "ab", "a\xff", "a\xff\x00", "a\xff\xff", "b",
		"é", "\xfe", "\xff", "\xff\x00", "\xff\xff", "\xff\xff\xff", "\xff\xffa",
	}
	var changes []engine.Change
	for _, id := range stored {
		changes = append(changes, set(key(id), item(id)))
	}
	mustWrite(t, f.Engine, changes...)
	slices.Sort(stored)
	for _, prefix := range []string{"", "\x00", "a", "a/", "a\x00", "a\xff", "a\xff\xff", "b", "c", "\xff", "\xff\xff", "\xff\xff\xff", "\xff\xff\xff\xff", "aab", strings.Repeat("\xff", state.MaxIDBytes)} {
		var wanted []string
		for _, id := range stored {
			if strings.HasPrefix(id, prefix) {
				wanted = append(wanted, id)
			}
		}
		for _, limit := range []int{1, 2, 5, 100} {
			if got := ids(scanAll(t, f.Engine, scope, state.KindOperation, prefix, limit)); !slices.Equal(got, wanted) {
				t.Errorf("prefix %q by %d: %q, want %q", prefix, limit, got, wanted)
			}
		}
	}
}

func scanApart(t *testing.T, f Fixture) {
	for _, s := range []string{"a", "ab", "abc", "b"} {
		for _, kind := range []state.Kind{state.KindHold, state.KindSpend} {
			mustWrite(t, f.Engine, set(state.Key{Scope: s, Kind: kind, ID: s + kind.String()}, item("x")))
		}
	}
	for _, s := range []string{"a", "ab", "abc", "b"} {
		got := scanAll(t, f.Engine, s, state.KindHold, "", 10)
		if !slices.Equal(ids(got), []string{s + "hold"}) || got[0].Key.Scope != s || got[0].Key.Kind != state.KindHold {
			t.Errorf("scope %q: %v", s, got)
		}
		if got := scanAll(t, f.Engine, s, state.KindOperation, "", 10); len(got) != 0 {
			t.Errorf("scope %q has operations %v", s, got)
		}
	}
	for _, s := range []string{"", "c", "abcd"} {
		if got := scanAll(t, f.Engine, s, state.KindHold, "", 10); len(got) != 0 {
			t.Errorf("scope %q: %v", s, got)
		}
	}
}

func scanCursorDeleted(t *testing.T, f Fixture) {
	for _, k := range keys(4) {
		mustWrite(t, f.Engine, set(k, item("x")))
	}
	page, next, err := f.Engine.Scan(t.Context(), scope, state.KindOperation, "", "", 1)
	if err != nil || len(page) != 1 || next == "" {
		t.Fatalf("first page %v, %q, %v", page, next, err)
	}
	mustWrite(t, f.Engine, set(keys(4)[0], nil), set(keys(4)[1], nil))
	page, next, err = f.Engine.Scan(t.Context(), scope, state.KindOperation, "", next, 5)
	if err != nil || next != "" || !slices.Equal(ids(page), []string{"000002", "000003"}) {
		t.Fatalf("second page %v, %q, %v", page, next, err)
	}
}

func scanItems(t *testing.T, f Fixture) {
	a, b := due(7, 9), item("b")
	mustWrite(t, f.Engine, set(key("a"), a), set(key("b"), b), set(key("gone"), item("x")))
	mustWrite(t, f.Engine, set(key("gone"), nil))
	got := scanAll(t, f.Engine, scope, state.KindOperation, "", 10)
	if len(got) != 2 || !same(got[0].Item, a) || !same(got[1].Item, b) {
		t.Fatalf("scanned %v", got)
	}
}

func scanRefuses(t *testing.T, f Fixture) {
	for _, limit := range []int{0, -1} {
		if _, _, err := f.Engine.Scan(t.Context(), scope, state.KindHold, "", "", limit); err == nil {
			t.Errorf("limit %d was taken", limit)
		}
	}
}

func scopesAll(t *testing.T, e engine.Engine, limit int) []string {
	t.Helper()
	var all []string
	cursor := ""
	for {
		page, next, err := e.Scopes(t.Context(), cursor, limit)
		if err != nil {
			t.Fatalf("Scopes: %v", err)
		}
		if len(page) > limit || (next != "" && len(page) == 0) {
			t.Fatalf("Scopes gave %d of at most %d and cursor %q", len(page), limit, next)
		}
		all = append(all, page...)
		if cursor = next; next == "" {
			return all
		}
	}
}

func scopesOrder(t *testing.T, f Fixture) {
	names := []string{"b", "aa", "a", "aaa", "é", "zz", "B", state.StoreScope, strings.Repeat("m", state.MaxScopeBytes)}
	for _, name := range names {
		mustWrite(t, f.Engine, set(state.ScopeKey(name), item(name)))
		mustWrite(t, f.Engine, set(state.ScopeKey(name), item(name+" again")))
	}
	mustWrite(t, f.Engine, set(state.Key{Scope: "no scope record", Kind: state.KindHold, ID: "scope"}, item("x")))
	mustWrite(t, f.Engine, set(state.Key{Scope: "another record", Kind: state.KindScope, ID: "other"}, item("x")))
	slices.Sort(names)
	for _, limit := range []int{1, 2, 4, 100} {
		if got := scopesAll(t, f.Engine, limit); !slices.Equal(got, names) {
			t.Fatalf("by %d: %q, want %q", limit, got, names)
		}
	}
}

func scopesDeleted(t *testing.T, f Fixture) {
	for _, name := range []string{"a", "b"} {
		mustWrite(t, f.Engine, set(state.ScopeKey(name), item(name)))
	}
	mustWrite(t, f.Engine, set(state.ScopeKey("a"), nil))
	if got := scopesAll(t, f.Engine, 10); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("scopes %q", got)
	}
	mustWrite(t, f.Engine, set(state.ScopeKey("a"), item("a")))
	if got := scopesAll(t, f.Engine, 10); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("scopes %q", got)
	}
}

func scopesRefuses(t *testing.T, f Fixture) {
	if _, _, err := f.Engine.Scopes(t.Context(), "", 0); err == nil {
		t.Error("limit 0 was taken")
	}
}
