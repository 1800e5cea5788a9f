package operation_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"

	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// A payment is begun, performed and completed; whoever asks for it again gets its receipt.
func Example() {
	ctx := context.Background()
	key := make([]byte, state.IntegrityKeyBytes) // a keyring gives real ones
	keys, err := state.NewKeys(state.IntegrityKeyID(key), [][]byte{key})
	if err != nil {
		log.Fatal(err)
	}
	engine, options := memory.New(clock.System{}), store.Options{Keys: keys}
	if err := store.Create(ctx, engine, options); err != nil {
		log.Fatal(err)
	}
	s, err := store.Open(ctx, engine, options)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // in memory nothing can be lost.
	operations, err := operation.New(s, operation.Options{})
	if err != nil {
		log.Fatal(err)
	}

	pay := func(amount string) {
		begun, err := operations.Begin(ctx, operation.ClaimParams{
			Scope: "default", Owner: "shop", Key: "order-17", Fingerprint: sha256.Sum256([]byte(amount)),
		})
		switch {
		case errors.Is(err, operation.ErrMismatch):
			fmt.Println("refused: the key was used for another request")
		case err != nil:
			fmt.Println("refused:", err)
		case begun.Answer == operation.Replay:
			fmt.Printf("replayed: %s\n", begun.Receipt.Body)
		case begun.Answer == operation.Execute:
			// Here the money moves.
			receipt := operation.Receipt{Body: []byte("paid " + amount)}
			_, err := operations.Complete(ctx, operation.CompleteParams{
				Scope: "default", Owner: "shop", ID: begun.ID, Token: begun.Token, Receipt: receipt,
			})
			fmt.Printf("executed: %s, recorded: %t\n", receipt.Body, err == nil)
		}
	}
	pay("20 EUR")
	pay("20 EUR")
	pay("30 EUR")
	// Output:
	// executed: paid 20 EUR, recorded: true
	// replayed: paid 20 EUR
	// refused: the key was used for another request
}
