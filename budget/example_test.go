package budget_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// openMemory opens a store that forgets, for the examples.
func openMemory(ctx context.Context) *store.Store {
	key := make([]byte, state.IntegrityKeyBytes) // a real one is random and kept
	keys, err := state.NewKeys(state.IntegrityKeyID(key), [][]byte{key})
	if err != nil {
		log.Fatal(err)
	}
	records := memory.New(clock.System{})
	if err := store.Create(ctx, records.Share(), store.Options{Keys: keys}); err != nil {
		log.Fatal(err)
	}
	s, err := store.Open(ctx, records.Share(), store.Options{Keys: keys})
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// A session may use 60 of the 100 cents that its team has.
func Example() {
	ctx := context.Background()
	s := openMemory(ctx)
	defer func() { _ = s.Close() }()
	budgets := budget.New(s, budget.Options{})

	for _, d := range []budget.Definition{
		{Name: "team", Unit: "cents", Limit: 100, Window: budget.Window{Kind: budget.Lifetime}},
		{Name: "team/session", Unit: "cents", Limit: 60, Window: budget.Window{Kind: budget.Lifetime}, Parent: "team"},
	} {
		if _, err := budgets.Define(ctx, budget.DefineParams{Scope: "default", Definition: d}); err != nil {
			log.Fatal(err)
		}
	}

	// Reserve what a call may cost before it is made …
	hold, err := budgets.Hold(ctx, budget.HoldParams{
		Scope: "default", Owner: "agent-7", RequestID: "call-1", TTL: time.Minute,
		Entries: []budget.Entry{{Budget: "team/session", Amount: 50}},
	})
	if err != nil {
		log.Fatal(err)
	}
	// … and charge what it did cost.
	captured, err := budgets.Capture(ctx, budget.CaptureParams{
		Scope: "default", Owner: "agent-7", HoldID: hold.ID, Capture: &[]budget.Entry{{Budget: "team/session", Amount: 35}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range captured.Budgets {
		fmt.Printf("%s: %d spent, %d left\n", f.Name, f.Spent, f.Remaining)
	}

	_, err = budgets.Spend(ctx, budget.SpendParams{
		Scope: "default", Owner: "agent-7", RequestID: "call-2", Entries: []budget.Entry{{Budget: "team/session", Amount: 30}},
	})
	var over *budget.ExceededError
	if errors.As(err, &over) {
		fmt.Printf("refused: %s has %d left\n", over.Refused[0].Name, over.Refused[0].Remaining)
	}
	// Output:
	// team/session: 35 spent, 25 left
	// team: 35 spent, 65 left
	// refused: team/session has 25 left
}

// The same request again takes nothing more.
func ExampleBudgets_Spend() {
	ctx := context.Background()
	s := openMemory(ctx)
	defer func() { _ = s.Close() }()
	budgets := budget.New(s, budget.Options{})
	_, err := budgets.Define(ctx, budget.DefineParams{Scope: "default", Definition: budget.Definition{
		Name: "calls", Unit: "calls", Limit: 10, Window: budget.Window{Kind: budget.Day, Zone: "Europe/Berlin"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		spent, err := budgets.Spend(ctx, budget.SpendParams{
			Scope: "default", Owner: "agent-7", RequestID: "order-12", Entries: []budget.Entry{{Budget: "calls", Amount: 3}},
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(spent.Remaining, spent.Repeated)
	}
	// Output:
	// 7 false
	// 7 true
}
