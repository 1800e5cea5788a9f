package state_test

import (
	"fmt"
	"testing"

	"github.com/counterfoil/counterfoil/state"
)

// pending loads a view for each batch anew, as a store does for each group.
func benchmarkDecide(b *testing.B, r *rig, batch *state.Batch) {
	view := viewOf(r, batch)
	keys := r.Keys
	c := state.Context{Now: r.Now, Version: state.Version{1}}
	d := state.Decide(view, batch, c)
	if !d.Outcome.Applied {
		b.Fatalf("%v, refused for %+v", d.Err, d.Outcome.Refusals)
	}
	b.Run("decide", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			state.Decide(view, batch, c)
		}
	})
	b.Run("decide and seal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d := state.Decide(view, batch, c)
			for _, w := range d.Writes {
				keys.Seal(w.Key, w.Record)
			}
		}
	})
}

// BenchmarkClaim is a claim of an absent key with its two counts, of the scope
// and of the owner: three records.
func BenchmarkClaim(b *testing.B) {
	r := newRig(b)
	r.applies(claim(op("other")))
	c := claim(op("0193b2f8c1f17d3aa0b4c6d8e0f21234"))
	c.Body = make([]byte, 150)
	benchmarkDecide(b, r, &state.Batch{Scope: "s", Ops: []state.Op{c}, NotAfter: start + minute})
}

// BenchmarkReplay is a claim of a key that has a receipt.
func BenchmarkReplay(b *testing.B) {
	r := newRig(b)
	r.receipt("done", "ann", 500)
	batch := &state.Batch{Scope: "s", Ops: []state.Op{change(claim(op("done")), func(o *state.Claim) { o.Token = state.Token{2} })}, NotAfter: start + minute}
	view := viewOf(r, batch)
	b.ReportAllocs()
	for b.Loop() {
		state.Decide(view, batch, state.Context{Now: start, Version: state.Version{1}})
	}
}

// BenchmarkSpend is a spend record and four Moves up a tree of budgets.
func BenchmarkSpend(b *testing.B) {
	r := newRig(b)
	names := []string{"b1"}
	r.define("b1", 1000, lifetime)
	for i := 2; i <= 4; i++ {
		name := fmt.Sprint("b", i)
		r.define(name, 1000, state.Window{Kind: state.WindowDay, Zone: "Europe/Berlin"}, names[0])
		names = append([]string{name}, names...)
	}
	r.give(held(start+hour), 5, names...)
	r.give(held(start+2*hour), 5, names...)
	ops := anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: spent, GiveAmount: 1}, names...)...)
	benchmarkDecide(b, r, &state.Batch{Scope: "s", Ops: ops, NotAfter: start + minute, Keep: true})
}

func BenchmarkSeal(b *testing.B) {
	records, keys := everyRecord(b)
	for name, k := range map[string]state.Key{"operation": op("pending"), "receipt of 500 bytes": op("receipt"), "budget": budget("a/b"), "tombstone": op("tomb")} {
		rec, err := keys.Open(k, records[k])
		if err != nil {
			b.Fatal(err)
		}
		b.Run("seal "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				keys.Seal(k, rec)
			}
		})
		b.Run("open "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := keys.Open(k, records[k]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
