package enginetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

func transactClauses() []clause {
	return []clause{
		{"SnapshotShowsPresentAndAbsentKeysInTheirOrder", nil, snapshotInOrder},
		{"ChangesAreThereWhenTransactReturns", nil, changesAreThere},
		{"DeletedKeyIsAbsentAndCanBeCreatedAgain", nil, deleteAndRecreate},
		{"ErrorOfTheFunctionIsReturnedAndNothingIsWritten", nil, functionError},
		{"ChangeOfAKeyThatWasNotReadIsRefused", nil, changeNotRead},
		{"TwoChangesOfOneKeyAreRefused", nil, changeTwice},
		{"KeysOfSeveralScopesAreRefused", nil, severalScopes},
		{"InvalidKeysAreRefused", nil, invalidKeys},
		{"ChangesPastNotAfterAreRefused", nil, notAfterPast},
		{"NotAfterIsComparedWhenTheChangesAreApplied", hasClock, notAfterAtApply},
		{"NotAfterDoesNotConcernAPlanWithoutChanges", nil, notAfterWithoutChanges},
		{"MoreKeysAreReadTogetherWithAllEarlierOnes", nil, moreKeys},
		{"ChangesOfAPlanThatAsksForMoreAreNotApplied", nil, moreAppliesNothing},
		{"AskingForMoreKeysForEverIsRefused", nil, moreForEver},
		{"TransactionWithoutKeysRuns", nil, withoutKeys},
		{"CallersBuffersMayBeReusedAfterTheReturn", nil, buffersReused},
		{"CancelledBeforeTheStartWritesNothing", nil, cancelledBefore},
		{"CancelledUnderWayIsWrittenWholeOrNotAtAll", nil, cancelledUnderWay},
		{"LargeValuesAreKept", nil, largeValues},
		{"FiveThousandKeysAreWrittenAndDeletedAtOnce", nil, manyKeys},
		{"SimilarKeysAreDifferentRecords", nil, similarKeys},
	}
}

func hasClock(f Fixture) bool { return f.Clock != nil }

func snapshotInOrder(t *testing.T, f Fixture) {
	a, c := item("a"), item("c")
	mustWrite(t, f.Engine, set(key("a"), a), set(key("c"), c))
	ks := []state.Key{key("c"), key("b"), key("a")}
	calls := 0
	err := f.Engine.Transact(t.Context(), ks, func(s engine.Snapshot) (engine.Plan, error) {
		calls++
		if len(s.Keys) != 3 || s.Keys[0] != ks[0] || s.Keys[1] != ks[1] || s.Keys[2] != ks[2] {
			t.Errorf("snapshot has keys %v, want %v", s.Keys, ks)
		}
		if len(s.Items) != 3 || !same(s.Items[0], c) || s.Items[1] != nil || !same(s.Items[2], a) {
			t.Errorf("snapshot has items %v", s.Items)
		}
		now, err := f.Engine.Now(t.Context())
		if err != nil || s.Now > now || s.Now < now-minute {
			t.Errorf("snapshot was taken at %d, the clock shows %d (%v)", s.Now, now, err)
		}
		return engine.Plan{}, nil
	})
	if err != nil || calls == 0 {
		t.Fatalf("after %d calls: %v", calls, err)
	}
}

func changesAreThere(t *testing.T, f Fixture) {
	full := &state.Sealed{Version: version(), Expiry: 1 << 41, Lease: 1 << 40, Data: []byte{0, 1, 0xff}}
	bare := &state.Sealed{Version: version()}
	mustWrite(t, f.Engine, set(key("full"), full), set(key("bare"), bare))
	want(t, f.Engine, key("full"), full)
	want(t, f.Engine, key("bare"), bare)
	next := item("next")
	mustWrite(t, f.Engine, set(key("full"), next))
	want(t, f.Engine, key("full"), next)
	want(t, f.Engine, key("bare"), bare)
}

func deleteAndRecreate(t *testing.T, f Fixture) {
	for range 3 {
		it := item("one life")
		mustWrite(t, f.Engine, set(key("k"), it), set(key("other"), it))
		want(t, f.Engine, key("k"), it)
		mustWrite(t, f.Engine, set(key("k"), nil))
		want(t, f.Engine, key("k"), nil)
		want(t, f.Engine, key("other"), it)
	}
	mustWrite(t, f.Engine, set(key("never"), nil))
	want(t, f.Engine, key("never"), nil)
}

func functionError(t *testing.T, f Fixture) {
	refusal := errors.New("refused")
	err := f.Engine.Transact(t.Context(), keys(1), func(s engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{Changes: []engine.Change{set(keys(1)[0], item("x"))}, NotAfter: s.Now + minute}, refusal
	})
	if !errors.Is(err, refusal) || errors.Is(err, engine.ErrAmbiguous) || errors.Is(err, engine.ErrUnavailable) {
		t.Fatalf("Transact: %v, want the error of the function alone", err)
	}
	want(t, f.Engine, keys(1)[0], nil)
}

// refused checks that a plan that breaks a rule of form is an error and that
// nothing of it is written.
func refused(t *testing.T, e engine.Engine, read []state.Key, changes ...engine.Change) {
	t.Helper()
	err := e.Transact(t.Context(), read, func(s engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{Changes: changes, NotAfter: s.Now + minute}, nil
	})
	if err == nil || errors.Is(err, engine.ErrAmbiguous) {
		t.Fatalf("Transact: %v, want a plain refusal", err)
	}
	for _, c := range changes {
		want(t, e, c.Key, nil)
	}
}

func changeNotRead(t *testing.T, f Fixture) {
	refused(t, f.Engine, []state.Key{key("read")}, set(key("read"), item("x")), set(key("not read"), item("y")))
}

func changeTwice(t *testing.T, f Fixture) {
	ks := []state.Key{key("a"), key("b")}
	refused(t, f.Engine, ks, set(ks[0], item("x")), set(ks[1], item("y")), set(ks[0], nil))
}

func severalScopes(t *testing.T, f Fixture) {
	other := state.Key{Scope: "other", Kind: state.KindOperation, ID: "k"}
	refused(t, f.Engine, []state.Key{key("k"), other}, set(key("k"), item("x")))
	want(t, f.Engine, other, nil)
}

func invalidKeys(t *testing.T, f Fixture) {
	for name, k := range map[string]state.Key{
		"no scope":     {Kind: state.KindHold, ID: "k"},
		"long scope":   {Scope: strings.Repeat("s", state.MaxScopeBytes+1), Kind: state.KindHold, ID: "k"},
		"no id":        {Scope: scope, Kind: state.KindHold},
		"long id":      {Scope: scope, Kind: state.KindHold, ID: strings.Repeat("i", state.MaxIDBytes+1)},
		"no kind":      {Scope: scope, ID: "k"},
		"unknown kind": {Scope: scope, Kind: 200, ID: "k"},
	} {
		for _, ks := range [][]state.Key{{k}, {{Scope: k.Scope, Kind: state.KindHold, ID: "valid"}, k}} {
			called := false
			err := f.Engine.Transact(t.Context(), ks, func(engine.Snapshot) (engine.Plan, error) {
				called = true
				return engine.Plan{}, nil
			})
			if err == nil || called {
				t.Errorf("%s: Transact gave %v, function called: %v", name, err, called)
			}
			if _, err := f.Engine.Read(t.Context(), ks); err == nil {
				t.Errorf("%s: Read took it", name)
			}
		}
	}
}

// expectLate runs a write with a NotAfter that lies by that much after the
// snapshot and calls before in between.
func tryNotAfter(t *testing.T, e engine.Engine, k state.Key, after int64, before func()) error {
	t.Helper()
	return e.Transact(t.Context(), []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
		before()
		return engine.Plan{Changes: []engine.Change{set(k, item("x"))}, NotAfter: s.Now + after}, nil
	})
}

func notAfterPast(t *testing.T, f Fixture) {
	for _, after := range []int64{-1, -minute} {
		if err := tryNotAfter(t, f.Engine, key("k"), after, func() {}); !errors.Is(err, engine.ErrLate) {
			t.Fatalf("%d ms after the snapshot: %v, want ErrLate", after, err)
		}
	}
	err := f.Engine.Transact(t.Context(), []state.Key{key("k")}, func(engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{Changes: []engine.Change{set(key("k"), item("x"))}}, nil
	})
	if !errors.Is(err, engine.ErrLate) {
		t.Fatalf("without NotAfter: %v, want ErrLate", err)
	}
	want(t, f.Engine, key("k"), nil)
}

func notAfterAtApply(t *testing.T, f Fixture) {
	err := tryNotAfter(t, f.Engine, key("k"), second, func() { f.Clock.Advance(1001e6) })
	if !errors.Is(err, engine.ErrLate) {
		t.Fatalf("the clock passed NotAfter while the function ran: %v, want ErrLate", err)
	}
	want(t, f.Engine, key("k"), nil)
	if err := tryNotAfter(t, f.Engine, key("k"), second, func() { f.Clock.Advance(1000e6) }); err != nil {
		t.Fatalf("the clock reached NotAfter and did not pass it: %v", err)
	}
}

func notAfterWithoutChanges(t *testing.T, f Fixture) {
	err := f.Engine.Transact(t.Context(), []state.Key{key("k")}, func(engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func moreKeys(t *testing.T, f Fixture) {
	a, b, c := item("a"), item("b"), item("c")
	mustWrite(t, f.Engine, set(key("a"), a), set(key("b"), b), set(key("c"), c))
	d := item("d")
	var seen [][]*state.Sealed
	err := f.Engine.Transact(t.Context(), []state.Key{key("a")}, func(s engine.Snapshot) (engine.Plan, error) {
		if len(s.Keys) != len(s.Items) {
			t.Errorf("%d keys and %d items", len(s.Keys), len(s.Items))
		}
		seen = append(seen, s.Items)
		switch len(s.Keys) {
		case 1:
			return engine.Plan{More: []state.Key{key("b"), key("absent")}}, nil
		case 3:
			return engine.Plan{More: []state.Key{key("c")}}, nil
		}
		return engine.Plan{Changes: []engine.Change{set(key("absent"), d), set(key("a"), nil)}, NotAfter: s.Now + minute}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	last := seen[len(seen)-1]
	if len(last) != 4 || !same(last[0], a) || !same(last[1], b) || last[2] != nil || !same(last[3], c) {
		t.Fatalf("the last snapshot has %v", last)
	}
	want(t, f.Engine, key("absent"), d)
	want(t, f.Engine, key("a"), nil)
}

func moreAppliesNothing(t *testing.T, f Fixture) {
	err := f.Engine.Transact(t.Context(), []state.Key{key("a")}, func(s engine.Snapshot) (engine.Plan, error) {
		if len(s.Keys) == 1 {
			return engine.Plan{
				More:     []state.Key{key("b")},
				Changes:  []engine.Change{set(key("a"), item("too early"))},
				NotAfter: s.Now + minute,
			}, nil
		}
		return engine.Plan{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want(t, f.Engine, key("a"), nil)
}

func moreForEver(t *testing.T, f Fixture) {
	calls := 0
	err := f.Engine.Transact(t.Context(), nil, func(engine.Snapshot) (engine.Plan, error) {
		calls++
		return engine.Plan{More: []state.Key{keys(calls)[calls-1]}}, nil
	})
	if err == nil || calls != engine.MaxRounds+1 {
		t.Fatalf("ended with %v after %d calls, want an error after %d", err, calls, engine.MaxRounds+1)
	}
	err = f.Engine.Transact(t.Context(), []state.Key{key("k")}, func(engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{More: []state.Key{{Scope: "other", Kind: state.KindHold, ID: "k"}}}, nil
	})
	if err == nil {
		t.Fatal("more keys of another scope were taken")
	}
}

func withoutKeys(t *testing.T, f Fixture) {
	err := f.Engine.Transact(t.Context(), nil, func(s engine.Snapshot) (engine.Plan, error) {
		if len(s.Keys) != 0 {
			return engine.Plan{}, nil
		}
		return engine.Plan{More: keys(1)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func buffersReused(t *testing.T, f Fixture) {
	it := item("before")
	mustWrite(t, f.Engine, set(key("k"), it))
	held := read(t, f.Engine, key("k"))[0]
	copy(it.Data, "after!")
	it.Version, it.Expiry = version(), 99
	got := read(t, f.Engine, key("k"))[0]
	if got == nil || string(got.Data) != "before" || got.Expiry != 0 {
		t.Fatalf("the record changed with the caller's buffer: %s", show(got))
	}
	mustWrite(t, f.Engine, set(key("k"), item("second")))
	if string(held.Data) != "before" {
		t.Fatalf("an item that was read changed to %s", show(held))
	}
}

func cancelledBefore(t *testing.T, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := write(ctx, f.Engine, set(key("k"), item("x")))
	if !errors.Is(err, context.Canceled) || errors.Is(err, engine.ErrAmbiguous) {
		t.Fatalf("Transact: %v, want context.Canceled and nothing unknown", err)
	}
	want(t, f.Engine, key("k"), nil)
	if _, err := f.Engine.Read(ctx, keys(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: %v", err)
	}
}

func cancelledUnderWay(t *testing.T, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	it := item("x")
	changes := []engine.Change{set(key("a"), it), set(key("b"), it)}
	err := f.Engine.Transact(ctx, []state.Key{key("a"), key("b")}, func(s engine.Snapshot) (engine.Plan, error) {
		cancel()
		return engine.Plan{Changes: changes, NotAfter: s.Now + minute}, nil
	})
	got := read(t, f.Engine, key("a"), key("b"))
	switch {
	case same(got[0], it) != same(got[1], it):
		t.Fatalf("half of it was written: %s, %s", show(got[0]), show(got[1]))
	case err == nil && got[0] == nil:
		t.Fatal("answered nil and wrote nothing")
	case err != nil && !errors.Is(err, engine.ErrAmbiguous) && got[0] != nil:
		t.Fatalf("answered %v, as if nothing were written, and wrote it", err)
	}
}

func largeValues(t *testing.T, f Fixture) {
	for _, size := range []int{1 << 16, 1 << 20, 5 << 20} {
		it := item("")
		it.Data = bytes.Repeat([]byte("0123456789abcdef"), size/16)
		mustWrite(t, f.Engine, set(key("large"), it), set(key("small"), item("s")))
		want(t, f.Engine, key("large"), it)
	}
}

func manyKeys(t *testing.T, f Fixture) {
	ks := keys(5000)
	changes := make([]engine.Change, len(ks))
	v := version()
	for i, k := range ks {
		changes[i] = set(k, &state.Sealed{Version: v, Expiry: int64(1 + i), Data: []byte(k.ID)})
	}
	mustWrite(t, f.Engine, changes...)
	for i, got := range read(t, f.Engine, ks...) {
		if !same(got, changes[i].Item) {
			t.Fatalf("key %d has %s", i, show(got))
		}
	}
	for i := range changes {
		changes[i].Item = nil
	}
	mustWrite(t, f.Engine, changes...)
	for i, got := range read(t, f.Engine, ks...) {
		if got != nil {
			t.Fatalf("key %d still has %s", i, show(got))
		}
	}
	found, _, err := f.Engine.Due(t.Context(), scope, engine.ByExpiry, state.KindOperation, 1<<40, "", 10)
	if err != nil || len(found) != 0 {
		t.Fatalf("the index still lists %v (%v)", found, err)
	}
}

func similarKeys(t *testing.T, f Fixture) {
	var all []engine.Change
	for _, s := range []string{"a", "ab", "a\"", "b", "é", "a/b", "{a}"} {
		for _, kind := range []state.Kind{state.KindOperation, state.KindChallenge} {
			for _, id := range []string{"a", "ab", "b", "c", "bc", "A", "a ", "\x00", "\x00\x00", "\xff", "a\x00", "a\x00b", "\"", "'", "%", "_", "\n", "1", "01", strings.Repeat("x", state.MaxIDBytes)} {
				k := state.Key{Scope: s, Kind: kind, ID: id}
				all = append(all, set(k, item(s+kind.String()+id)))
			}
		}
	}
	for _, c := range all {
		mustWrite(t, f.Engine, c)
	}
	for _, c := range all {
		want(t, f.Engine, c.Key, c.Item)
	}
}
