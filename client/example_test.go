package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/server"
	"github.com/counterfoil/counterfoil/store"
)

// A program that asks a server handles the same errors as one that works on a store of its own.
func Example() {
	ctx := context.Background()
	url, token := startServer(ctx) // counterfoil serve --data DIR --init
	c, err := client.New(client.Options{URL: url, Token: token})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	caller := c.As("", "") // in the scope and as the owner of the token

	call := permit.Expected{Subject: "agent-7", Capability: "payments", Server: "bank", Tool: "pay", RequestID: "order-1"}
	call.ParameterHash, err = permit.ParameterHash([]byte(`{"cents": 500}`))
	if err != nil {
		log.Fatal(err)
	}
	authorized, err := caller.Authorize(ctx, counterfoil.AuthorizeParams{Call: call})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		_, err = caller.Consume(ctx, counterfoil.ConsumeParams{Permit: authorized.Permit, Expected: call})
		switch {
		case err == nil:
			fmt.Println("granted")
		case errors.Is(err, permit.ErrReplayed):
			fmt.Println("refused: it was used before")
		default:
			log.Fatal(err)
		}
	}

	for range 2 {
		ran, err := counterfoil.Run(ctx, caller, counterfoil.BeginParams{Key: "order-1", Fingerprint: counterfoil.Fingerprint{1}},
			func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
				fmt.Println("paying")
				return counterfoil.Result{Receipt: operation.Receipt{Status: 200, Body: []byte("paid")}}, nil
			})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ran.Begun.State, string(ran.Receipt.Body))
	}
	// Output:
	// granted
	// refused: it was used before
	// paying
	// execute paid
	// replay paid
}

// startServer starts a server on a store in memory.
func startServer(ctx context.Context) (url, token string) {
	keys, err := keyring.NewMemory(keyring.Options{}, access.DefaultScope)
	if err != nil {
		log.Fatal(err)
	}
	e := memory.New(clock.System{})
	if err := store.Create(ctx, e, store.Options{Keys: keys.Integrity()}); err != nil {
		log.Fatal(err)
	}
	s, err := store.Open(ctx, e, store.Options{Keys: keys.Integrity()})
	if err != nil {
		log.Fatal(err)
	}
	core, err := counterfoil.New(s, keys, counterfoil.Options{})
	if err != nil {
		log.Fatal(err)
	}
	a, err := access.New(s, keys, nil)
	if err != nil {
		log.Fatal(err)
	}
	operator, err := access.Operator(access.DefaultScope, access.DefaultOwner)
	if err != nil {
		log.Fatal(err)
	}
	_, admin, err := a.Create(ctx, operator, access.AdminGrant())
	if err != nil {
		log.Fatal(err)
	}
	h, err := server.New(server.Options{Access: a, Store: s, Keys: keys, Core: core})
	if err != nil {
		log.Fatal(err)
	}
	return httptest.NewServer(h).URL, admin.Reveal()
}
