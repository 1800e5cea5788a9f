package storetest_test

import (
	"errors"
	"testing"

	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

var counter = state.Key{Scope: storetest.Scope, Kind: state.KindCounter, ID: "c"}

func add(t *testing.T, s *store.Store) uint64 {
	t.Helper()
	out, err := s.Do(t.Context(), &state.Batch{Scope: storetest.Scope, Ops: []state.Op{state.Add{Key: counter, Amount: 1}}})
	if err != nil || !out.Applied {
		t.Fatalf("add: %+v, %v", out, err)
	}
	return out.Values[0]
}

func TestRecordsOutliveAReopenAndAreSharedWithASecondStore(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) {
		add(t, f.Store)
		f.Reopen()
		add(t, f.Second())
		if got := add(t, f.Store); got != 3 {
			t.Fatalf("the counter stands at %d, want 3", got)
		}
	})
}

func TestADamagedRecordIsAnError(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) {
		add(t, f.Store)
		f.Damage(counter)
		if _, err := f.Read(t.Context(), counter); !errors.Is(err, state.ErrCorrupt) {
			t.Fatalf("reading a damaged record gave %v", err)
		}
	})
}

func TestARewrittenRecordIsReadAsWritten(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) {
		add(t, f.Store)
		f.Rewrite(counter, func(r *state.Record) *state.Record {
			r.Value = 41
			return r
		})
		if got := add(t, f.Store); got != 42 {
			t.Fatalf("the counter stands at %d, want 42", got)
		}
	})
}
