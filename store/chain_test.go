package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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

// foretelling is an engine that shows what it expects, as those over a network
// do, so that two groups of a scope are under way at once. What is sent can be
// held up, and fail.
type foretelling struct {
	engine.Engine
	guess  *engine.Guess
	send   func(n int) enginetest.Failure // called before the n-th guess is compared, from 0
	answer func(n int)                    // called before it is answered

	mu   sync.Mutex
	sent int
	late []func() bool // what was delayed; each reports whether it was applied
}

func newForetelling(inner engine.Engine) *foretelling {
	return &foretelling{Engine: inner, guess: engine.NewGuess(), send: func(int) enginetest.Failure { return enginetest.None }, answer: func(int) {}}
}

func (f *foretelling) Guarantee() engine.Guarantee {
	g := f.Engine.Guarantee()
	g.Pipeline = 2
	return g
}

func (f *foretelling) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	leave, err := f.guess.Together(ctx, keys[0].Scope)
	if err != nil {
		return err
	}
	snap, plan, ok := f.guess.Foretell(keys, time.Hour, fn)
	if ok {
		err = f.sendGuess(ctx, snap, plan)
	}
	leave()
	if ok && !errors.Is(err, engine.ErrConflict) {
		return err
	}
	if leave, err = f.guess.Alone(ctx, keys[0].Scope); err != nil {
		return err
	}
	defer leave()
	return f.Engine.Transact(ctx, keys, func(s engine.Snapshot) (engine.Plan, error) {
		f.guess.Read(s, time.Hour)
		plan, err := fn(s)
		if err == nil {
			f.guess.Written(plan.Changes)
		}
		return plan, err
	})
}

func (f *foretelling) sendGuess(ctx context.Context, snap engine.Snapshot, plan engine.Plan) error {
	f.mu.Lock()
	n := f.sent
	f.sent++
	f.mu.Unlock()
	apply := func() error {
		return f.Engine.Transact(ctx, snap.Keys, func(s engine.Snapshot) (engine.Plan, error) {
			if s.Lineage != snap.Lineage {
				return engine.Plan{}, engine.ErrConflict
			}
			for i, item := range s.Items {
				if (item == nil) != (snap.Items[i] == nil) || item != nil && item.Version != snap.Items[i].Version {
					return engine.Plan{}, engine.ErrConflict
				}
			}
			return plan, nil
		})
	}
	failure := f.send(n)
	defer f.answer(n)
	switch failure {
	case enginetest.LoseReply:
		if err := apply(); err != nil {
			return err
		}
		return engine.ErrAmbiguous
	case enginetest.Delay:
		f.mu.Lock()
		f.late = append(f.late, func() bool { return apply() == nil })
		f.mu.Unlock()
		return engine.ErrAmbiguous
	case enginetest.LoseRequest:
		return engine.ErrAmbiguous
	case enginetest.Contend:
		return engine.ErrConflict
	}
	return apply()
}

// deliver applies what was delayed, and counts what was still possible.
func (f *foretelling) deliver() (applied int) {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for _, apply := range late {
		if apply() {
			applied++
		}
	}
	return applied
}

// newChained is a store on such an engine, of which everything that two groups
// need is known.
func newChained(t *testing.T) (*store.Store, *foretelling, *replica) {
	t.Helper()
	c := clock.NewManual(start)
	data := enginetest.Faulty(memory.New(c))
	r := &replica{data: data, lineage: engine.Lineage{ID: "one"}, level: engine.Node}
	f := newForetelling(lineal{data, r})
	o := store.Options{Keys: keysOf(t, 7), Clock: c, Entropy: entropy.Seeded(1)}
	if err := store.Create(t.Context(), f, o); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, add())
	return s, f, r
}

func add() state.Add {
	return state.Add{Key: state.Key{Scope: "default", Kind: state.KindCounter, ID: "c"}, Amount: 1}
}

// behind is how many callers wait behind the first one: enough for a second group.
const behind = 32

func TestTwoGroupsUnderWayAreAppliedOnceEachWhateverBecomesOfTheirMessages(t *testing.T) {
	t.Parallel()
	kinds := []enginetest.Failure{enginetest.None, enginetest.LoseReply, enginetest.LoseRequest, enginetest.Delay, enginetest.Contend}
	for _, first := range kinds {
		for _, second := range kinds {
			for _, overtaken := range []bool{false, true} {
				t.Run(fmt.Sprint(first, " then ", second, ", overtaken ", overtaken), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { twoGroups(t, first, second, overtaken) })
				})
			}
		}
	}
}

// twoGroups has two groups under way, the second decided on the first, whose
// messages end as told. Overtaken: the second one's message arrives first.
func twoGroups(t *testing.T, first, second enginetest.Failure, overtaken bool) {
	s, f, _ := newChained(t)
	gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
	begun := f.sent
	f.send = func(n int) enginetest.Failure {
		switch n - begun {
		case 0:
			<-gates[0]
			return first
		case 1:
			<-gates[1]
			return second
		}
		return enginetest.None
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[uint64]bool{1: true}
	call := func() {
		out, err := s.Do(context.Background(), batch(add()))
		if err != nil || !out.Applied {
			t.Errorf("applied %v: %v", out.Applied, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if seen[out.Values[0]] {
			t.Errorf("two callers were told %d", out.Values[0])
		}
		seen[out.Values[0]] = true
	}
	wg.Go(call)
	synctest.Wait()
	for range behind {
		wg.Go(call)
	}
	synctest.Wait()
	if f.sent-begun != 2 {
		t.Fatalf("%d groups are under way", f.sent-begun)
	}
	at := 0
	if overtaken {
		at = 1
	}
	close(gates[at])
	synctest.Wait()
	close(gates[1-at])
	wg.Wait()
	if n := f.deliver(); n != 0 {
		t.Errorf("%d commits that were given up were applied after all", n)
	}
	if out := must(t, s, add()); out.Values[0] != behind+3 {
		t.Errorf("%d additions of 1 make %d", behind+3, out.Values[0])
	}
	closed(t, s)
}

func TestManyGroupsUnderWayLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	s, f, _ := newChained(t)
	kinds := []enginetest.Failure{enginetest.LoseReply, enginetest.LoseRequest, enginetest.Delay, enginetest.Contend}
	failing := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	f.send = func(n int) enginetest.Failure {
		mu.Lock()
		defer mu.Unlock()
		if failing.IntN(4) > 0 {
			return enginetest.None
		}
		if failing.IntN(8) == 0 {
			f.deliver()
		}
		return kinds[failing.IntN(len(kinds))]
	}
	const callers, calls = 128, 100
	var wg sync.WaitGroup
	var once sync.Mutex
	seen := map[uint64]bool{1: true}
	for range callers {
		wg.Go(func() {
			for range calls {
				out, err := s.Do(context.Background(), batch(add()))
				if err != nil || !out.Applied {
					t.Errorf("applied %v: %v", out.Applied, err)
					return
				}
				once.Lock()
				if seen[out.Values[0]] {
					t.Errorf("two callers were told %d", out.Values[0])
				}
				seen[out.Values[0]] = true
				once.Unlock()
			}
		})
	}
	wg.Wait()
	f.deliver()
	if out := must(t, s, add()); out.Values[0] != callers*calls+2 {
		t.Errorf("%d additions of 1 make %d", callers*calls+2, out.Values[0])
	}
	closed(t, s)
}

func TestGroupsThatAreAnsweredInAnotherOrderAreNotMissedAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, r := newChained(t)
		begun := f.sent
		first := make(chan struct{})
		f.answer = func(n int) {
			if n == begun {
				<-first
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { must(t, s, add()) })
		synctest.Wait()
		for range behind {
			wg.Go(func() { must(t, s, add()) })
		}
		synctest.Wait()
		if f.sent-begun < 2 {
			t.Error("no second group was answered before the first")
		}
		close(first)
		wg.Wait()
		data, _ := r.now()
		r.become(data, engine.Lineage{ID: "two"})
		must(t, s, add())
		if body, err := s.Scope(t.Context(), "default"); err != nil || body.Quarantine != "" || body.Lineage != "two" {
			t.Errorf("%+v %v", body, err)
		}
		closed(t, s)
	})
}

func TestADoubtfulCommitThatIsThereAfterARestartIsNoLoss(t *testing.T) {
	t.Parallel()
	s, f, r := newChained(t)
	data, _ := r.now()
	f.send = func(int) enginetest.Failure { return enginetest.LoseReply }
	f.answer = func(int) {
		data.(*enginetest.FaultyEngine).Next(enginetest.Refuse)
		r.become(data, engine.Lineage{ID: "two"})
	}
	if _, err := s.Do(t.Context(), batch(add())); !errors.Is(err, state.ErrUnknown) {
		t.Fatalf("it could not be settled: %v", err)
	}
	f.send = func(int) enginetest.Failure { return enginetest.None }
	f.answer = func(int) {}
	if out := must(t, s, add()); out.Values[0] != 3 {
		t.Errorf("the third addition makes %d", out.Values[0])
	}
	if body, err := s.Scope(t.Context(), "default"); err != nil || body.Quarantine != "" || body.Lineage != "two" {
		t.Errorf("%+v %v", body, err)
	}
}

// TestInstancesThatTakeEachOthersSeatsLoseAndRepeatNothing has several instances work on one counter, with messages that are
// lost, delivered late and overtaken, while leases end and new instances take the seats. What is told as applied is there once,
// what is told as unknown at most once, and what is refused not at all.
func TestInstancesThatTakeEachOthersSeatsLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	var unknown atomic.Int64
	t.Cleanup(func() { // after all seeds
		if unknown.Load() == 0 {
			t.Error("nobody lost a seat with a commit in doubt, so that this test shows little")
		}
	})
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			unknown.Add(newCrowd(t, seed).work())
		})
	}
}

// crowd is some instances on one engine, whose clock and messages are at the mercy of chance.
type crowd struct {
	t       *testing.T
	clock   *clock.Manual
	data    *memory.Engine
	options store.Options

	mu               sync.Mutex
	random           *rand.Rand
	late             []*foretelling
	applied, unknown int64
	told             map[uint64]bool
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	t.Helper()
	c := clock.NewManual(start)
	w := &crowd{t: t, clock: c, data: memory.New(c), options: store.Options{Keys: keysOf(t, 7), Clock: c}, random: rand.New(rand.NewPCG(seed, 1)), told: map[uint64]bool{}}
	if err := store.Create(t.Context(), w.data, w.options); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *crowd) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// open opens one more instance.
func (w *crowd) open() *store.Store {
	f := newForetelling(w.data.Share())
	kinds := []enginetest.Failure{enginetest.LoseReply, enginetest.LoseRequest, enginetest.Delay, enginetest.Contend}
	f.send = func(int) enginetest.Failure {
		if w.draw(3) > 0 {
			return enginetest.None
		}
		failure := kinds[w.draw(len(kinds))]
		if w.draw(4) == 0 { // another takes the seat before that is settled
			w.clock.Advance(61 * time.Second)
			for range 2 {
				w.add(w.plain())
			}
		}
		return failure
	}
	w.mu.Lock()
	w.late = append(w.late, f)
	w.mu.Unlock()
	return w.opened(f)
}

// plain opens an instance whose messages all arrive.
func (w *crowd) plain() *store.Store { return w.opened(w.data.Share()) }

func (w *crowd) opened(e engine.Engine) *store.Store {
	s, err := store.Open(context.Background(), e, w.options)
	if err != nil {
		w.t.Error(err)
		return s
	}
	w.t.Cleanup(func() { closed(w.t, s) })
	return s
}

func (w *crowd) deliver() {
	w.mu.Lock()
	late := w.late[w.random.IntN(len(w.late))]
	w.mu.Unlock()
	late.deliver()
}

// add adds 1, and notes what is told.
func (w *crowd) add(s *store.Store) {
	out, err := s.Do(context.Background(), batch(add()))
	w.mu.Lock()
	defer w.mu.Unlock()
	_, stale := out.Because(state.Stale)
	switch {
	case errors.Is(err, state.ErrUnknown):
		w.unknown++
	case errors.Is(err, state.ErrUnavailable), stale:
	case err != nil || !out.Applied:
		w.t.Errorf("applied %v, refused %+v: %v", out.Applied, out.Refusals, err)
	case w.told[out.Values[0]]:
		w.t.Errorf("two callers were told %d", out.Values[0])
	default:
		w.applied++
		w.told[out.Values[0]] = true
	}
}

func (w *crowd) work() (unknown int64) {
	var wg sync.WaitGroup
	for range 2 {
		s := w.open()
		for range 40 {
			wg.Go(func() {
				for range 3 {
					w.add(s)
					w.deliver()
				}
			})
		}
	}
	wg.Wait()
	for range 10 {
		w.deliver()
	}
	got := int64(must(w.t, w.plain(), add()).Values[0]) - 1
	if got < w.applied || got > w.applied+w.unknown {
		w.t.Errorf("%d additions of 1 were applied, and %d may have been: together they make %d", w.applied, w.unknown, got)
	}
	return w.unknown
}
