package enginetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

func modelClauses() []clause {
	return []clause{{"RandomProgramsAgreeWithAPlainMap", nil, modelAgrees}}
}

// model is the reference: a map, from which every listing is computed anew.
type model struct {
	engine  engine.Engine
	restart func() engine.Engine
	records map[state.Key]*state.Sealed
}

// modelAgrees runs random programs, each in scopes of its own, against the
// engine and a map. Rapid prints the program that failed and how to replay it.
func modelAgrees(t *testing.T, f Fixture) {
	e := f.Engine
	programs := 0
	rapid.Check(t, func(r *rapid.T) {
		programs++
		m := &model{engine: e, records: map[state.Key]*state.Sealed{}}
		if f.Restart != nil {
			m.restart = func() engine.Engine { e = f.Restart(t); return e }
		}
		names := []string{"m", "mm", "n"}
		for i := range names {
			names[i] += fmt.Sprintf("%x", version())
		}
		m.program(r, names)
	})
}

func (m *model) program(r *rapid.T, scopes []string) {
	drawScope := rapid.SampledFrom(scopes)
	r.Repeat(map[string]func(*rapid.T){
		"transact": func(r *rapid.T) { m.transact(r, drawScope.Draw(r, "scope")) },
		"due":      func(r *rapid.T) { m.due(r, drawScope.Draw(r, "scope")) },
		"scan":     func(r *rapid.T) { m.scan(r, drawScope.Draw(r, "scope")) },
		"restart": func(r *rapid.T) {
			if m.restart != nil && rapid.IntRange(0, 9).Draw(r, "dice") == 0 {
				m.engine = m.restart()
			}
		},
	})
}

var (
	modelKinds = rapid.SampledFrom([]state.Kind{state.KindOperation, state.KindHold})
	modelIDs   = rapid.SampledFrom([]string{"a", "ab", "b", "\x00", "\xff", "a\xff", "a\x00", "c"})
	modelTimes = rapid.SampledFrom([]int64{0, 0, 1, 2, 255, 256, 1 << 40})
)

func (m *model) transact(r *rapid.T, scope string) {
	ids := rapid.SliceOfNDistinct(modelIDs, 1, 5, rapid.ID).Draw(r, "ids")
	kind := modelKinds.Draw(r, "kind")
	ks := make([]state.Key, len(ids))
	for i, id := range ids {
		ks[i] = state.Key{Scope: scope, Kind: kind, ID: id}
	}
	first := rapid.IntRange(0, len(ks)).Draw(r, "keys of the first round")
	var changes []engine.Change
	v := version()
	for _, k := range ks {
		switch rapid.IntRange(0, 3).Draw(r, "change") {
		case 0:
			changes = append(changes, engine.Change{Key: k})
		case 1, 2:
			changes = append(changes, engine.Change{Key: k, Item: &state.Sealed{
				Version: v, Expiry: modelTimes.Draw(r, "expiry"), Lease: modelTimes.Draw(r, "lease"), Data: []byte(rapid.String().Draw(r, "data")),
			}})
		}
	}
	refuse := rapid.IntRange(0, 4).Draw(r, "refuse") == 0
	refusal := errors.New("refused")
	var shown engine.Snapshot // last: what was shown before may have been a guess
	err := m.engine.Transact(context.Background(), ks[:first], func(s engine.Snapshot) (engine.Plan, error) {
		shown = s
		switch {
		case len(s.Keys) < len(ks):
			return engine.Plan{More: ks[len(s.Keys):]}, nil
		case refuse:
			return engine.Plan{}, refusal
		}
		return engine.Plan{Changes: changes, NotAfter: s.Now + minute}, nil
	})
	for i, k := range shown.Keys {
		if k != ks[i] || !same(shown.Items[i], m.records[k]) {
			r.Fatalf("%v is %s, want %s", k, show(shown.Items[i]), show(m.records[k]))
		}
	}
	if refuse {
		if !errors.Is(err, refusal) {
			r.Fatalf("Transact: %v, want the refusal", err)
		}
		return
	}
	if err != nil {
		r.Fatalf("Transact: %v", err)
	}
	for _, c := range changes {
		if c.Item == nil {
			delete(m.records, c.Key)
		} else {
			m.records[c.Key] = c.Item
		}
	}
}

func (m *model) due(r *rapid.T, scope string) {
	kind, before := modelKinds.Draw(r, "kind"), modelTimes.Draw(r, "before")
	index := rapid.SampledFrom([]engine.Index{engine.ByExpiry, engine.ByLease}).Draw(r, "index")
	var wanted []engine.DueKey
	for k, it := range m.records {
		if at := index.Time(it); k.Scope == scope && k.Kind == kind && at > 0 && at <= before {
			wanted = append(wanted, engine.DueKey{Key: k, At: at})
		}
	}
	slices.SortFunc(wanted, func(a, b engine.DueKey) int {
		return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Key.ID, b.Key.ID))
	})
	limit := rapid.IntRange(1, 4).Draw(r, "limit")
	got := pages(r, func(cursor string) ([]engine.DueKey, string, error) {
		return m.engine.Due(context.Background(), scope, index, kind, before, cursor, limit)
	})
	if !slices.Equal(got, wanted) {
		r.Fatalf("due %v, want %v", got, wanted)
	}
}

func (m *model) scan(r *rapid.T, scope string) {
	kind := modelKinds.Draw(r, "kind")
	prefix := rapid.SampledFrom([]string{"", "a", "\xff", "a\xff", "d"}).Draw(r, "prefix")
	var wanted []engine.Found
	for k, it := range m.records {
		if k.Scope == scope && k.Kind == kind && strings.HasPrefix(k.ID, prefix) {
			wanted = append(wanted, engine.Found{Key: k, Item: it})
		}
	}
	slices.SortFunc(wanted, func(a, b engine.Found) int { return a.Key.Compare(b.Key) })
	limit := rapid.IntRange(1, 4).Draw(r, "limit")
	got := pages(r, func(cursor string) ([]engine.Found, string, error) {
		return m.engine.Scan(context.Background(), scope, kind, prefix, cursor, limit)
	})
	if !slices.EqualFunc(got, wanted, func(a, b engine.Found) bool { return a.Key == b.Key && same(a.Item, b.Item) }) {
		r.Fatalf("scanned %v, want %v", got, wanted)
	}
}

// pages follows a listing to its end.
func pages[T any](r *rapid.T, list func(cursor string) ([]T, string, error)) []T {
	var all []T
	cursor := ""
	for {
		page, next, err := list(cursor)
		if err != nil {
			r.Fatalf("listing: %v", err)
		}
		all = append(all, page...)
		if cursor = next; next == "" {
			return all
		}
	}
}
