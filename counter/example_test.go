package counter_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/counterfoil/counterfoil/counter"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

func Example() {
	ctx := context.Background()
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
	defer func() { _ = s.Close() }()
	counters := counter.New(s, counter.Options{})

	// Both, or neither.
	turn := counter.TrySpendManyParams{Scope: "default", Entries: []counter.Entry{
		{Name: "run/7/turns", Amount: 1, Limit: 2},
		{Name: "run/7/tokens", Amount: 400, Limit: 1000},
	}}
	for range 3 {
		spent, err := counters.TrySpendMany(ctx, turn)
		var over *counter.ExceededError
		switch {
		case errors.As(err, &over):
			for _, r := range over.Refused {
				fmt.Printf("refused: %s stands at %d of %d\n", r.Name, r.Value, r.Limit)
			}
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println("granted:", spent.Values)
		}
	}
	// Output:
	// granted: [1 400]
	// granted: [2 800]
	// refused: run/7/turns stands at 2 of 2
	// refused: run/7/tokens stands at 800 of 1000
}
