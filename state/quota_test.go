package state_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/state/statetest"
)

// claimN claims the n-th record of an owner as a store instance, and says
// whether there was room.
func (r *rig) claimN(shard uint16, owner string, n int) bool {
	r.Helper()
	c := change(claim(hold(fmt.Sprintf("%s%d", owner, n))), func(o *state.Claim) { o.Owner = owner })
	out, err := r.Do(&state.Batch{Scope: "s", Ops: []state.Op{c}}, shard)
	if err != nil {
		r.Fatal(err)
	}
	return out.Applied
}

func (r *rig) dropN(owner string, n int) {
	r.Helper()
	r.applies(state.Drop{Key: hold(fmt.Sprintf("%s%d", owner, n)), Token: state.Token{1}})
}

// TestCapIsExact: with any number of store instances, in any turn, exactly as
// many records fit as the cap says.
func TestCapIsExact(t *testing.T) {
	t.Parallel()
	for name, turn := range map[string]func(n int) uint16{
		"one instance":            func(int) uint16 { return 0 },
		"in turn":                 func(n int) uint16 { return uint16(n % 3) },
		"one after the other":     func(n int) uint16 { return uint16(n / 8 % 3) },
		"beyond the known shards": func(n int) uint16 { return uint16(n % 5) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.change(func(s *state.Scope) { s.Caps.Live = 20; s.Writers = 5 })
			granted := 0
			for n := range 40 {
				if r.claimN(turn(n), "", n) {
					granted++
				}
				r.recount()
			}
			if granted != 20 {
				t.Errorf("%d were granted of 20", granted)
			}
			// What is given back can be taken by any other.
			for n := range 20 {
				r.dropN("", n)
				if !r.claimN(turn(39-n), "", 100+n) || r.claimN(turn(n), "", 200+n) {
					t.Fatalf("after %d given back", n)
				}
				r.recount()
			}
		})
	}
}

func TestOwnerCapIsExact(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.change(func(s *state.Scope) { s.Caps.Live, s.Caps.OwnerLive = 10, 4 })
	granted := map[string]int{}
	for n := range 30 {
		for i, owner := range []string{"ann", "bob", "cy"} {
			if r.claimN(uint16((n+i)%3), owner, n) {
				granted[owner]++
			}
		}
	}
	if granted["ann"] != 4 || granted["bob"]+granted["cy"] != 6 || granted["bob"] > 4 || granted["cy"] > 4 {
		t.Errorf("granted %v", granted)
	}
	more := func(owner string) state.Op {
		return change(claim(hold("more")), func(o *state.Claim) { o.Owner = owner })
	}
	r.refuses(reasons(state.Full), more("dan"))
	r.refuses(reasons(state.Full, state.OwnerFull), more("ann"))
	r.dropN("cy", 0)
	r.refuses(reasons(state.OwnerFull), more("ann"))
	r.applies(more("dan"))
	// Another kind has its own count.
	r.applies(claim(op("o")))
	r.recount()
}

// TestLoweredCapOnlyRefuses: what is there stays, nothing is added until there
// is room, and a cap that went down and up again is as exact as before.
func TestLoweredCapOnlyRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	caps := func(n uint64) { r.change(func(s *state.Scope) { s.Caps.Live = n }) }
	caps(9)
	for n := range 9 {
		if !r.claimN(uint16(n%3), "", n) {
			t.Fatal("no room")
		}
	}
	caps(5)
	for n := range 4 {
		if r.claimN(uint16(n%3), "", 100+n) {
			t.Fatalf("granted above a lowered cap, with %d", 9-n)
		}
		r.dropN("", n)
		r.recount()
	}
	for shard := range uint16(3) {
		if r.claimN(shard, "", 200) {
			t.Fatal("granted at the lowered cap")
		}
	}
	r.dropN("", 4)
	if !r.claimN(1, "", 300) || r.claimN(2, "", 301) {
		t.Fatal("not exact below the lowered cap")
	}
}

// TestCapThatGoesUpAndDownAgainIsExact: allowances that were granted under a cap
// must not come back to life with it.
func TestCapThatGoesUpAndDownAgainIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		live, limit := 0, uint64(10_000_000)
		for n := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"claim", "claim", "claim", "drop", "cap", "take over"}).Draw(rt, "do") {
			case "take over":
				// A record that is over gives its place to a successor, in whichever shard.
				all := r.Open()
				for _, k := range statetest.SortedKeys(all) {
					rec := all[k]
					if k.Kind == state.KindHold && rec.State == state.Pending {
						r.applies(state.Update{Key: k, Token: rec.Token, Expires: r.Now + 1})
						r.Now++
						r.appliesAs(rapid.Uint16Range(0, 2).Draw(rt, "shard"), change(claim(k), func(o *state.Claim) { o.Owner, o.Token = "", state.Token{byte(n + 2)} }))
						break
					}
				}
			case "claim":
				granted := r.claimN(rapid.Uint16Range(0, 2).Draw(rt, "shard"), "", n)
				if granted != (uint64(live) < limit) {
					rt.Fatalf("granted %t with %d of %d", granted, live, limit)
				}
				if granted {
					live++
				}
			case "drop":
				all := r.Open()
				for _, k := range statetest.SortedKeys(all) {
					rec := all[k]
					if k.Kind == state.KindHold && rec.State == state.Pending && (uint16(n)%3 == rec.Shard || len(all) < 6) {
						r.applies(state.Drop{Key: k, Token: rec.Token})
						live--
						break
					}
				}
			case "cap":
				limit = rapid.SampledFrom([]uint64{3, 6, 12}).Draw(rt, "cap")
				r.change(func(s *state.Scope) { s.Caps.Live = limit })
			}
			r.recount()
		}
	})
}

// TestAllowancesAreTakenBack: an instance that needs room takes what others
// were allowed and do not use.
func TestAllowancesAreTakenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.change(func(s *state.Scope) { s.Caps.Live = 30 })
	for shard := range uint16(3) {
		r.claimN(shard, "", int(shard))
	}
	for n := 3; n < 30; n++ {
		if !r.claimN(2, "", n) {
			t.Fatalf("no room for number %d of 30", n)
		}
		r.recount()
	}
	if r.claimN(0, "", 30) || r.claimN(1, "", 31) || r.claimN(2, "", 32) {
		t.Error("granted above the cap")
	}
}

// TestClaimReadsOnlyItsOwnShard: away from the cap a claim costs the same
// however many instances and records there are.
func TestClaimReadsOnlyItsOwnShard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for n := range 6 {
		r.claimN(uint16(n%3), "ann", n)
	}
	b := &state.Batch{Scope: "s", Ops: []state.Op{claim(hold("new"))}}
	v := state.NewView()
	keys := b.Keys(nil, 1)
	for _, k := range keys {
		if rec := r.record(k); rec != nil {
			v.Load(k, rec)
		} else {
			v.Absent(k)
		}
	}
	d := state.Decide(v, b, state.Context{Now: start, Version: state.Version{1}, Shard: 1})
	if len(d.Need) > 0 || !d.Outcome.Applied {
		t.Errorf("needs %d more keys", len(d.Need))
	}
	if len(keys) != 4 || len(d.Writes) != 3 {
		t.Errorf("reads %d and writes %d records", len(keys), len(d.Writes))
	}
}

// TestClaimNeedsItsCount: the shards that a claim is counted in are part of
// what is read, so that they are compared.
func TestClaimNeedsItsCount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := &state.Batch{Scope: "s", Ops: []state.Op{claim(hold("new"))}}
	var counts int
	for _, k := range b.Keys(nil, 1) {
		if k.Kind == state.KindQuota {
			counts++
		}
	}
	if counts != 2 {
		t.Errorf("Keys names %d counts, want those of the scope and of the owner", counts)
	}
	v := state.NewView()
	v.Load(state.ScopeKey("s"), r.record(state.ScopeKey("s")))
	v.Absent(hold("new"))
	d := state.Decide(v, b, state.Context{Now: start, Version: state.Version{1}, Shard: 1})
	if !slices.ContainsFunc(d.Need, func(k state.Key) bool { return k.Kind == state.KindQuota }) || len(d.Writes) > 0 {
		t.Errorf("decides without having read a count: needs %v", d.Need)
	}
}

// TestTwoInstancesCannotCountPastEachOther: each decides on what the other has
// not written yet; the second is decided again as its read set has changed.
func TestTwoInstancesCannotCountPastEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.change(func(s *state.Scope) { s.Caps.Live = 1 })
	batches := []*state.Batch{{Scope: "s", Ops: []state.Op{claim(hold("a"))}}, {Scope: "s", Ops: []state.Op{claim(hold("b"))}}}
	reads := make([][]state.Key, 2)
	writes := make([][]state.Write, 2)
	for i, b := range batches {
		v := state.NewView()
		reads[i] = b.Keys(nil, uint16(i))
		for range 3 {
			for _, k := range reads[i] {
				if rec := r.record(k); rec != nil {
					v.Load(k, rec)
				} else {
					v.Absent(k)
				}
			}
			d := state.Decide(v, b, state.Context{Now: start, Version: state.Version{1}, Shard: uint16(i)})
			reads[i] = append(reads[i], d.Need...)
			writes[i] = d.Writes
		}
		if len(writes[i]) == 0 {
			t.Fatal("no room for the first")
		}
	}
	for _, w := range writes[0] {
		if slices.Contains(reads[1], w.Key) {
			return // the comparison of the read set catches it
		}
	}
	t.Error("the second instance did not read anything that the first one writes")
}

func TestExpiredRecordGivesItsPlaceToItsSuccessor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.change(func(s *state.Scope) { s.Caps.Live = 2 })
	for i, id := range []string{"a", "b"} {
		r.appliesAs(uint16(i), change(claim(hold(id)), func(o *state.Claim) { o.Expires = start + minute }))
	}
	r.change(func(s *state.Scope) { s.Caps.Live = 1 })
	r.Now += minute
	// Even above a lowered cap, and in another shard: nothing is added.
	r.appliesAs(2, change(claim(hold("a")), func(o *state.Claim) { o.Token = state.Token{2}; o.Owner = "bob" }))
	r.recount()
	r.refuses(reasons(state.Full), claim(hold("c")))
}

func TestWhatIsCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.change(func(s *state.Scope) { s.Caps.Live, s.Caps.OwnerLive = 1, 1 })
	for name, o := range map[string]state.Op{
		"floor": state.Raise{Key: key(state.KindFloor, "a"), To: 1}, "counter": state.Add{Key: key(state.KindCounter, "a"), Amount: 1},
		"credential": claim(key(state.KindCredential, "a")), "approval": claim(key(state.KindApproval, "a")), "permit": claim(key(state.KindMarker, "a")),
		"operation": claim(op("a")), "challenge": claim(key(state.KindChallenge, "a")), "hold": claim(hold("a")), "spend": claim(key(state.KindSpend, "a")),
		"budget": state.PutBudget{Key: budget("a"), Unit: "USD", Window: state.Window{Kind: state.WindowLifetime}},
	} {
		r.applies(o)
		second := map[string]state.Op{
			"floor": state.Raise{Key: key(state.KindFloor, "b"), To: 1}, "counter": state.Add{Key: key(state.KindCounter, "b"), Amount: 1},
			"budget": state.PutBudget{Key: budget("b"), Unit: "USD", Window: state.Window{Kind: state.WindowLifetime}},
		}[name]
		want := reasons(state.Full)
		if c, ok := o.(state.Claim); ok {
			c.Key.ID = "b"
			second, want = c, reasons(state.Full, state.OwnerFull)
		}
		r.refuses(want, second)
		r.recount()
	}
	// Removing gives the place back.
	r.applies(state.Remove{Key: key(state.KindCounter, "a")})
	r.applies(state.Add{Key: key(state.KindCounter, "b"), Amount: 1})
	r.recount()
}

// receipts claims and settles operations with receipts of some size.
func (r *rig) receipt(id, owner string, size int) *state.Record {
	r.Helper()
	r.applies(change(claim(op(id)), func(o *state.Claim) { o.Owner = owner }))
	r.applies(state.Settle{Key: op(id), Token: state.Token{1}, Body: make([]byte, size), Short: []byte("digest"), Retain: r.Now + minute, Expires: r.Now + day})
	r.recount()
	return r.record(op(id))
}

// TestReceiptBytesHaveACap: recording is never refused, the receipt is kept in
// its short form; small ones do not count.
func TestReceiptBytesHaveACap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.change(func(s *state.Scope) { s.Caps.Bytes, s.Caps.OwnerBytes = 1000, 600 })
	for i, c := range []struct {
		owner      string
		size, want int
	}{
		{"ann", 300, 300}, {"ann", 300, 300}, {"ann", 129, 6}, {"ann", 128, 128}, {"bob", 400, 400}, {"bob", 129, 6}, {"", 129, 6}, {"", 128, 128},
	} {
		if rec := r.receipt(fmt.Sprint(i), c.owner, c.size); len(rec.Body) != c.want || rec.State != state.Settled {
			t.Errorf("receipt %d of %d bytes is kept with %d, want %d", i, c.size, len(rec.Body), c.want)
		}
	}
	// A tombstone gives the bytes back.
	r.Now += minute
	r.applies(state.Sweep{Key: op("0")})
	if rec := r.receipt("again", "bob", 200); len(rec.Body) != 200 {
		t.Error("the bytes of a tombstone are not given back")
	}
}

// TestTombstonesHaveTheirOwnCap: where there is no room for one, the receipt
// stays in its place, and what can be deleted is.
func TestTombstonesHaveTheirOwnCap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.change(func(s *state.Scope) { s.Caps.Tombstones, s.Caps.OwnerTombstones = 3, 2 })
	for _, id := range []string{"ann1", "ann2", "ann3", "bob1", "cy1"} {
		r.receipt(id, id[:3], 200)
	}
	r.applies(change(claim(hold("gone")), func(o *state.Claim) { o.Expires = start + minute }))
	r.Now = start + minute
	var sweep []state.Op
	for _, id := range []string{"ann1", "ann2", "ann3", "bob1", "cy1"} {
		sweep = append(sweep, state.Sweep{Key: op(id)})
	}
	r.applies(sweep...)
	out := r.applies(sweep...)
	r.recount()
	tombs := map[string]int{}
	for k, rec := range r.Open() {
		if k.Kind == state.KindOperation && rec.Tomb {
			tombs[k.ID]++
		}
	}
	if len(tombs) != 3 || tombs["ann1"]+tombs["ann2"]+tombs["bob1"] != 3 || slices.Contains(out.Skipped, false) {
		t.Errorf("tombstones: %v, skipped %v", tombs, out.Skipped)
	}
	// What is left without room does not keep the sweeper from deleting.
	r.Now = start + minute + state.HoldKeep
	r.applies(state.Sweep{Key: hold("gone")}, sweep[2])
	if r.record(hold("gone")) != nil {
		t.Error("an expired hold is still there")
	}
	r.recount()
}
