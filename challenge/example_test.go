package challenge_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/challenge"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/store"
)

// A job is issued a challenge, attests with its nonce, and the key is released once.
func Example() {
	ctx := context.Background()
	keys, err := keyring.NewMemory(keyring.Options{Entropy: entropy.Seeded(1)}, "default")
	if err != nil {
		fmt.Println(err)
		return
	}
	options := store.Options{Keys: keys.Integrity()}
	engine := memory.New(clock.System{})
	if err := store.Create(ctx, engine, options); err != nil {
		fmt.Println(err)
		return
	}
	s, err := store.Open(ctx, engine, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := s.Close(); err != nil {
			fmt.Println(err)
		}
	}()
	challenges := challenge.New(s, challenge.Options{})

	issued, err := challenges.Issue(ctx, challenge.IssueParams{Scope: "default", Owner: "trainer", Job: challenge.Job{1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("epoch", issued.Epoch, "with", len(issued.AAD()), "bytes to bind the sealed key to")

	shown := challenge.ConsumeParams{
		Scope: "default", Owner: "trainer", Job: challenge.Job{1}, Nonce: issued.Nonce, Epoch: issued.Epoch,
	}
	_, err = challenges.Consume(ctx, shown)
	fmt.Println("release the key:", err == nil)
	_, err = challenges.Consume(ctx, shown)
	fmt.Println("once more:", errors.Is(err, challenge.ErrAlreadyConsumed))
	// Output:
	// epoch 1 with 96 bytes to bind the sealed key to
	// release the key: true
	// once more: true
}
