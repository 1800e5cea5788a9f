package redis

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

// twoEngines are of two processes on one server.
func twoEngines(t *testing.T) (server *testserver.RedisServer, a, b *Engine) {
	t.Helper()
	server = testserver.Redis(t, testserver.RedisOptions{})
	must(t, Create(t.Context(), server.URL(), Options{}))
	return server, open(t, server.URL(), Options{}), open(t, server.URL(), Options{})
}

// once increments the counter under k, or says why that did not go at the first
// attempt.
func once(t *testing.T, e *Engine, k state.Key) (applied bool, err error) {
	t.Helper()
	_, applied, err = e.attempt(t.Context(), []state.Key{k}, nil, func(s engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{Changes: []engine.Change{{Key: k, Item: item(count(s.Items[0]) + 1)}}, NotAfter: s.Now + minute}, nil
	})
	return applied, err
}

func TestOnlyTheChangesOfWhoHasATurnAreApplied(t *testing.T) {
	t.Parallel()
	_, a, b := twoEngines(t)
	k := key("counter")
	renew := func() {
		t.Helper()
		if left, err := a.askTurn(t.Context(), scope, "1000", time.Hour); err != nil || left != 0 {
			t.Fatalf("a turn that nobody else had is somebody's for %s: %v", left, err)
		}
	}
	a.turns.took(scope, boot()+time.Minute, func() {})
	renew()
	if applied, err := once(t, b, k); applied || !errors.Is(err, errTurn) {
		t.Errorf("a change in the turn of another: %v %v", applied, err)
	}
	renew()
	if left, err := b.askTurn(t.Context(), scope, "1000", 0); err != nil || left <= 0 || left > time.Second {
		t.Errorf("the turn of another has %s left: %v", left, err)
	}
	renew()
	if _, err := b.askTurn(t.Context(), scope, "0", 0); err != nil {
		t.Error(err)
	}
	if left, err := b.askTurn(t.Context(), scope, "", 0); err != nil || left <= 0 {
		t.Errorf("the turn of another was given back: %s left, %v", left, err)
	}
	if applied, err := once(t, b, state.Key{Scope: "other", Kind: state.KindOperation, ID: "k"}); !applied || err != nil {
		t.Errorf("a change in another scope: %v %v", applied, err)
	}
	if applied, err := once(t, a, k); !applied || err != nil {
		t.Errorf("a change in one's own turn: %v %v", applied, err)
	}
	if _, err := a.askTurn(t.Context(), scope, "0", 0); err != nil {
		t.Error(err)
	}
	if applied, err := once(t, b, k); !applied || err != nil {
		t.Errorf("a change after the turn was given back: %v %v", applied, err)
	}
	if n := count(get(t, b, k)); n != 2 {
		t.Errorf("two increments make %d", n)
	}
}

func TestATurnOfSomebodyWhoIsGoneEnds(t *testing.T) {
	t.Parallel()
	server, _, b := twoEngines(t)
	now, err := b.Now(t.Context())
	must(t, err)
	for name, ends := range map[string]int64{
		"by the clock": now + 700, "before": now - 1, "of a clock that went back": now + 3_600_000,
	} {
		server.Must("HSET", b.layout.place(scope).turn(), "turn", fmt.Sprintf("%d somebody", ends))
		if err := increment(t.Context(), b, key(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATurnThatIsNotUsedIsGivenBack(t *testing.T) {
	t.Parallel()
	server, a, _ := twoEngines(t)
	must(t, a.takeTurn(t.Context(), scope, 0))
	eventually(t, "it is given back", func() error {
		if there, err := server.Do("HEXISTS", a.layout.place(scope).turn(), "turn").AsInt64(); err != nil || there != 0 {
			return fmt.Errorf("%d %w", there, err)
		}
		return nil
	})
	if a.turns.has(scope) {
		t.Error("this process still believes that it has its turn")
	}
}

func TestAfterAConflictAProcessTakesItsTurn(t *testing.T) {
	t.Parallel()
	_, a, b := twoEngines(t)
	k := key("counter")
	meddled := 0
	err := a.Transact(t.Context(), []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
		if !a.turns.has(scope) && meddled < 10 {
			meddled++
			if err := increment(t.Context(), b, k); err != nil {
				t.Error(err)
			}
		}
		return engine.Plan{Changes: []engine.Change{{Key: k, Item: item(count(s.Items[0]) + 1)}}, NotAfter: s.Now + minute}, nil
	})
	must(t, err)
	if n := count(get(t, a, k)); n != meddled+1 || meddled > 5 {
		t.Errorf("%d increments make %d, and another process came between in vain", meddled+1, n)
	}
}

func TestOfThoseWhoWaitForATurnTheOneWhoHasWaitedLongestIsNext(t *testing.T) {
	t.Parallel()
	server, a, b := twoEngines(t)
	c := open(t, server.URL(), Options{})
	ask := func(e *Engine, ms string, waited time.Duration) time.Duration {
		t.Helper()
		left, err := e.askTurn(t.Context(), scope, ms, waited)
		must(t, err)
		return left
	}
	if ask(a, "1000", 0) != 0 || ask(b, "1000", 20*time.Millisecond) == 0 || ask(c, "1000", 10*time.Millisecond) == 0 {
		t.Fatal("two processes have their turn at once")
	}
	ask(a, "0", 0)
	if ask(c, "1000", 11*time.Millisecond) == 0 {
		t.Error("somebody who has waited for less went before")
	}
	if ask(b, "1000", 21*time.Millisecond) != 0 {
		t.Error("who has waited longest did not get the turn")
	}
	ask(b, "0", 0)
	if ask(c, "1000", 12*time.Millisecond) != 0 {
		t.Error("nobody else waits, and yet there is no turn")
	}
}
