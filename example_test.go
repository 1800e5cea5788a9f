package counterfoil_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/store"
)

// open makes an empty store in memory, with a budget of 50 EUR.
func open(ctx context.Context) (*counterfoil.Counterfoil, error) {
	keys, err := keyring.NewMemory(keyring.Options{}, "default")
	if err != nil {
		return nil, err
	}
	engine := memory.New(clock.System{})
	if err := store.Create(ctx, engine, store.Options{Keys: keys.Integrity()}); err != nil {
		return nil, err
	}
	c, err := counterfoil.Open(ctx, engine, keys, store.Options{}, counterfoil.Options{})
	if err != nil {
		return nil, err
	}
	_, err = c.Budgets.Define(ctx, budget.DefineParams{Scope: "default", Definition: budget.Definition{
		Name: "shop", Unit: "cent", Limit: 5_000, Window: budget.Window{Kind: budget.Lifetime},
	}})
	return c, err
}

// A payment is authorised, begun, performed and completed. Asked for again it is answered from its receipt; what does not
// fit the budget is refused before anything happens.
func Example() {
	ctx := context.Background()
	c, err := open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // in memory nothing can be lost.
	shop := c.As("default", "shop")

	// Whoever decides mints a permit for exactly this call, and reserves its price.
	authorize := func(call permit.Expected, cents uint64) []byte {
		a, err := shop.Authorize(ctx, counterfoil.AuthorizeParams{Call: call, Hold: []counterfoil.Entry{{Budget: "shop", Amount: cents}}})
		if err != nil {
			fmt.Println(call.RequestID, "refused:", err)
		}
		return a.Permit
	}
	// Whoever acts uses the permit up, once, in the step that remembers the operation.
	pay := func(call permit.Expected, issued []byte) {
		begun, err := shop.Begin(ctx, counterfoil.BeginParams{
			Key: call.RequestID, Fingerprint: sha256.Sum256([]byte(call.ParameterHash)), Permit: issued, Expected: call,
		})
		switch {
		case errors.Is(err, permit.ErrMalformed):
			fmt.Println(call.RequestID, "refused: no permit")
		case err != nil:
			fmt.Println(call.RequestID, "refused:", err)
		case begun.State == counterfoil.Replay:
			fmt.Printf("%s replayed: %s\n", call.RequestID, begun.Receipt.Body)
		case begun.State == counterfoil.Execute:
			// Here the money moves.
			receipt := operation.Receipt{Status: 201, Body: []byte("paid")}
			_, err = shop.Complete(ctx, counterfoil.CompleteParams{ID: begun.ID, Token: begun.Token, Receipt: receipt})
			fmt.Printf("%s executed, recorded: %t\n", call.RequestID, err == nil)
		}
	}
	first, second := order("order-1", 3_000), order("order-2", 2_500)
	issued := authorize(first, 3_000)
	pay(first, issued)
	pay(first, issued)
	authorize(second, 2_500)
	pay(second, []byte("none"))
	// Output:
	// order-1 executed, recorded: true
	// order-1 replayed: paid
	// order-2 refused: budget: shop has 2000 of 5000 cent left, 2500 more were asked for
	// order-2 refused: no permit
}

// order is the exact call that pays an order.
func order(id string, cents int) permit.Expected {
	hash, err := permit.ParameterHash(fmt.Appendf(nil, `{"cents":%d}`, cents))
	if err != nil {
		log.Fatal(err)
	}
	return permit.Expected{
		Subject: "agent-7", Capability: "pay", Server: "bank.example", Tool: "transfer", RequestID: id, ParameterHash: hash,
	}
}

// Run makes the whole call: the lease is kept while the effect runs, and its result is recorded.
func ExampleRun() {
	ctx := context.Background()
	c, err := open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // in memory nothing can be lost.
	for range 2 {
		ran, err := counterfoil.Run(ctx, c.As("default", "shop"), counterfoil.BeginParams{
			Key: "mail-7", Fingerprint: sha256.Sum256([]byte("welcome")), Spend: []counterfoil.Entry{{Budget: "shop", Amount: 1}},
		}, func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
			return counterfoil.Result{Receipt: operation.Receipt{Body: []byte("sent")}}, nil
		})
		fmt.Println(ran.Begun.State, string(ran.Receipt.Body), ran.Recorded, err)
	}
	// Output:
	// execute sent true <nil>
	// replay sent true <nil>
}

// A call that a person must approve runs once, with the permit that the decision brings. Another call is another question.
func ExampleCaller_approval() {
	ctx := context.Background()
	c, err := open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // in memory nothing can be lost.
	agent := c.As("default", "agent-7")
	ask := func(id string, cents int) counterfoil.Approval {
		a, err := agent.RequestApproval(ctx, counterfoil.ApprovalParams{
			Call: order(id, cents), Arguments: fmt.Appendf(nil, `{"cents":%d}`, cents),
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s for %d is %s %q\n", id, cents, a.State, a.Note)
		return a
	}
	asked := ask("order-1", 3_000)
	// Somewhere else a person looks at the arguments.
	_, err = c.Grant(ctx, counterfoil.GrantParams{DecideParams: approval.DecideParams{
		Scope: "default", ID: asked.ID, By: "olga", Note: "known supplier",
	}})
	if err != nil {
		log.Fatal(err)
	}
	granted := ask("order-1", 3_000)
	ask("order-1", 3_001)
	for range 2 {
		_, err = agent.Consume(ctx, counterfoil.ConsumeParams{Permit: granted.Permit, Expected: order("order-1", 3_000)})
		fmt.Println("used:", err == nil, "before:", errors.Is(err, permit.ErrReplayed))
	}
	// Output:
	// order-1 for 3000 is pending ""
	// order-1 for 3000 is granted "known supplier"
	// order-1 for 3001 is pending ""
	// used: true before: false
	// used: false before: true
}
