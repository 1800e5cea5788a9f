package enginetest

import (
	"errors"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// A rival changes what a transaction has read, between its snapshot and its
// commit. It reads the transaction's result too, so that the order of the two
// shows: seen absent, the rival came first and the result must rest on the
// rival's change; seen present, it came second.
type rival struct {
	name          string
	before, after *state.Sealed // the key that is only read
}

func readSetClauses() []clause {
	all := make([]clause, 0, 6)
	for _, r := range []rival{
		{name: "KeyThatWasOnlyReadIsCompared", before: item("old"), after: item("new")},
		{name: "AbsentKeyThatWasOnlyReadIsCompared", after: item("new")},
		{name: "KeyDeletedMeanwhileIsCompared", before: item("old")},
	} {
		all = append(all, clause{r.name, nil, r.test})
	}
	return append(all,
		clause{"KeyRecreatedWithTheSameBytesIsCompared", nil, sameBytesCompared},
		clause{"KeyOfAnEarlierRoundIsCompared", nil, earlierRoundCompared},
		clause{"ChangedKeyIsCompared", nil, changedKeyCompared},
		clause{"ConflictsForEverEndWithNothingWritten", nil, conflictsForEver},
	)
}

// rival is the handle through which somebody else meddles: of another process
// where there can be one.
func (f Fixture) rival(t *testing.T) engine.Engine {
	t.Helper()
	if f.Second != nil {
		return f.Second(t)
	}
	return f.Engine
}

// meddle runs other while a function of f.Engine is being called: at once where
// other is of another process, which nothing holds off; beside it on an embedded
// engine, which may make other wait until the function has returned.
func meddle(f Fixture, wg *sync.WaitGroup, other func()) {
	if f.Engine.Guarantee().Shared {
		other()
		return
	}
	wg.Go(other)
}

func (r rival) test(t *testing.T, f Fixture) {
	source, result := key("source"), key("result")
	if r.before != nil {
		mustWrite(t, f.Engine, set(source, r.before))
	}
	raceOnce(t, f, source, result, []engine.Change{set(source, r.after)})
}

// raceOnce copies source to result while a rival applies changes to source.
func raceOnce(t *testing.T, f Fixture, source, result state.Key, rivals ...[]engine.Change) {
	t.Helper()
	var wg sync.WaitGroup
	var once sync.Once
	var rivalSawResult bool
	with := f.rival(t)
	other := func() {
		for _, changes := range rivals {
			err := with.Transact(t.Context(), []state.Key{source, result}, func(s engine.Snapshot) (engine.Plan, error) {
				rivalSawResult = s.Items[1] != nil
				return engine.Plan{Changes: changes, NotAfter: s.Now + minute}, nil
			})
			if err != nil {
				t.Errorf("rival: %v", err)
			}
		}
	}
	first := read(t, f.Engine, source)[0]
	var last *state.Sealed
	err := f.Engine.Transact(t.Context(), []state.Key{source, result}, func(s engine.Snapshot) (engine.Plan, error) {
		once.Do(func() { meddle(f, &wg, other) })
		last = s.Items[0]
		return engine.Plan{Changes: []engine.Change{set(result, item("made"))}, NotAfter: s.Now + minute}, nil
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	changed := rivals[len(rivals)-1][0].Item
	want(t, f.Engine, source, changed)
	switch {
	case rivalSawResult && !same(last, first):
		t.Fatalf("the rival came second, and the transaction rests on %s, want %s", show(last), show(first))
	case !rivalSawResult && !same(last, changed):
		t.Fatalf("the rival came first, and the transaction rests on %s, want %s", show(last), show(changed))
	}
}

func sameBytesCompared(t *testing.T, f Fixture) {
	source, result := key("source"), key("result")
	old, again := item("same"), item("same")
	mustWrite(t, f.Engine, set(source, old))
	if f.Engine.Guarantee().Shared {
		raceOnce(t, f, source, result, []engine.Change{set(source, nil)}, []engine.Change{set(source, again)})
		return
	}
	raceOnce(t, f, source, result, []engine.Change{set(source, again)})
}

func earlierRoundCompared(t *testing.T, f Fixture) {
	first, second, result := key("first"), key("second"), key("result")
	mustWrite(t, f.Engine, set(first, item("old")))
	changed := item("new")
	var wg sync.WaitGroup
	var once sync.Once
	var rivalSawResult bool
	with := f.rival(t)
	other := func() {
		err := with.Transact(t.Context(), []state.Key{first, result}, func(s engine.Snapshot) (engine.Plan, error) {
			rivalSawResult = s.Items[1] != nil
			return engine.Plan{Changes: []engine.Change{set(first, changed)}, NotAfter: s.Now + minute}, nil
		})
		if err != nil {
			t.Errorf("rival: %v", err)
		}
	}
	var last *state.Sealed
	err := f.Engine.Transact(t.Context(), []state.Key{first}, func(s engine.Snapshot) (engine.Plan, error) {
		if len(s.Keys) == 1 {
			return engine.Plan{More: []state.Key{second, result}}, nil
		}
		once.Do(func() { meddle(f, &wg, other) })
		last = s.Items[0]
		return engine.Plan{Changes: []engine.Change{set(result, item("made"))}, NotAfter: s.Now + minute}, nil
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !rivalSawResult && !same(last, changed) {
		t.Fatalf("the rival came first, and the transaction rests on %s", show(last))
	}
}

func changedKeyCompared(t *testing.T, f Fixture) {
	k := key("k")
	var wg sync.WaitGroup
	var once sync.Once
	increment := func(e engine.Engine, during func()) {
		err := e.Transact(t.Context(), []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
			during()
			return engine.Plan{Changes: []engine.Change{set(k, counted(count(s.Items[0])+1))}, NotAfter: s.Now + minute}, nil
		})
		if err != nil {
			t.Errorf("Transact: %v", err)
		}
	}
	with := f.rival(t)
	increment(f.Engine, func() {
		once.Do(func() { meddle(f, &wg, func() { increment(with, func() {}) }) })
	})
	wg.Wait()
	if got := count(read(t, f.Engine, k)[0]); got != 2 {
		t.Fatalf("two increments made %d", got)
	}
}

// conflictsForEver changes the key under every attempt: the engine must give up
// with ErrConflict, or with ErrUnavailable if it holds others off, and the one
// that waits for them then. An engine that always holds others off never meets a
// conflict.
func conflictsForEver(t *testing.T, f Fixture) {
	if !f.Engine.Guarantee().Shared {
		changedKeyCompared(t, f)
		return
	}
	k, result := key("k"), key("result")
	with := f.rival(t)
	err := f.Engine.Transact(t.Context(), []state.Key{k, result}, func(s engine.Snapshot) (engine.Plan, error) {
		err := with.Transact(t.Context(), []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
			return engine.Plan{Changes: []engine.Change{set(k, item("moved"))}, NotAfter: s.Now + minute}, nil
		})
		if err != nil && !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("the change under it: %v", err)
		}
		return engine.Plan{Changes: []engine.Change{set(result, item("x"))}, NotAfter: s.Now + minute}, nil
	})
	if !errors.Is(err, engine.ErrConflict) && !errors.Is(err, engine.ErrUnavailable) {
		t.Fatalf("Transact: %v, want ErrConflict or ErrUnavailable", err)
	}
	want(t, f.Engine, result, nil)
}
