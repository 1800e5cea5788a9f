package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

func TestStepsOfTheClock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step    time.Duration
		trusted bool
	}{
		{time.Second, true}, {-time.Second, true}, {90 * time.Second, true}, {-90 * time.Second, true},
		{3 * time.Minute, false}, {-3 * time.Minute, false}, {24 * time.Hour, false}, {-24 * time.Hour, false},
	} {
		t.Run(c.step.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			before := must(t, f.Store, claim("before", 1)).Now
			f.clock.Step(c.step)
			out, err := f.Do(t.Context(), batch(claim("after", 1)))
			if !c.trusted {
				if !errors.Is(err, state.ErrClock) {
					t.Fatalf("got %+v %v", out, err)
				}
				if f.item(t, opKey("after")) != nil {
					t.Fatal("something was written")
				}
				if f.Health().Clock == nil {
					t.Fatal("health does not say so")
				}
				if _, err := f.Sweep(t.Context()); !errors.Is(err, state.ErrClock) {
					t.Fatalf("the sweeper went on: %v", err)
				}
				f.clock.Step(-c.step)
				must(t, f.Store, claim("after", 1))
				return
			}
			if err != nil || !out.Applied {
				t.Fatalf("got %+v %v", out, err)
			}
			if out.Now < before {
				t.Fatalf("time went back by %d ms", before-out.Now)
			}
		})
	}
}

func TestTimeNeverGoesBackForARecordInAnyNumberOfStores(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := state.Key{Scope: "default", Kind: state.KindCounter, ID: "c"}
	other := f.open(t)
	first := must(t, f.Store, state.Add{Key: key, Amount: 1}).Now
	f.clock.Step(-time.Minute)
	if second := must(t, other, state.Add{Key: key, Amount: 1}).Now; second < first {
		t.Fatalf("the second change of a record was %d ms before the first", first-second)
	}
}

func TestARecordFarAheadOfTheClockFailsItsBatchAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rec := *must(t, f.Store, claim("ahead", 1)).Anchor
	rec.Updated += state.Tolerance + 1000
	f.put(t, opKey("ahead"), f.opts.Keys.Seal(opKey("ahead"), &rec))
	if _, err := f.Do(t.Context(), batch(claim("ahead", 2))); !errors.Is(err, state.ErrClock) {
		t.Fatalf("got %v", err)
	}
	if out := must(t, f.Store, claim("other", 1)); out.Now != f.now() {
		t.Fatal("it took part in the time of others")
	}
}

func TestRebaselineAcceptsAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.clock.Advance(24 * time.Hour) // a day too far
	must(t, f.Store, claim("ahead", 1))
	if err := f.CreateScope(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(-24 * time.Hour)
	if _, err := f.Do(t.Context(), batch(claim("b", 1))); !errors.Is(err, state.ErrClock) {
		t.Fatalf("got %v", err)
	}
	s, err := store.Rebaseline(t.Context(), f.engine, f.opts, "the clock was a day ahead")
	if err != nil {
		t.Fatal(err)
	}
	refused(t, s, state.Exists, claim("ahead", 2))
	refused(t, s, state.Recovering, claim("b", 1))
	body, err := s.Scope(t.Context(), "default")
	if err != nil || body.Floor < f.now() || body.Quarantine == "" {
		t.Fatalf("%+v %v", body, err)
	}
	if err := s.Lift(t.Context(), "default", "looked at every record", 5); err != nil {
		t.Fatal(err)
	}
	must(t, s, claim("b", 1))
	if body, _ = s.Scope(t.Context(), "default"); body.Epoch != 5 {
		t.Fatalf("the epoch is %d", body.Epoch)
	}
	if err := s.Lift(t.Context(), "other", "", 0); !errors.Is(err, state.ErrInvalid) {
		t.Fatalf("without a note: %v", err)
	}
}

// witnessed is a fixture on an engine that belongs to one process, with a
// witness beside it.
func witnessed(t *testing.T) (*fixture, func() *memory.Engine) {
	t.Helper()
	f := &fixture{clock: clock.NewManual(start)}
	inner := memory.New(f.clock)
	f.engine = enginetest.Faulty(inner)
	f.opts = store.Options{
		Keys: keysOf(t, 7), Clock: f.clock, Entropy: entropy.Seeded(1), Witness: filepath.Join(t.TempDir(), "witness"),
	}
	if err := store.Create(t.Context(), f.engine, f.opts); err != nil {
		t.Fatal(err)
	}
	return f, func() *memory.Engine { return copyOf(t, f, inner) }
}

// copyOf makes a memory engine with the same records as another.
func copyOf(t *testing.T, f *fixture, from *memory.Engine) *memory.Engine {
	t.Helper()
	to := memory.New(f.clock)
	names, _, err := from.Scopes(t.Context(), "", 100)
	if err != nil {
		t.Fatal(err)
	}
	g := &fixture{engine: enginetest.Faulty(to)}
	for _, name := range names {
		for _, kind := range state.Kinds() {
			page, _, err := from.Scan(t.Context(), name, kind, "", "", 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range page {
				g.put(t, found.Key, found.Item)
			}
		}
	}
	return to
}

func TestARolledBackEngineIsRefusedUntilRecoverAndThenQuarantined(t *testing.T) {
	t.Parallel()
	f, snapshot := witnessed(t)
	s := f.open(t)
	must(t, s, claim("old", 1))
	backup := snapshot()
	f.clock.Advance(time.Minute)
	must(t, s, claim("new", 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	if _, err := store.Open(t.Context(), backup, f.opts); !errors.Is(err, store.ErrRolledBack) {
		t.Fatalf("an old copy was opened: %v", err)
	}
	s, err := store.Recover(t.Context(), lasting{backup}, f.opts, "restored the backup of noon")
	if err != nil {
		t.Fatal(err)
	}
	refused(t, s, state.Exists, claim("old", 2))
	refused(t, s, state.Recovering, claim("new", 2))
	if g := s.Health().Generation; g != 2 {
		t.Fatalf("the generation is %d", g)
	}
	if err := s.Lift(t.Context(), "default", "the ledger shows every payment", 0); err != nil {
		t.Fatal(err)
	}
	must(t, s, claim("new", 2))
	if err := s.CreateScope(t.Context(), "later"); err != nil {
		t.Fatal(err)
	}
	if body, _ := s.Scope(t.Context(), "later"); body.Generation != 2 {
		t.Fatal("a new scope is of an old generation")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := store.Open(t.Context(), backup, f.opts)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, again)
}

func TestAWitnessIsNeverAheadOfWhatTheEngineHolds(t *testing.T) {
	t.Parallel()
	f, _ := witnessed(t)
	f.engine = enginetest.Faulty(lasting{f.engine.Engine})
	for range 3 {
		s := f.open(t)
		must(t, s, state.Check{Key: state.ScopeKey("default"), Epoch: 1}) // decided, and nothing is written
		f.clock.Advance(time.Minute)
		refused(t, s, state.Absent, state.Drop{Key: opKey("none"), Token: state.Token{1}})
		f.clock.Advance(time.Minute)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAWitnessThatCannotBeWrittenIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _ := witnessed(t)
		s := f.open(t)
		at := filepath.Dir(f.opts.Witness)
		if err := os.Rename(at, at+" away"); err != nil {
			t.Fatal(err)
		}
		f.clock.Advance(time.Minute)
		must(t, s, claim("a", 1))
		<-time.After(2 * time.Second) // of the bubble
		if err := s.Health().Witness; err == nil {
			t.Error("health does not say so")
		}
		if err := os.Rename(at+" away", at); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		if err := s.Health().Witness; err != nil {
			t.Errorf("it is written again, and health says %v", err)
		}
		closed(t, s)
	})
}

func TestAWitnessThatIsMissingDamagedOrForeignIsRefused(t *testing.T) {
	t.Parallel()
	f, _ := witnessed(t)
	good, err := os.ReadFile(f.opts.Witness)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty": "", "cut": string(good[:len(good)/2]), "zero mark": `{"format":1,"store":"","generation":0,"mark":0}`,
		"other store": `{"format":1,"store":"00","generation":1,"mark":1}`, "newer": `{"format":2,"store":"00","generation":1,"mark":1}`,
	} {
		if err := os.WriteFile(f.opts.Witness, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Open(t.Context(), f.engine, f.opts); err == nil {
			t.Fatalf("%s: opened", name)
		}
	}
	if err := os.Remove(f.opts.Witness); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), f.engine, f.opts); err == nil {
		t.Fatal("opened without its witness")
	}
	if err := os.Symlink("/dev/null", f.opts.Witness); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), f.engine, f.opts); err == nil {
		t.Fatal("opened with a link in place of its witness")
	}
}

// lasting is an engine that stays open when its store is closed.
type lasting struct{ engine.Engine }

func (lasting) Close() error { return nil }

func TestRecoverThatWasCutOffIsRunAgain(t *testing.T) {
	t.Parallel()
	f, _ := witnessed(t)
	s := f.open(t)
	for i := range 5 {
		if err := s.CreateScope(t.Context(), fmt.Sprint("scope", i)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 12 {
		f.engine.Plan(func(_ string, call int) enginetest.Failure {
			if call >= n {
				return enginetest.Refuse
			}
			return enginetest.None
		})
		if s, err := store.Recover(t.Context(), lasting{f.engine}, f.opts, "test"); err == nil {
			closed(t, s)
		}
		f.engine.Plan(nil)
	}
	s, err := store.Recover(t.Context(), lasting{f.engine}, f.opts, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	generation := s.Health().Generation
	names, _, err := s.Scopes(t.Context(), "", 100)
	if err != nil || len(names) != 6 {
		t.Fatalf("%v %v", names, err)
	}
	for _, name := range names {
		body, err := s.Scope(t.Context(), name)
		if err != nil || body.Generation != generation || body.Quarantine == "" {
			t.Fatalf("scope %s: %+v %v", name, body, err)
		}
	}
}
