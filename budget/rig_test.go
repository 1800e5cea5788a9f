package budget_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/state"
)

const (
	scope = storetest.Scope
	owner = "alice"
)

// rig is a fixture with budgets on it.
type rig struct {
	*storetest.Fixture
	*budget.Budgets
	t failer
}

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func newRig(t failer, f *storetest.Fixture) *rig {
	return &rig{Fixture: f, Budgets: budget.New(f.Store, budget.Options{}), t: t}
}

// each runs a test on every engine.
func each(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) { test(t, newRig(t, f)) })
}

func (r *rig) reopen() {
	r.Reopen()
	r.Budgets = budget.New(r.Store, budget.Options{})
}

func ctx() context.Context { return context.Background() }

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// define makes a lifetime budget of cents.
func (r *rig) define(name string, limit uint64, parent string) {
	r.t.Helper()
	r.defineIn(name, limit, parent, budget.Window{Kind: budget.Lifetime})
}

func (r *rig) defineIn(name string, limit uint64, parent string, w budget.Window) {
	r.t.Helper()
	_, err := r.Define(ctx(), budget.DefineParams{Scope: scope, Definition: budget.Definition{
		Name: name, Unit: "cents", Limit: limit, Window: w, Parent: parent,
	}})
	r.must(err)
}

func entries(pairs ...any) []budget.Entry {
	var list []budget.Entry
	for pair := range slices.Chunk(pairs, 2) {
		list = append(list, budget.Entry{Budget: pair[0].(string), Amount: uint64(pair[1].(int))})
	}
	return list
}

func (r *rig) spend(id string, pairs ...any) (budget.Spent, error) {
	return r.Spend(ctx(), budget.SpendParams{Scope: scope, Owner: owner, RequestID: id, Entries: entries(pairs...)})
}

func (r *rig) mustSpend(id string, pairs ...any) budget.Spent {
	r.t.Helper()
	s, err := r.spend(id, pairs...)
	r.must(err)
	return s
}

func (r *rig) refund(id string) error {
	_, err := r.Refund(ctx(), budget.RefundParams{Scope: scope, Owner: owner, SpendID: id})
	return err
}

func (r *rig) hold(id string, ttl time.Duration, pairs ...any) (budget.Held, error) {
	return r.Hold(ctx(), budget.HoldParams{Scope: scope, Owner: owner, RequestID: id, Entries: entries(pairs...), TTL: ttl})
}

func (r *rig) mustHold(id string, ttl time.Duration, pairs ...any) budget.Held {
	r.t.Helper()
	h, err := r.hold(id, ttl, pairs...)
	r.must(err)
	return h
}

func (r *rig) capture(id string, pairs ...any) (budget.Captured, error) {
	list := entries(pairs...)
	return r.Capture(ctx(), budget.CaptureParams{Scope: scope, Owner: owner, HoldID: id, Capture: &list})
}

func (r *rig) void(id string) error {
	_, err := r.Void(ctx(), budget.VoidParams{Scope: scope, Owner: owner, HoldID: id})
	return err
}

func (r *rig) extend(id string, ttl time.Duration) (budget.Extended, error) {
	return r.Extend(ctx(), budget.ExtendParams{Scope: scope, Owner: owner, HoldID: id, TTL: ttl})
}

func (r *rig) close(prefix string) int {
	r.t.Helper()
	c, err := r.Budgets.Close(ctx(), budget.CloseParams{Scope: scope, Prefix: prefix})
	r.must(err)
	if c.More {
		r.t.Fatal("a small close left something")
	}
	return c.Removed
}

func (r *rig) holdState(id string) budget.HoldState {
	r.t.Helper()
	v, err := r.GetHold(ctx(), budget.GetHoldParams{Scope: scope, Owner: owner, HoldID: id})
	r.must(err)
	return v.State
}

// stands checks what is spent and held in a budget.
func (r *rig) stands(name string, spent, held uint64) {
	r.t.Helper()
	b, err := r.Get(ctx(), budget.GetParams{Scope: scope, Name: name})
	r.must(err)
	if b.Spent != spent || b.Held != held {
		r.t.Fatalf("%s stands at %d spent, %d held; want %d, %d", name, b.Spent, b.Held, spent, held)
	}
}

func (r *rig) refused(err, want error) {
	r.t.Helper()
	if !errors.Is(err, want) {
		r.t.Fatalf("got %v, want %v", err, want)
	}
}

// do sends parts behind an anchor, as the guarded call does.
func (r *rig) do(id string, parts ...*budget.Part) (state.Outcome, []int) {
	r.t.Helper()
	token, err := r.Token()
	r.must(err)
	ops := []state.Op{state.Claim{
		Key: state.Key{Scope: scope, Kind: state.KindOperation, ID: id}, Owner: owner, Token: token, State: state.Pending,
	}}
	var places []int
	for _, p := range parts {
		places = append(places, len(ops))
		ops = append(ops, p.Ops...)
	}
	out, err := r.Do(ctx(), &state.Batch{Scope: scope, Ops: ops, Keep: true})
	r.must(err)
	return out, places
}
