package permit_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/store"
)

// An issuer signs a permit for one exact call; whoever is about to make the call verifies it without asking anybody.
func ExampleVerify() {
	priv := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32))
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

	hash, err := permit.ParameterHash([]byte(`{"path":"/workspace/docs/roadmap.md","mode":"read"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	nonce, err := permit.NewNonce(permit.Binding{
		SubjectID: "agent-7", RequestID: "req-1", CapabilityID: "cap-files",
		ToolServer: "files", ToolName: "read", ParameterHash: hash,
	}, now, permit.DefaultTTL, entropy.Seeded(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	signed, err := permit.Sign(priv, nonce)
	if err != nil {
		fmt.Println(err)
		return
	}
	wire := permit.Encode(signed)

	received, err := permit.Decode(wire)
	if err != nil {
		fmt.Println(err)
		return
	}
	keys, err := permit.NewKeys(permit.PublicKey(priv.Public().(ed25519.PublicKey)))
	if err != nil {
		fmt.Println(err)
		return
	}
	call := permit.Expected{
		Subject: "agent-7", Capability: "cap-files", Server: "files", Tool: "read", RequestID: "req-1", ParameterHash: hash,
	}
	_, err = permit.Verify(received, call, keys, now)
	fmt.Println("this call:", err)

	_, err = permit.Verify(received, call, keys, now.Add(30*time.Second))
	fmt.Println("later:", errors.Is(err, permit.ErrExpired))

	call.Tool = "write"
	_, err = permit.Verify(received, call, keys, now)
	fmt.Println("another tool:", err)
	// Output:
	// this call: <nil>
	// later: true
	// another tool: permit: it is bound to another tool
}

// A store remembers that a permit was used: of all who show it, one may make the call.
func ExamplePermits() {
	ctx := context.Background()
	keys, err := keyring.NewMemory(keyring.Options{}, "default")
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, options := memory.New(clock.System{}), store.Options{Keys: keys.Integrity()}
	if err := store.Create(ctx, engine, options); err != nil {
		fmt.Println(err)
		return
	}
	s, err := store.Open(ctx, engine, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	permits := permit.New(s, keys, permit.Options{})

	hash, err := permit.ParameterHash([]byte(`{"path":"/workspace/docs/roadmap.md","mode":"read"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	call := permit.Expected{
		Subject: "agent-7", Capability: "cap-files", Server: "files", Tool: "read", RequestID: "req-1", ParameterHash: hash,
	}
	minted, err := permits.Mint(ctx, permit.MintParams{Scope: "default", Call: call})
	if err != nil {
		fmt.Println(err)
		return
	}
	shown := permit.UseParams{Scope: "default", Owner: "files-server", Permit: minted.Permit, Expected: call}
	_, err = permits.Consume(ctx, shown)
	fmt.Println("first:", err)
	_, err = permits.Consume(ctx, shown)
	fmt.Println("again:", err)

	_, err = permits.Revoke(ctx, permit.RevokeParams{Scope: "default", Subject: "agent-7"})
	fmt.Println("revoke:", err)
	_, err = permits.Mint(ctx, permit.MintParams{Scope: "default", Call: call})
	fmt.Println("mint right after:", errors.Is(err, permit.ErrRevoked))
	fmt.Println("close:", s.Close())
	// Output:
	// first: <nil>
	// again: permit: it was used before
	// revoke: <nil>
	// mint right after: true
	// close: <nil>
}
