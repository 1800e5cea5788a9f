package counterfoil_test

import (
	"strconv"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
)

// BenchmarkGuardedCall is a whole call in memory, from one caller: what it costs beside the disk.
func BenchmarkGuardedCall(b *testing.B) {
	f := storetest.Memory(b)
	keys, err := keyring.NewMemory(keyring.Options{Clock: f.Clock, Entropy: f.Entropy}, scope)
	if err != nil {
		b.Fatal(err)
	}
	c, err := counterfoil.New(f.Store, keys, counterfoil.Options{})
	if err != nil {
		b.Fatal(err)
	}
	_, err = c.Budgets.Define(b.Context(), budget.DefineParams{Scope: scope, Definition: budget.Definition{
		Name: "acme", Unit: "cent", Limit: budget.MaxAmount, Window: budget.Window{Kind: budget.Lifetime},
	}})
	if err != nil {
		b.Fatal(err)
	}
	ann := c.As(scope, "ann")
	n := 0
	for b.Loop() {
		n++
		name := strconv.Itoa(n)
		a, err := ann.Authorize(b.Context(), counterfoil.AuthorizeParams{Call: call(name), Hold: entries("acme", 20)})
		if err != nil {
			b.Fatal(err)
		}
		begun, err := ann.Begin(b.Context(), permitted(name, a))
		if err != nil {
			b.Fatal(err)
		}
		capture := entries("acme", 15)
		_, err = ann.Complete(b.Context(), counterfoil.CompleteParams{ID: begun.ID, Token: begun.Token, Receipt: receipt("done"), Capture: &capture})
		if err != nil {
			b.Fatal(err)
		}
	}
}
