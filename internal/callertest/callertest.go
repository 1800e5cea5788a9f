// Package callertest says what every counterfoil.Caller must do, whatever it stands on. One list of clauses runs against the
// library and against client and server, so that the two cannot drift apart.
package callertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
)

// World is one fresh store with callers on it. The budgets acme, with a limit of 100, and acme/search below it, with one of
// 60, are defined.
type World struct {
	*storetest.Fixture
	T    *testing.T
	Core *counterfoil.Counterfoil
	Keys *keyring.Keyring
	// Ann and Bob are two owners of the scope; Olga may see and resolve the operations of both.
	Ann, Bob, Olga counterfoil.Caller
}

// MaxReceipt is the limit of receipts in every world.
const MaxReceipt = 4096

// Connect gives the callers of a world, in which everything but they is set.
type Connect func(w *World) (ann, bob, olga counterfoil.Caller)

// Run runs every clause on every engine.
func Run(t *testing.T, connect Connect) {
	t.Helper()
	for _, c := range clauses {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.Each(t, func(t *testing.T, f *storetest.Fixture) { c.test(newWorld(t, f, connect)) })
		})
	}
}

func newWorld(t *testing.T, f *storetest.Fixture, connect Connect) *World {
	t.Helper()
	w := &World{Fixture: f, T: t}
	var err error
	w.Keys, err = keyring.NewMemory(keyring.Options{Clock: f.Clock, Entropy: f.Entropy}, storetest.Scope)
	w.must(err)
	w.Core, err = counterfoil.New(f.Store, w.Keys, counterfoil.Options{Operations: operation.Options{MaxReceipt: MaxReceipt}})
	w.must(err)
	w.define("acme", 100, "")
	w.define("acme/search", 60, "acme")
	w.Ann, w.Bob, w.Olga = connect(w)
	return w
}

func (w *World) must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

func (w *World) ctx() context.Context { return w.T.Context() }

func (w *World) define(name string, limit uint64, parent string) {
	w.T.Helper()
	_, err := w.Core.Budgets.Define(w.ctx(), budget.DefineParams{Scope: storetest.Scope, Definition: budget.Definition{
		Name: name, Unit: "cent", Limit: limit, Window: budget.Window{Kind: budget.Lifetime}, Parent: parent,
	}})
	w.must(err)
}

// want fails unless an error is of a kind.
func (w *World) want(what string, got, want error) {
	w.T.Helper()
	if !errors.Is(got, want) {
		w.T.Fatalf("%s: %v; want %v", what, got, want)
	}
}

// standing fails unless a budget has spent and holds so much.
func (w *World) standing(what, name string, spent, held uint64) {
	w.T.Helper()
	b, err := w.Core.Budgets.Get(w.ctx(), budget.GetParams{Scope: storetest.Scope, Name: name})
	w.must(err)
	if b.Figures.Spent != spent || b.Figures.Held != held {
		w.T.Fatalf("%s: %s has spent %d and holds %d; want %d and %d", what, name, b.Figures.Spent, b.Figures.Held, spent, held)
	}
}

const noArguments = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" // of {}

func call(request string) permit.Expected {
	return permit.Expected{Subject: "agent", Capability: "search", Server: "web", Tool: "find", RequestID: request, ParameterHash: noArguments}
}

func fingerprint(n byte) counterfoil.Fingerprint { return counterfoil.Fingerprint{0: n, 31: 1} }

func request(key string) counterfoil.BeginParams {
	return counterfoil.BeginParams{Key: key, Fingerprint: fingerprint(1)}
}

func amounts(pairs ...any) []counterfoil.Entry {
	var out []counterfoil.Entry
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, counterfoil.Entry{Budget: pairs[i].(string), Amount: uint64(pairs[i+1].(int))}) //nolint:gosec,forcetypeassert // of the tests alone
	}
	return out
}

func text(s string) operation.Receipt {
	return operation.Receipt{Status: 200, ContentType: "text/plain", Body: []byte(s)}
}

// execute begins an operation that must be granted.
func (w *World) execute(c counterfoil.Caller, p counterfoil.BeginParams) counterfoil.Begun {
	w.T.Helper()
	b, err := c.Begin(w.ctx(), p)
	w.must(err)
	if b.State != counterfoil.Execute || b.Token == (counterfoil.Token{}) || b.Fence == 0 || b.ID == "" {
		w.T.Fatalf("begin: %+v; want execute", b)
	}
	return b
}

// complete completes an operation that is held.
func (w *World) complete(c counterfoil.Caller, b counterfoil.Begun, r operation.Receipt, capture *[]counterfoil.Entry) counterfoil.Completed {
	w.T.Helper()
	done, err := c.Complete(w.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: r, Capture: capture})
	w.must(err)
	return done
}

// refused begins an operation that must be refused.
func (w *World) refused(what string, c counterfoil.Caller, p counterfoil.BeginParams, want error) {
	w.T.Helper()
	b, err := c.Begin(w.ctx(), p)
	if err == nil {
		w.T.Fatalf("%s: %+v; want %v", what, b, want)
	}
	w.want(what, err, want)
}

// authorize mints a permit.
func (w *World) authorize(request string, hold []counterfoil.Entry) counterfoil.Authorization {
	w.T.Helper()
	a, err := w.Ann.Authorize(w.ctx(), counterfoil.AuthorizeParams{Call: call(request), TTL: time.Minute, Hold: hold})
	w.must(err)
	return a
}
