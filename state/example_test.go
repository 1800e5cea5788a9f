package state_test

import (
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/state/statetest"
)

// The worked example of the package's comment: a budget of 100 an hour.
func Example() {
	store := statetest.NewPlain() // the smallest store: a map, one batch after another
	at := func(clock string) int64 {
		t, err := time.Parse(time.DateTime, "2026-03-02 "+clock)
		if err != nil {
			panic(err)
		}
		return t.UnixMilli()
	}
	do := func(ops ...state.Op) state.Outcome {
		out, err := store.Do(&state.Batch{Scope: "acme", Ops: ops}, 0)
		if err != nil {
			panic(err)
		}
		return out
	}
	team := state.Key{Scope: "acme", Kind: state.KindBudget, ID: "team"}
	var generation state.Version
	var window int64
	move := func(claimed string, m state.Move) state.Outcome {
		m.Key, m.Generation = team, generation
		if m.Window = state.CurrentWindow; m.TakeAmount > 0 {
			m.Window = window // the one that the hold was made in
		}
		c := state.Claim{Key: state.Key{Scope: "acme", Kind: state.KindSpend, ID: claimed}, Token: state.Token{1}, State: state.Settled}
		return do(c, m)
	}
	show := func(what string) {
		// A Move of nothing shows the figures and leaves no trace.
		f := move("look at "+what+time.UnixMilli(store.Now).String(), state.Move{}).Figures[1]
		fmt.Printf("%-26s%3d spent%4d held or fenced%4d left\n", what, f.Spent, f.Held, f.Remaining)
	}
	spent, fenced := state.Bucket{Kind: state.BucketSpent}, state.Bucket{Kind: state.BucketFenced}

	store.Now = at("10:20:00")
	do(state.PutScope{Key: state.ScopeKey("acme"), Scope: state.NewScope(1)})
	defined := do(state.PutBudget{Key: team, Unit: "USD", Limit: 100, Window: state.Window{Kind: state.WindowFixed, Seconds: 3600}})
	generation, window = defined.Figures[0].Generation, defined.Figures[0].WindowAt

	const ttl = 30 * 60 * 1000
	held := state.Bucket{Kind: state.BucketHeld, Until: state.HoldUntil(store.Now, ttl)}
	fmt.Println("a hold of 30m is for", time.Duration(held.Until-store.Now)*time.Millisecond)

	move("spend", state.Move{Give: spent, GiveAmount: 40})
	show("spend 40")
	move("hold", state.Move{Give: held, GiveAmount: 30})
	show("hold 30")
	refused := move("too much", state.Move{Give: held, GiveAmount: 31})
	show("hold 31: " + string(refused.Refusals[0].Reason))
	move("fence", state.Move{Take: held, TakeAmount: 30, Give: fenced, GiveAmount: 30})
	show("the hold is fenced")
	move("capture", state.Move{Take: fenced, TakeAmount: 30, Give: spent, GiveAmount: 25})
	show("of it 25 are captured")
	move("hold again", state.Move{Give: held, GiveAmount: 20})
	show("hold 20")
	store.Now = held.Until
	show("30 minutes (and a bit) on")
	store.Now = at("11:00:00")
	show("at 11:00")

	// Output:
	// a hold of 30m is for 30m45.12s
	// spend 40                   40 spent   0 held or fenced  60 left
	// hold 30                    40 spent  30 held or fenced  30 left
	// hold 31: over_limit        40 spent  30 held or fenced  30 left
	// the hold is fenced         40 spent  30 held or fenced  30 left
	// of it 25 are captured      65 spent   0 held or fenced  35 left
	// hold 20                    65 spent  20 held or fenced  15 left
	// 30 minutes (and a bit) on  65 spent   0 held or fenced  35 left
	// at 11:00                    0 spent   0 held or fenced 100 left
}
