package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

func guessKey(kind state.Kind, id string) state.Key {
	return state.Key{Scope: "acme", Kind: kind, ID: id}
}

func sealed(n byte) *state.Sealed {
	return &state.Sealed{Version: state.Version{n}, Data: []byte{n}}
}

func TestGuessKnowsWhatWasReadAndWritten(t *testing.T) {
	t.Parallel()
	g := engine.NewGuess()
	budget, writer, claim := guessKey(state.KindBudget, "b"), guessKey(state.KindWriter, "w"), guessKey(state.KindMarker, "new")
	boot := time.Hour
	if _, ok := g.Snapshot([]state.Key{claim}, boot); ok {
		t.Error("it guesses without ever having seen the engine's clock")
	}
	read := engine.Snapshot{Now: 5000, Keys: []state.Key{budget}, Items: []*state.Sealed{sealed(1)}, Lineage: engine.Lineage{ID: "a"}}
	g.Read(read, boot)
	if _, ok := g.Snapshot([]state.Key{budget, writer}, boot); ok {
		t.Error("it guesses a record that it knows nothing of")
	}
	g.Written([]engine.Change{{Key: writer, Item: sealed(2)}})
	snap, ok := g.Snapshot([]state.Key{budget, writer, claim}, boot+700*time.Millisecond)
	if !ok || snap.Now != 5700 || snap.Lineage.ID != "a" || snap.Items[0].Version != (state.Version{1}) || snap.Items[1].Version != (state.Version{2}) || snap.Items[2] != nil {
		t.Errorf("it foretells %+v, %v", snap, ok)
	}
	g.Written([]engine.Change{{Key: budget}, {Key: claim, Item: sealed(3)}})
	snap, ok = g.Snapshot([]state.Key{budget, claim}, boot)
	if !ok || snap.Items[0] != nil || snap.Items[1] == nil {
		t.Errorf("after a deletion and a claim it foretells %+v, %v", snap.Items, ok)
	}
	read.Keys, read.Items, read.Lineage.ID = nil, nil, "b"
	g.Read(read, boot)
	if _, ok := g.Snapshot([]state.Key{writer}, boot); ok {
		t.Error("it guesses what belongs to another lineage")
	}
}

func TestGuessEndsWithTheClockInDoubtAndAfterMistakes(t *testing.T) {
	t.Parallel()
	claim := []state.Key{guessKey(state.KindMarker, "new")}
	boot := time.Hour
	for name, c := range map[string]struct {
		what   func(*engine.Guess)
		boot   time.Duration
		paused int // transactions until it guesses again, -1: for good
	}{
		"nothing":             {func(*engine.Guess) {}, boot, 0},
		"a clock of long ago": {func(*engine.Guess) {}, boot + time.Second + 1, -1},
		"a boot clock before": {func(*engine.Guess) {}, boot - 1, -1},
		"doubt":               {func(g *engine.Guess) { g.Doubt() }, boot, -1},
		"one mistake":         {func(g *engine.Guess) { g.Judged(false) }, boot, 1},
		"three mistakes": {func(g *engine.Guess) {
			for range 3 {
				g.Judged(false)
			}
		}, boot, 4},
		"a hundred mistakes": {func(g *engine.Guess) {
			for range 100 {
				g.Judged(false)
			}
		}, boot, 64},
		"a mistake after success": {func(g *engine.Guess) {
			for range 3 {
				g.Judged(false)
			}
			g.Judged(true)
			g.Judged(false)
		}, boot, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := engine.NewGuess()
			g.Read(engine.Snapshot{Now: 1}, boot)
			c.what(g)
			paused := 0
			for paused < 200 {
				if _, ok := g.Snapshot(claim, c.boot); ok {
					break
				}
				paused++
			}
			if c.paused >= 0 && paused != c.paused || c.paused < 0 && paused < 200 {
				t.Errorf("%d transactions are not guessed, want %d", paused, c.paused)
			}
		})
	}
}

func TestGuessIsBounded(t *testing.T) {
	t.Parallel()
	g := engine.NewGuess()
	g.Read(engine.Snapshot{Now: 1}, time.Hour)
	hot, large := guessKey(state.KindBudget, "hot"), guessKey(state.KindBudget, "large")
	g.Written([]engine.Change{{Key: hot, Item: sealed(1)}, {Key: large, Item: &state.Sealed{Data: make([]byte, 4096)}}})
	known := func(k state.Key) bool {
		_, ok := g.Snapshot([]state.Key{k}, time.Hour)
		return ok
	}
	if known(large) {
		t.Error("it remembers a record of 4 KiB")
	}
	for n := range 50_000 {
		g.Written([]engine.Change{{Key: guessKey(state.KindBudget, fmt.Sprint(n)), Item: sealed(2)}})
		if n%1000 == 0 && !known(hot) {
			t.Fatalf("after %d others it has forgotten one that is asked for all the time", n)
		}
	}
	if known(guessKey(state.KindBudget, "0")) {
		t.Error("it remembers everything for ever")
	}
}
