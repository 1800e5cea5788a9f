package enginetest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

func concurrencyClauses() []clause {
	return []clause{
		{"ConcurrentIncrementsLoseNone", nil, incrementsLoseNone},
		{"TwoHandlesLoseNoIncrement", hasSecond, twoHandlesLoseNone},
		{"SecondHandleSeesWhatTheFirstWrote", hasSecond, secondSees},
		{"ClosingOneHandleLeavesTheOther", hasSecond, closingLeavesOther},
		{"OneOfManyCreatorsWins", nil, oneCreatorWins},
		{"SnapshotsNeverShowHalfATransaction", nil, neverHalf},
	}
}

func hasSecond(f Fixture) bool { return f.Second != nil }

// transact repeats a transaction that ended by conflicts, of which nothing was
// written.
func transact(ctx context.Context, e engine.Engine, ks []state.Key, fn engine.Func) error {
	for {
		if err := e.Transact(ctx, ks, fn); !errors.Is(err, engine.ErrConflict) {
			return err
		}
	}
}

func increment(ctx context.Context, e engine.Engine, k state.Key) error {
	return incrementMeeting(ctx, e, k, func() {})
}

// incrementMeeting calls together between the read and the write.
func incrementMeeting(ctx context.Context, e engine.Engine, k state.Key, together func()) error {
	return transact(ctx, e, []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
		together()
		return engine.Plan{Changes: []engine.Change{set(k, counted(count(s.Items[0])+1))}, NotAfter: s.Now + minute}, nil
	})
}

const (
	callers = 8
	each    = 25
)

func incrementAll(t *testing.T, f Fixture, engines ...engine.Engine) {
	t.Helper()
	together := meeting(f, 2)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range each {
				if err := incrementMeeting(t.Context(), engines[i%len(engines)], key("counter"), together); err != nil {
					t.Errorf("caller %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	for _, e := range engines {
		if got := count(read(t, e, key("counter"))[0]); got != callers*each {
			t.Errorf("%d increments made %d", callers*each, got)
		}
	}
}

func incrementsLoseNone(t *testing.T, f Fixture) { incrementAll(t, f, f.Engine) }

func twoHandlesLoseNone(t *testing.T, f Fixture) { incrementAll(t, f, f.Engine, f.Second(t)) }

func secondSees(t *testing.T, f Fixture) {
	other := f.Second(t)
	for i := range 10 {
		it := item(strconv.Itoa(i))
		it.Expiry = int64(i)
		mustWrite(t, f.Engine, set(key("k"), it))
		want(t, other, key("k"), it)
		it = item("back")
		mustWrite(t, other, set(key("k"), it))
		want(t, f.Engine, key("k"), it)
	}
}

func closingLeavesOther(t *testing.T, f Fixture) {
	other := f.Second(t)
	it := item("x")
	mustWrite(t, f.Engine, set(key("k"), it))
	if err := f.Engine.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, other, key("k"), it)
	mustWrite(t, other, set(key("k"), nil))
}

// meeting makes the first n calls wait for each other, so that all of them have
// read before one writes, unless the engine lets one caller in at a time.
func meeting(f Fixture, n int) func() {
	if !f.Engine.Guarantee().Shared {
		return func() {}
	}
	var mu sync.Mutex
	all := make(chan struct{})
	return func() {
		mu.Lock()
		if n--; n == 0 {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
		case <-time.After(time.Second): // they cannot meet
		}
	}
}

func oneCreatorWins(t *testing.T, f Fixture) {
	taken := errors.New("taken")
	for _, k := range keys(20) {
		together := meeting(f, 2)
		var wg sync.WaitGroup
		wins := make([]*state.Sealed, callers)
		for i := range callers {
			wg.Go(func() {
				mine := item(strconv.Itoa(i))
				err := transact(t.Context(), f.Engine, []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
					if s.Items[0] != nil {
						return engine.Plan{}, taken
					}
					together()
					return engine.Plan{Changes: []engine.Change{set(k, mine)}, NotAfter: s.Now + minute}, nil
				})
				switch {
				case err == nil:
					wins[i] = mine
				case !errors.Is(err, taken):
					t.Errorf("caller %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		var winner *state.Sealed
		for _, w := range wins {
			if w != nil && winner != nil {
				t.Fatal("two callers created one key")
			}
			if w != nil {
				winner = w
			}
		}
		if winner == nil {
			t.Fatal("nobody created the key")
		}
		want(t, f.Engine, k, winner)
	}
}

// neverHalf writes one number to several keys at once while others read them.
func neverHalf(t *testing.T, f Fixture) {
	ks := keys(6)
	whole := func(items []*state.Sealed) {
		for _, it := range items {
			if count(it) != count(items[0]) {
				t.Errorf("a snapshot shows %d beside %d", count(it), count(items[0]))
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers, readers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for range 50 {
				err := transact(ctx, f.Engine, ks, func(s engine.Snapshot) (engine.Plan, error) {
					whole(s.Items)
					changes := make([]engine.Change, len(ks))
					for i, k := range ks {
						changes[i] = set(k, counted(count(s.Items[0])+1))
					}
					return engine.Plan{Changes: changes, NotAfter: s.Now + minute}, nil
				})
				if err != nil {
					t.Errorf("writer: %v", err)
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				snap, err := f.Engine.Read(ctx, ks)
				if err == nil {
					whole(snap.Items)
				} else if ctx.Err() == nil {
					t.Errorf("reader: %v", err)
					return
				}
			}
		})
	}
	writers.Wait()
	cancel()
	readers.Wait()
	if got := count(read(t, f.Engine, ks[0])[0]); got != 100 {
		t.Errorf("100 increments made %d", got)
	}
}
