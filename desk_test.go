package counterfoil_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

const scope = storetest.Scope

// desk is one fixture with all capabilities on it, and ann as the caller.
type desk struct {
	*storetest.Fixture
	*counterfoil.Counterfoil
	ann  counterfoil.Caller
	keys *keyring.Keyring
	t    *testing.T
}

// each runs test on every engine.
func each(t *testing.T, test func(d *desk)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) { test(newDesk(t, f)) })
}

// newDesk defines the budgets acme, with a limit of 100, and acme/search below it, with one of 60.
func newDesk(t *testing.T, f *storetest.Fixture) *desk {
	t.Helper()
	d := &desk{Fixture: f, t: t}
	d.keyed()
	d.define("acme", 100, "")
	d.define("acme/search", 60, "acme")
	return d
}

// keyed makes a keyring, and the capabilities with its keys.
func (d *desk) keyed() {
	d.t.Helper()
	keys, err := keyring.NewMemory(keyring.Options{Clock: d.Clock, Entropy: d.Entropy}, scope)
	if err != nil {
		d.t.Fatalf("make a keyring: %v", err)
	}
	d.keys = keys
	d.open()
}

// open makes the capabilities on the fixture's store.
func (d *desk) open() {
	d.t.Helper()
	d.on(d.Fixture.Store)
}

func (d *desk) on(s *store.Store) {
	d.t.Helper()
	c, err := counterfoil.New(s, d.keys, counterfoil.Options{})
	if err != nil {
		d.t.Fatalf("make the capabilities: %v", err)
	}
	d.Counterfoil, d.ann = c, c.As(scope, "ann")
}

// second is a desk of another process on the same records.
func (d *desk) second() *desk {
	d.t.Helper()
	other := *d
	other.on(d.Fixture.Second())
	return &other
}

// restart reopens the store, as a new process does.
func (d *desk) restart() {
	d.t.Helper()
	d.Reopen()
	d.open()
}

func (d *desk) define(name string, limit uint64, parent string) {
	d.t.Helper()
	_, err := d.Budgets.Define(d.t.Context(), budget.DefineParams{Scope: scope, Definition: budget.Definition{
		Name: name, Unit: "cent", Limit: limit, Window: budget.Window{Kind: budget.Lifetime}, Parent: parent,
	}})
	if err != nil {
		d.t.Fatalf("define %s: %v", name, err)
	}
}

// used is what a budget has spent and what is held in it.
type used struct{ spent, held uint64 }

func (d *desk) used(name string) used {
	d.t.Helper()
	b, err := d.Budgets.Get(context.Background(), budget.GetParams{Scope: scope, Name: name})
	if err != nil {
		d.t.Fatalf("get %s: %v", name, err)
	}
	return used{b.Figures.Spent, b.Figures.Held}
}

func (d *desk) wantUsed(what, name string, spent, held uint64) {
	d.t.Helper()
	if got, want := d.used(name), (used{spent, held}); got != want {
		d.t.Fatalf("%s: %s stands at %+v, want %+v", what, name, got, want)
	}
}

func (d *desk) wantError(what string, got, want error) {
	d.t.Helper()
	if !errors.Is(got, want) {
		d.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// call is the call that a permit of these tests is for.
func call(request string) permit.Expected {
	return permit.Expected{
		Subject: "ann", Capability: "pay", Server: "bank", Tool: "transfer", RequestID: request,
		ParameterHash: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
	}
}

func entries(pairs ...any) []counterfoil.Entry {
	var list []counterfoil.Entry
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, counterfoil.Entry{Budget: pairs[i].(string), Amount: uint64(pairs[i+1].(int))}) //nolint:forcetypeassert,gosec // of a test.
	}
	return list
}

// authorize mints a permit with a hold.
func (d *desk) authorize(request string, hold []counterfoil.Entry) counterfoil.Authorization {
	d.t.Helper()
	a, err := d.ann.Authorize(d.t.Context(), counterfoil.AuthorizeParams{Call: call(request), Hold: hold})
	if err != nil {
		d.t.Fatalf("authorize %s: %v", request, err)
	}
	return a
}

func fingerprint(n byte) counterfoil.Fingerprint { return counterfoil.Fingerprint{0: n, 31: 1} }

// request is a begin of an operation of that key.
func request(key string) counterfoil.BeginParams {
	return counterfoil.BeginParams{Key: key, Fingerprint: fingerprint(1)}
}

// permitted is a begin with a permit.
func permitted(key string, a counterfoil.Authorization) counterfoil.BeginParams {
	p := request(key)
	p.Permit, p.Expected = a.Permit, call(key)
	return p
}

func (d *desk) mustExecute(p counterfoil.BeginParams) counterfoil.Begun {
	d.t.Helper()
	b, err := d.ann.Begin(d.t.Context(), p)
	if err != nil || b.State != counterfoil.Execute {
		d.t.Fatalf("begin %s: %+v, %v, want execute", p.Key, b, err)
	}
	return b
}

func (d *desk) refused(what string, p counterfoil.BeginParams, want error) {
	d.t.Helper()
	b, err := d.ann.Begin(d.t.Context(), p)
	if !errors.Is(err, want) || b.State != "" {
		d.t.Fatalf("%s: begin answered %+v, %v, want %v", what, b, err, want)
	}
}

func receipt(text string) operation.Receipt {
	return operation.Receipt{Status: 200, Body: []byte(text)}
}

func (d *desk) complete(b counterfoil.Begun, capture *[]counterfoil.Entry) (counterfoil.Completed, error) {
	d.t.Helper()
	return d.ann.Complete(d.t.Context(), counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: receipt("done"), Capture: capture})
}

func (d *desk) mustComplete(b counterfoil.Begun, capture *[]counterfoil.Entry) counterfoil.Completed {
	d.t.Helper()
	done, err := d.complete(b, capture)
	if err != nil {
		d.t.Fatalf("complete: %v", err)
	}
	return done
}

func (d *desk) abort(b counterfoil.Begun) (counterfoil.AbortResult, error) {
	d.t.Helper()
	return d.ann.Abort(d.t.Context(), counterfoil.AbortParams{ID: b.ID, Token: b.Token, Reason: "never sent"})
}

// olga is an operator of the scope.
func (d *desk) olga() counterfoil.Caller {
	return d.Acting(counterfoil.Identity{Scope: scope, Owner: "ops", Name: "olga", AnyOwner: true})
}

func (d *desk) resolve(id string, outcome operation.Outcome, capture *[]counterfoil.Entry) (counterfoil.ResolveResult, error) {
	d.t.Helper()
	p := counterfoil.ResolveParams{ID: id, Outcome: outcome, Note: "asked the ledger", Capture: capture}
	if outcome == operation.Happened {
		p.Receipt = receipt("by hand")
	}
	return d.olga().Resolve(d.t.Context(), p)
}

func key(kind state.Kind, id string) state.Key {
	return state.Key{Scope: scope, Kind: kind, ID: id}
}

func holdID(request string) string { return ids.Hold("ann", request) }

const lease = counterfoil.DefaultLease

var errTest = errors.New("of the test")

const day = 24 * time.Hour
