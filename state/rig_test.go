package state_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/state/statetest"
)

// Times of the tests: start is a Tuesday, 2026-09-22, 10:13:20 UTC.
const (
	start  = 1_790_072_000_000
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// rig is one scope on the smallest store.
type rig struct {
	testing.TB
	*statetest.Plain
	commit int // of the batches that make their own ids
}

// newRig makes a scope for three store instances.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := emptyRig(t)
	body := state.NewScope(1)
	body.Writers = 3
	r.applies(state.PutScope{Key: state.ScopeKey("s"), Scope: body})
	return r
}

func emptyRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{TB: t, Plain: statetest.NewPlain()}
	r.Now = start
	return r
}

// run runs a batch as the store instance 0.
func (r *rig) run(b *state.Batch) state.Outcome {
	r.Helper()
	out, err := r.Do(b, 0)
	if err != nil {
		r.Fatalf("%s: %v", statetest.Show(b), err)
	}
	return out
}

func (r *rig) do(ops ...state.Op) state.Outcome {
	r.Helper()
	return r.run(&state.Batch{Scope: "s", Ops: ops})
}

func (r *rig) applies(ops ...state.Op) state.Outcome {
	r.Helper()
	return r.appliesAs(0, ops...)
}

// appliesAs applies ops as a certain store instance.
func (r *rig) appliesAs(shard uint16, ops ...state.Op) state.Outcome {
	r.Helper()
	b := &state.Batch{Scope: "s", Ops: ops}
	out, err := r.Do(b, shard)
	if err != nil || !out.Applied {
		r.Fatalf("%s: %v, refused for %s", statetest.Show(b), err, statetest.Show(out.Refusals))
	}
	return out
}

// refuses runs ops that must be refused for exactly these reasons, in the order
// of the ops, and must write nothing.
func (r *rig) refuses(reasons []state.Reason, ops ...state.Op) state.Outcome {
	r.Helper()
	return r.refusesBatch(reasons, &state.Batch{Scope: "s", Ops: ops})
}

func (r *rig) refusesBatch(reasons []state.Reason, b *state.Batch) state.Outcome {
	r.Helper()
	before := r.Open()
	out := r.run(b)
	var got []state.Reason
	for _, refusal := range out.Refusals {
		got = append(got, refusal.Reason)
	}
	if !slices.Equal(got, reasons) {
		r.Fatalf("%s: applied %t, repeated %t, refused for %q, want %q", statetest.Show(b), out.Applied, out.Repeated, got, reasons)
	}
	if out.Applied || out.Repeated || !statetest.Same(before, r.Open()) {
		r.Fatalf("%s: a refusal left a trace", statetest.Show(b))
	}
	return out
}

// repeats runs ops that must be recognised as applied before.
func (r *rig) repeats(ops ...state.Op) *state.Record {
	r.Helper()
	before := r.Open()
	out := r.do(ops...)
	if !out.Repeated || out.Applied || len(out.Refusals) > 0 || out.Anchor == nil {
		r.Fatalf("%s: not repeated: %s", statetest.Show(ops), statetest.Show(out.Refusals))
	}
	if !statetest.Same(before, r.Open()) {
		r.Fatal("a repetition left a trace")
	}
	return out.Anchor
}

// fails runs ops that must get no outcome but this error, and write nothing.
func (r *rig) fails(want error, ops ...state.Op) {
	r.Helper()
	r.failsBatch(want, &state.Batch{Scope: "s", Ops: ops})
}

func (r *rig) failsBatch(want error, b *state.Batch) {
	r.Helper()
	before := r.Open()
	if out, err := r.Do(b, 0); !errors.Is(err, want) {
		r.Fatalf("%s: %v (applied %t, refused for %s), want %v", statetest.Show(b), err, out.Applied, statetest.Show(out.Refusals), want)
	}
	if !statetest.Same(before, r.Open()) {
		r.Fatal("an error left a trace")
	}
}

// record opens the record of a key, nil if there is none.
func (r *rig) record(key state.Key) *state.Record {
	r.Helper()
	s, ok := r.Records[key]
	if !ok {
		return nil
	}
	rec, err := r.Keys.Open(key, s)
	if err != nil {
		r.Fatal(err)
	}
	return rec
}

// change replaces the body of the scope's record.
func (r *rig) change(change func(*state.Scope)) {
	r.Helper()
	rec := r.record(state.ScopeKey("s"))
	body := *rec.Scope()
	change(&body)
	r.applies(state.PutScope{Key: state.ScopeKey("s"), IfVersion: rec.Version, Scope: body})
}

func (r *rig) recount() {
	r.Helper()
	if err := state.Recount("s", r.Open()); err != nil {
		r.Fatal(err)
	}
}

func key(kind state.Kind, id string) state.Key { return state.Key{Scope: "s", Kind: kind, ID: id} }

func op(id string) state.Key     { return key(state.KindOperation, id) }
func hold(id string) state.Key   { return key(state.KindHold, id) }
func budget(id string) state.Key { return key(state.KindBudget, id) }

// claim makes a pending record of an owner, with token 1.
func claim(k state.Key) state.Claim {
	c := state.Claim{Key: k, Owner: "ann", Token: state.Token{1}, Digest: state.Digest{1}, State: state.Pending, Body: []byte("body")}
	switch k.Kind {
	case state.KindMarker:
		c.State, c.Expires = state.Settled, start+day
	case state.KindChallenge:
		c.Expires = start + day
	}
	return c
}

func reasons(list ...state.Reason) []state.Reason { return list }
