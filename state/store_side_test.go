package state_test

import (
	"errors"
	"testing"

	"github.com/counterfoil/counterfoil/state"
)

// What a store needs besides Decide.

func TestCheckedBatchIsItsOwn(t *testing.T) {
	t.Parallel()
	b := state.Batch{Scope: "s", Ops: []state.Op{claim(op("x"))}, Read: []state.Key{op("y")}}
	checked, err := b.Checked()
	if err != nil {
		t.Fatal(err)
	}
	b.Ops[0], b.Read[0] = &state.Check{Key: state.ScopeKey("s"), After: 1}, op("z")
	r := newRig(t)
	if out := r.run(&checked); !out.Applied || r.record(op("x")) == nil {
		t.Error("a checked batch changes with the caller's")
	}
	if _, err := b.Checked(); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("an invalid batch was found right: %v", err)
	}
	// Whoever changes a checked batch is caught by Decide.
	checked.Ops[0] = b.Ops[0]
	r.failsBatch(state.ErrInvalid, &checked)
	if d := state.Decide(viewOf(r, &state.Batch{Scope: "s", Read: []state.Key{state.ScopeKey("s")}}), &checked, state.Context{Now: start}); d.Outcome.Applied {
		t.Error("a foreign op was passed over")
	}
}

func TestSizeGrowsWithWhatABatchHolds(t *testing.T) {
	t.Parallel()
	body := make([]byte, 1000)
	for name, o := range map[string]state.Op{
		"Claim": change(claim(op("x")), func(o *state.Claim) { o.Body = body }), "Update": change(update(), func(o *state.Update) { o.Body = body }),
		"Settle": change(settle(), func(o *state.Settle) { o.Body = body }), "Drop": change(drop(), func(o *state.Drop) { o.Why = body }),
		"Replace": change(replace(), func(o *state.Replace) { o.Body = body }),
	} {
		if n := (&state.Batch{Scope: "s", Ops: []state.Op{o}}).Size(); n < 1000 || n > 2000 {
			t.Errorf("%s with 1000 bytes has a size of %d", name, n)
		}
	}
}

func TestRecordsThatLieAheadAreBroughtBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(change(claim(hold("x")), func(o *state.Claim) { o.Expires = start + hour }))
	rec := r.record(hold("x"))
	if rec.IsAhead(start) || !rec.IsAhead(start-1) {
		t.Error("whether it lies ahead")
	}
	back := rec.BroughtBack(state.Version{9}, start-minute)
	if back.Updated != start-minute || back.Created != start-minute || back.Expires != rec.Expires || back.Version != (state.Version{9}) || rec.Updated != start {
		t.Errorf("%+v", back)
	}
	w := state.NewWriterRecord(state.Writer{Instance: [16]byte{1}, Mark: start + hour, Lease: start + 2*hour}, state.Version{1}, start)
	if !w.IsAhead(start) {
		t.Error("a writer's mark lies ahead")
	}
	if back := w.BroughtBack(state.Version{2}, start); back.Writer().Mark != start || back.Writer().Lease != start || w.Writer().Mark != start+hour {
		t.Errorf("%+v", back.Writer())
	}
	scope := r.record(state.ScopeKey("s"))
	changed := scope.WithScope(state.Scope{Generation: 5, Epoch: 6}, state.Version{3}, start+1)
	if changed.Scope().Epoch != 6 || changed.Version != (state.Version{3}) || changed.Updated != start+1 || scope.Scope().Epoch != 1 {
		t.Errorf("%+v", changed)
	}
}

func TestViewForgets(t *testing.T) {
	t.Parallel()
	v := state.NewView()
	v.Absent(op("x"))
	if _, known, _ := v.Get(op("x")); !known {
		t.Error("not known")
	}
	v.Reset()
	if _, known, _ := v.Get(op("x")); known {
		t.Error("still known")
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.change(func(s *state.Scope) { s.Caps.Live = 10 })
	r.receipt("x", "ann", 500)
	seen := map[string]uint64{}
	for k, rec := range r.Open() {
		u, ok := state.UsageOf(k, rec)
		if ok != (k.Kind == state.KindQuota) {
			t.Errorf("a %s record has usage: %t", k.Kind, ok)
		}
		if ok && u.Kind == state.KindOperation {
			name := u.What
			if u.OfOwner {
				name += " of the owner"
			} else if u.What == "live" && u.Cap != 10 {
				t.Errorf("cap %d", u.Cap)
			}
			seen[name] = u.Used
		}
	}
	if len(seen) != 4 || seen["live"] != 1 || seen["live of the owner"] != 1 || seen["bytes"] != 500 || seen["bytes of the owner"] != 500 {
		t.Errorf("%v", seen)
	}
}

// TestMendedCountIsExact: an operator counts anew, and nobody grows on an
// allowance that is not there.
func TestMendedCountIsExact(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.change(func(s *state.Scope) { s.Caps.Live = 3 })
	for n := range 2 {
		r.claimN(0, "", n)
	}
	for k := range r.Records {
		if k.Kind == state.KindQuota {
			r.Damage(k)
			r.fails(state.ErrCorrupt, claim(hold("new")))
			r.applies(state.Replace{Key: k, Version: r.Records[k].Version, State: state.Settled, Body: state.EncodeCount(2)})
		}
	}
	if !r.claimN(0, "", 2) || r.claimN(0, "", 3) || r.claimN(1, "", 4) {
		t.Error("not exact")
	}
	r.recount()
}

func TestReasonsThatMeanTheSameEverywhere(t *testing.T) {
	t.Parallel()
	for reason, want := range map[state.Reason]error{
		state.Recovering: state.ErrRecovering, state.Stale: state.ErrStale, state.Full: state.ErrFull, state.OwnerFull: state.ErrOwnerFull,
		state.Exists: nil, state.OverLimit: nil,
	} {
		if got := state.RefusalError(reason); !errors.Is(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s is %v", reason, got)
		}
	}
	for s, want := range map[state.State]string{state.Pending: "pending", state.Settled: "settled", state.Void: "void", 0: "state(?)"} {
		if s.String() != want {
			t.Errorf("state %d is %q", s, s)
		}
	}
}

func TestSealedUnder(t *testing.T) {
	t.Parallel()
	keys := newKeys(t, 3, 4)
	s := keys.Seal(op("x"), &state.Record{Version: state.Version{1}, State: state.Pending})
	if id, ok := state.SealedUnder(s); !ok || id != state.IntegrityKeyID(secret(3)) {
		t.Error("the key's id")
	}
	for _, data := range [][]byte{nil, {1, 2, 3}, {9, 1, 2, 3, 4, 5}} {
		if _, ok := state.SealedUnder(&state.Sealed{Data: data}); ok {
			t.Errorf("%x names a key", data)
		}
	}
}
