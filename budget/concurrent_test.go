package budget_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/state"
)

// step is what a worker does to one of a few holds that all workers share.
type step struct {
	what   int
	hold   int
	amount uint64
}

// ledger is what the workers were told, summed up independently of what is stored.
type ledger struct {
	mu       sync.Mutex
	taken    map[int]uint64 // by hold: what its grant reserved
	captured map[int]uint64
	ended    map[int]int // how many settlements were told to be the first
	tokens   map[int]state.Token
	spent    uint64
	over     []budget.Figures // grants above the limit
}

func (l *ledger) grant(list []budget.Figures) {
	for _, f := range list {
		if f.Amount > 0 && f.Spent+f.Held > f.Limit {
			l.over = append(l.over, f)
		}
	}
}

var holdAmounts = []uint64{3, 5, 8, 13, 21, 1, 2, 30}

// act does one step and enters what it was told into the ledger. It gives an error that nothing explains.
func (l *ledger) act(on *rig, worker, n int, s step) error {
	id := ids.Hold(owner, strconv.Itoa(s.hold))
	list := []budget.Entry{{Budget: "org/a", Amount: s.amount}}
	settled := func(repeated bool, captured []budget.Entry) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if repeated {
			return
		}
		l.ended[s.hold]++
		for _, e := range captured {
			l.captured[s.hold] += e.Amount
		}
	}
	switch s.what {
	case 0, 1:
		got, err := on.Hold(ctx(), budget.HoldParams{
			Scope: scope, Owner: owner, RequestID: strconv.Itoa(s.hold), TTL: time.Hour, Entries: []budget.Entry{{Budget: "org/a", Amount: holdAmounts[s.hold]}},
		})
		if err == nil && !got.Repeated {
			l.mu.Lock()
			l.taken[s.hold] += holdAmounts[s.hold]
			l.grant(got.Budgets)
			l.mu.Unlock()
		}
		return known(err, budget.ErrExceeded, budget.ErrHoldSettled)
	case 2:
		got, err := on.Spend(ctx(), budget.SpendParams{Scope: scope, Owner: owner, RequestID: strconv.Itoa(worker) + "/" + strconv.Itoa(n), Entries: list})
		if err == nil {
			l.mu.Lock()
			l.spent += s.amount
			l.grant(got.Budgets)
			l.mu.Unlock()
		}
		return known(err, budget.ErrExceeded)
	case 3:
		got, err := on.Capture(ctx(), budget.CaptureParams{Scope: scope, Owner: owner, HoldID: id, Capture: &list})
		if err == nil {
			settled(got.Repeated, got.Captured)
		}
		return known(err, budget.ErrHoldUnknown, budget.ErrHoldFenced, budget.ErrHoldSettled)
	case 4:
		got, err := on.Void(ctx(), budget.VoidParams{Scope: scope, Owner: owner, HoldID: id})
		if err == nil {
			settled(got.Repeated, nil)
		}
		return known(err, budget.ErrHoldUnknown, budget.ErrHoldFenced, budget.ErrHoldSettled)
	case 5:
		_, err := on.extend(id, time.Duration(s.amount+60)*time.Minute)
		return known(err, budget.ErrHoldUnknown, budget.ErrHoldFenced, budget.ErrHoldSettled)
	case 6:
		return l.fence(on, id, worker, n, s.hold)
	}
	return l.settle(on, id, worker, n, s, settled)
}

func (l *ledger) fence(on *rig, id string, worker, n, hold int) error {
	token, err := on.Token()
	if err != nil {
		return err
	}
	part, err := on.Fence(ctx(), scope, budget.FenceParams{HoldID: id, Owner: owner, NewToken: token})
	if err != nil {
		return err
	}
	out, at := on.do("fence"+strconv.Itoa(worker)+"/"+strconv.Itoa(n), part)
	_, err = part.Read(&out, at[0])
	if out.Applied {
		l.mu.Lock()
		l.tokens[hold] = token
		l.mu.Unlock()
	}
	if budget.Again(err) {
		return nil
	}
	return known(err, budget.ErrHoldUnknown, budget.ErrHoldFenced, budget.ErrHoldSettled)
}

func (l *ledger) settle(on *rig, id string, worker, n int, s step, settled func(bool, []budget.Entry)) error {
	l.mu.Lock()
	token, ok := l.tokens[s.hold]
	l.mu.Unlock()
	if !ok {
		return nil
	}
	p := budget.SettleParams{HoldID: id, Token: token, Capture: &[]budget.Entry{{Budget: "org/a", Amount: s.amount}}}
	build := on.SettleHold
	if s.amount%4 == 0 {
		build = on.VoidHold
	}
	part, err := build(ctx(), scope, p)
	if err != nil {
		return err
	}
	out, at := on.do("settle"+strconv.Itoa(worker)+"/"+strconv.Itoa(n), part)
	res, err := part.Read(&out, at[0])
	if out.Applied {
		settled(false, res.Captured)
	}
	return known(err, budget.ErrHoldSettled)
}

func known(err error, explained ...error) error {
	for _, e := range explained {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// TestWhatConcurrentCallersAreToldAddsUp: over two stores on one engine, per hold taken = captured + returned + still held,
// no hold ends twice, and no grant makes the use exceed the limit.
func TestWhatConcurrentCallersAreToldAddsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := storetest.Memory(t)
		on := []*rig{newRig(t, f), {Fixture: f, Budgets: budget.New(f.Second(), budget.Options{}), t: t}}
		on[0].define("org", 60, "")
		on[0].define("org/a", 50, "org")
		l := &ledger{taken: map[int]uint64{}, captured: map[int]uint64{}, ended: map[int]int{}, tokens: map[int]state.Token{}}
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{rapid.IntRange(0, 7).Draw(t, "what"), rapid.IntRange(0, len(holdAmounts)-1).Draw(t, "hold"), rapid.Uint64Range(0, 40).Draw(t, "amount")}
		}), 32, 128).Draw(rt, "steps")
		const workers = 8
		var failures [workers]error
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for n := w; n < len(steps) && failures[w] == nil; n += workers {
					failures[w] = l.act(on[w%2], w, n, steps[n])
				}
			})
		}
		wg.Wait()
		if err := errors.Join(failures[:]...); err != nil {
			rt.Fatal(err)
		}
		if len(l.over) > 0 {
			rt.Fatalf("granted above the limit: %+v", l.over)
		}
		l.balance(rt, on[0])
	})
}

// balance compares what the workers were told with what is stored.
func (l *ledger) balance(t *rapid.T, r *rig) {
	spent, held := l.spent, uint64(0)
	for hold, taken := range l.taken {
		if taken != holdAmounts[hold] {
			t.Fatalf("hold %d was granted %d times", hold, taken/holdAmounts[hold])
		}
		spent += l.captured[hold]
		state := r.holdState(ids.Hold(owner, strconv.Itoa(hold)))
		open := state == budget.HoldOpen || state == budget.HoldFenced
		if ended := l.ended[hold]; ended > 1 || (ended == 1) == open {
			t.Fatalf("hold %d was settled %d times and is %s", hold, ended, state)
		}
		if open {
			held += taken
		}
	}
	for _, name := range []string{"org", "org/a"} {
		b, err := r.Get(ctx(), budget.GetParams{Scope: scope, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if b.Spent != spent || b.Held != held {
			t.Fatalf("%s stands at %d spent, %d held; what was told adds up to %d, %d", name, b.Spent, b.Held, spent, held)
		}
	}
}
