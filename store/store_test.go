package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

func TestOneOfManyConcurrentClaimsWins(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stores := []*store.Store{f.Store, f.open(t)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 64 {
		wg.Go(func() {
			out, err := stores[i%2].Do(context.Background(), batch(claim("k", byte(i+1))))
			if err != nil {
				t.Error(err)
				return
			}
			if out.Applied {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Fatalf("%d callers were granted one key", won)
	}
}

func TestARefusalWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	must(t, f.Store, claim("a", 1))
	before := f.dump(t, "default")
	refused(t, f.Store, state.Exists, claim("a", 2), state.Add{Key: state.Key{Scope: "default", Kind: state.KindCounter, ID: "c"}, Amount: 1})
	if after := f.dump(t, "default"); !maps.Equal(before, after) {
		t.Fatalf("records changed from %v to %v", before, after)
	}
}

func TestEveryRecordOfACommitCarriesItsVersionAndNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	seen := map[state.Version]bool{}
	for i := range 20 {
		out := must(t, f.Store, claim(fmt.Sprint(i), 1))
		v := out.Anchor.Version
		if seen[v] {
			t.Fatal("a version was drawn twice")
		}
		seen[v] = true
		if w := f.item(t, state.WriterKey("default", 1)); w.Version != v {
			t.Fatal("the writer record carries another version than the claim")
		}
	}
}

func TestInstancesNeverDrawTheSameVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	seen := map[state.Version]bool{}
	for i := range 8 {
		f.opts.Entropy = entropy.Seeded(uint64(i) + 2)
		s := f.open(t)
		for n := range 4 {
			v := must(t, s, claim(fmt.Sprint(i, "/", n), 1)).Anchor.Version
			if seen[v] {
				t.Fatal("two commits carry one version")
			}
			seen[v] = true
		}
	}
}

func TestAMissingScopeIsAnErrorAndNeverANewScope(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := claim("a", 1)
	c.Key.Scope = "nobody"
	_, err := f.Do(t.Context(), &state.Batch{Scope: "nobody", Ops: []state.Op{c}})
	if !errors.Is(err, state.ErrNoScope) {
		t.Fatalf("got %v", err)
	}
	if len(f.dump(t, "nobody")) != 0 {
		t.Fatal("something was written")
	}
	if err := f.CreateScope(t.Context(), "nobody"); err != nil {
		t.Fatal(err)
	}
	if err := f.CreateScope(t.Context(), "nobody"); !errors.Is(err, store.ErrScopeExists) {
		t.Fatalf("creating it again: %v", err)
	}
	if out, err := f.Do(t.Context(), &state.Batch{Scope: "nobody", Ops: []state.Op{c}}); err != nil || !out.Applied {
		t.Fatalf("%+v %v", out, err)
	}
	if err := f.CreateScope(t.Context(), state.StoreScope); !errors.Is(err, state.ErrInvalid) {
		t.Fatalf("the reserved scope: %v", err)
	}
}

// TestWaitingBatchesShareOneCommit holds the scope's first commit and lets
// many batches gather behind it.
func TestWaitingBatchesShareOneCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		c := &counting{Engine: f.engine}
		s, err := store.Open(t.Context(), c, f.opts)
		if err != nil {
			t.Fatal(err)
		}
		must(t, s, claim("first", 1))
		before := c.transactions()
		release := f.engine.Hold("default")
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() { must(t, s, claim(fmt.Sprint(i), 1)) })
		}
		synctest.Wait()
		release()
		wg.Wait()
		if n := c.transactions() - before; n > 3 {
			t.Fatalf("200 batches took %d commits", n)
		}
		closed(t, s)
	})
}

func TestInAGroupAnInvalidOrCorruptBatchFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		must(t, f.Store, claim("damaged", 1))
		damaged := *f.item(t, opKey("damaged"))
		damaged.Data = append([]byte(nil), damaged.Data...)
		damaged.Data[len(damaged.Data)-1] ^= 1
		f.put(t, opKey("damaged"), &damaged)
		release := f.engine.Hold("default")
		var wg sync.WaitGroup
		ops := func(ops ...state.Op) (state.Outcome, error) { return f.Do(t.Context(), batch(ops...)) }
		wg.Go(func() { must(t, f.Store, claim("first", 1)) })
		synctest.Wait()
		wg.Go(func() { must(t, f.Store, claim("good", 1)) })
		wg.Go(func() {
			if _, err := ops(claim("damaged", 2)); !errors.Is(err, state.ErrCorrupt) {
				t.Errorf("a damaged record: %v", err)
			}
		})
		wg.Go(func() {
			if _, err := ops(claim("twice", 1), claim("twice", 1)); !errors.Is(err, state.ErrInvalid) {
				t.Errorf("an invalid batch: %v", err)
			}
		})
		synctest.Wait()
		release()
		wg.Wait()
		must(t, f.Store, claim("after", 1))
		closed(t, f)
	})
}

func TestARecordUnderAnUnknownKeyIsNeitherAbsentNorCorrupt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rec := must(t, f.Store, claim("a", 1)).Anchor
	f.put(t, opKey("a"), keysOf(t, 9).Seal(opKey("a"), rec))
	_, err := f.Do(t.Context(), batch(claim("a", 2)))
	if !errors.Is(err, state.ErrKeyUnknown) || errors.Is(err, state.ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
}

func TestAnAmbiguousCommitIsSettledByTheWriterRecord(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]enginetest.Failure{
		"request lost": enginetest.LoseRequest, "reply lost": enginetest.LoseReply, "delayed": enginetest.Delay,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			must(t, f.Store, claim("before", 1))
			f.engine.Next(failure)
			must(t, f.Store, claim("a", 1))
			if n, err := f.engine.Deliver(t.Context()); err != nil || n != 0 {
				t.Fatalf("a commit that was given up was applied after all: %d %v", n, err)
			}
			refused(t, f.Store, state.Exists, claim("a", 2))
			add := state.Add{Key: state.Key{Scope: "default", Kind: state.KindCounter, ID: "c"}, Amount: 1}
			f.engine.Next(failure)
			if out := must(t, f.Store, add); out.Values[0] != 1 {
				t.Fatalf("the counter is %d", out.Values[0])
			}
			if out := must(t, f.Store, add); out.Values[0] != 2 {
				t.Fatalf("the counter is %d after two additions of 1", out.Values[0])
			}
		})
	}
}

func TestAnAmbiguousCommitThatAnotherInstanceOvertakesIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	must(t, f.Store, claim("before", 1))
	c := &counting{Engine: f.engine}
	s, err := store.Open(t.Context(), c, f.opts)
	if err != nil {
		t.Fatal(err)
	}
	f.clock.Advance(61 * time.Second)
	must(t, s, claim("its own slot", 1))
	f.engine.Next(enginetest.LoseReply)
	c.before = func(n int) {
		if n == 3 {
			// The lease of the slot ends before the commit is settled, and
			// another instance takes it.
			f.clock.Advance(61 * time.Second)
			must(t, f.open(t), claim("other", 1))
		}
	}
	if _, err := s.Do(t.Context(), batch(claim("a", 1))); !errors.Is(err, state.ErrUnknown) {
		t.Fatalf("got %v", err)
	}
	must(t, s, claim("later", 1))
}

func TestABrokenEngineLatchesTheStore(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]enginetest.Failure{"kept": enginetest.BreakAfter, "not kept": enginetest.BreakBefore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.engine.Next(failure)
			if _, err := f.Do(t.Context(), batch(claim("a", 1))); !errors.Is(err, state.ErrUnknown) {
				t.Fatalf("the failed commit: %v", err)
			}
			if _, err := f.Do(t.Context(), batch(claim("b", 1))); !errors.Is(err, state.ErrLatched) {
				t.Fatalf("afterwards: %v", err)
			}
			if _, err := f.Read(t.Context(), opKey("a")); !errors.Is(err, state.ErrLatched) {
				t.Fatalf("a read: %v", err)
			}
			if f.Health().Latched == nil {
				t.Fatal("health does not say so")
			}
			f.engine.Heal()
			again := f.open(t)
			out, err := again.Do(t.Context(), batch(claim("a", 1)))
			if err != nil || !out.Applied && !out.Repeated {
				t.Fatalf("%+v %v", out, err)
			}
			if out.Repeated != (name == "kept") {
				t.Fatalf("repeated is %v", out.Repeated)
			}
		})
	}
}

func TestAnEngineOutOfReachIsUnavailableAndWorksAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, failure := range []enginetest.Failure{enginetest.Refuse, enginetest.Contend} {
		f.engine.Next(failure)
		if _, err := f.Do(t.Context(), batch(claim("a", 1))); !errors.Is(err, state.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
	}
	must(t, f.Store, claim("a", 1))
}

func TestACallerWhoLeavesWhileWaitingHasDoneNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		release := f.engine.Hold("default")
		go func() { must(t, f.Store, claim("first", 1)) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			_, err := f.Do(ctx, batch(claim("left", 1)))
			got <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, state.ErrUnavailable) || errors.Is(err, state.ErrUnknown) {
			t.Errorf("got %v", err)
		}
		release()
		synctest.Wait()
		must(t, f.Store, claim("left", 2))
		closed(t, f)
	})
}

func TestACallerWhoLeavesDuringTheCommitGetsUnknownAndTheCommitGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		release := f.engine.Hold("default")
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			_, err := f.Do(ctx, batch(claim("a", 1)))
			got <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, state.ErrUnknown) {
			t.Errorf("got %v", err)
		}
		release()
		synctest.Wait()
		refused(t, f.Store, state.Exists, claim("a", 2))
		if n := f.Health().Unknown; n != 1 {
			t.Errorf("health counts %d unknown outcomes", n)
		}
		closed(t, f)
	})
}

func TestASlowScopeDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		if err := f.CreateScope(t.Context(), "slow"); err != nil {
			t.Fatal(err)
		}
		release := f.engine.Hold("slow")
		for i := range 100 {
			go func() {
				c := claim(fmt.Sprint(i), 1)
				c.Key.Scope = "slow"
				_, _ = f.Do(context.Background(), &state.Batch{Scope: "slow", Ops: []state.Op{c}})
			}()
		}
		synctest.Wait()
		must(t, f.Store, claim("quick", 1))
		release()
		synctest.Wait()
		closed(t, f)
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		release := f.engine.Hold("default")
		body := make([]byte, state.MaxBodyBytes)
		var mu sync.Mutex
		full := 0
		for i := range 40 {
			go func() {
				c := claim(fmt.Sprint(i), 1)
				c.Body = body
				if _, err := f.Do(context.Background(), batch(c)); errors.Is(err, state.ErrUnavailable) {
					mu.Lock()
					full++
					mu.Unlock()
				}
			}()
		}
		synctest.Wait()
		if full == 0 {
			t.Error("40 batches of 16 MiB all waited")
		}
		release()
		synctest.Wait()
		must(t, f.Store, claim("after", 1))
		closed(t, f)
	})
}

func TestCloseRefusesWhatWaitsAndFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		release := f.engine.Hold("default")
		results := make(chan error, 2)
		go func() {
			_, err := f.Do(context.Background(), batch(claim("under way", 1)))
			results <- err
		}()
		synctest.Wait()
		go func() {
			_, err := f.Do(context.Background(), batch(claim("waiting", 1)))
			results <- err
		}()
		synctest.Wait()
		go closed(t, f)
		synctest.Wait()
		if err := <-results; !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("the waiting one: %v", err)
		}
		release()
		if err := <-results; err != nil {
			t.Errorf("the one under way: %v", err)
		}
		synctest.Wait()
		if _, err := f.Do(context.Background(), batch(claim("late", 1))); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("after: %v", err)
		}
	})
}

func TestTwoStoresOnOneEngineHoldTheirCapExactly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const limit = 100
	err := f.ChangeScope(t.Context(), "default", func(body *state.Scope, _ int64) error {
		body.Caps.Live, body.Caps.OwnerLive = limit, limit
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	stores := []*store.Store{f.Store, f.open(t), f.open(t)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	applied := 0
	for i := range 150 {
		wg.Go(func() {
			out, err := stores[i%3].Do(context.Background(), batch(claim(fmt.Sprint(i), 1)))
			if err != nil {
				t.Error(err)
				return
			}
			if out.Applied {
				mu.Lock()
				applied++
				mu.Unlock()
			} else if _, full := out.Because(state.Full); !full {
				if _, full := out.Because(state.OwnerFull); !full {
					t.Errorf("refused as %v", out.Refusals)
				}
			}
		})
	}
	wg.Wait()
	if applied != limit {
		t.Fatalf("%d claims were granted under a cap of %d", applied, limit)
	}
}

func TestASlotPassesToTheNextInstanceOnlyWhenItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	must(t, f.Store, claim("a", 1))
	must(t, f.open(t), claim("b", 1))
	slots := func() (n int) {
		for key := range f.dump(t, "default") {
			if key.Kind == state.KindWriter {
				n++
			}
		}
		return n
	}
	if n := slots(); n != 3 { // the store that created the scope had one too
		t.Fatalf("three instances have %d slots", n)
	}
	for i := range 5 {
		f.clock.Advance(61 * time.Second)
		must(t, f.open(t), claim(fmt.Sprint(i), 1))
	}
	if n := slots(); n != 3 {
		t.Fatalf("the slots grew to %d with the number of starts", n)
	}
	must(t, f.Store, claim("c", 1))
}

func TestABatchThatWaitedTooLongIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		release := f.engine.Hold("default")
		go func() { _, _ = f.Do(context.Background(), batch(claim("first", 1))) }()
		synctest.Wait()
		got := make(chan state.Outcome, 1)
		go func() {
			out, err := f.Do(context.Background(), batch(claim("late", 1)))
			if err != nil {
				t.Error(err)
			}
			got <- out
		}()
		synctest.Wait()
		f.clock.Advance(61 * time.Second)
		release()
		if out := <-got; out.Applied {
			t.Error("a batch took effect a minute after it was sent")
		} else if _, ok := out.Because(state.Stale); !ok {
			t.Errorf("refused as %v", out.Refusals)
		}
		synctest.Wait()
		closed(t, f)
	})
}

func TestOpenRefusesWhatIsNotThereOrNotOurs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := store.Create(t.Context(), f.engine, f.opts); !errors.Is(err, engine.ErrStoreExists) {
		t.Fatalf("creating it again: %v", err)
	}
	other := f.opts
	other.Keys = keysOf(t, 9)
	if _, err := store.Open(t.Context(), f.engine, other); !errors.Is(err, state.ErrKeyUnknown) {
		t.Fatalf("other keys: %v", err)
	}
	both := f.opts
	both.Keys = keysOf(t, 9, 7)
	if _, err := store.Open(t.Context(), f.engine, both); !errors.Is(err, state.ErrKeyUnknown) {
		t.Fatalf("writing with a key that was not announced: %v", err)
	}
}

func TestIntegrityKeysRotateWhileTheStoreIsOpenAndRetireWhenNothingNeedsThem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	must(t, f.Store, claim("old", 1))
	old, both, next := keysOf(t, 7), keysOf(t, 7, 9), keysOf(t, 9, 7)
	if err := f.SetKeys(t.Context(), next); !errors.Is(err, state.ErrKeyUnknown) {
		t.Fatalf("writing with a key before it is announced: %v", err)
	}
	if err := f.SetKeys(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	if err := f.AnnounceKey(t.Context(), next.WriteID()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), f.engine, f.opts); !errors.Is(err, state.ErrKeyUnknown) {
		t.Fatalf("a process that does not have the new key: %v", err)
	}
	if err := f.SetKeys(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	must(t, f.Store, claim("new", 1))
	if err := f.RetireKey(t.Context(), old.WriteID()); !errors.Is(err, store.ErrKeyInUse) {
		t.Fatalf("retiring a key in use: %v", err)
	}
	version := f.item(t, opKey("old")).Version
	stale := 0
	for _, scope := range []string{state.StoreScope, "default"} {
		for key := range f.dump(t, scope) {
			if id, _ := state.SealedUnder(f.item(t, key)); id == old.WriteID() {
				stale++
			}
		}
	}
	if n, err := f.Reseal(t.Context()); err != nil || n != stale || stale == 0 {
		t.Fatalf("sealed %d records anew, want %d: %v", n, stale, err)
	}
	if f.item(t, opKey("old")).Version != version {
		t.Fatal("sealing anew changed what a record says")
	}
	if err := f.RetireKey(t.Context(), old.WriteID()); err != nil {
		t.Fatal(err)
	}
	refused(t, f.Store, state.Exists, claim("old", 2))
	opts := f.opts
	opts.Keys = keysOf(t, 9)
	s, err := store.Open(t.Context(), f.engine, opts)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, s, state.Exists, claim("old", 2))
	refused(t, s, state.Exists, claim("new", 2))
}
