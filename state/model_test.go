package state_test

import (
	"errors"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/state/statetest"
)

// begin is when random programs start: a moment before a day ends in Berlin.
const begin = 1_790_000_000_000

// program runs random batches on the smallest store and on the model.
type program struct {
	*rapid.T
	model *statetest.Model
	store *statetest.Plain
}

// TestDecideAgreesWithTheModel: random programs by several store instances on
// one scope, with a clock that goes on, caps that change, damage and repair.
// Every answer is the model's, and after every batch so is every record.
func TestDecideAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	for part := range 4 { // a hundred programs each
		t.Run(strconv.Itoa(part), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, randomProgram)
		})
	}
}

func randomProgram(r *rapid.T) {
	p := &program{r, statetest.NewModel("s"), statetest.NewPlain()}
	p.store.Now = begin
	for range rapid.IntRange(10, 100).Draw(r, "batches") {
		p.store.Now += statetest.Step(r)
		p.group(rapid.SampledFrom([]int{1, 1, 2, 1, 5}).Draw(r, "group"))
		if rapid.IntRange(1, 25).Draw(r, "damage") == 25 {
			p.damage()
		}
	}
}

func (p *program) step(batches ...*state.Batch) {
	before := p.store.Open()
	wanted := make([]statetest.Answer, len(batches))
	for i, b := range batches {
		wanted[i] = p.model.Apply(b, p.stamp(i))
	}
	p.compare(batches, wanted, before)
}

// group draws batches that are decided one after another in one commit.
func (p *program) group(n int) {
	before := p.store.Open()
	batches, wanted := make([]*state.Batch, n), make([]statetest.Answer, n)
	for i := range batches {
		batches[i] = statetest.Draw(p.T, p.model, p.store.Now)
		wanted[i] = p.model.Apply(batches[i], p.stamp(i))
	}
	p.compare(batches, wanted, before)
}

func (p *program) stamp(seq int) statetest.Stamp {
	return statetest.Stamp{Now: p.store.Now, Version: p.store.Version(), Generation: p.store.Generation(seq)}
}

func (p *program) compare(batches []*state.Batch, wanted []statetest.Answer, before map[state.Key]*state.Record) {
	results := p.store.Group(batches, rapid.Uint16Range(0, 2).Draw(p.T, "shard"))
	applied := false
	for i, b := range batches {
		if diff := statetest.Diff(statetest.AnswerOf(results[i].Outcome, results[i].Err), wanted[i]); diff != "" {
			p.Fatalf("%s\nat %d, batch %s", diff, p.store.Now, statetest.Show(b))
		}
		applied = applied || wanted[i].Applied
	}
	after := p.store.Open()
	if diff := p.model.Compare(after); diff != "" {
		p.Fatalf("%s\nafter %s", diff, statetest.Show(batches))
	}
	p.invariants(batches, applied, before, after)
}

// damage flips a bit in one record, and has it answered as damaged; then, most
// of the time, an operator overwrites it.
func (p *program) damage() {
	keys := p.damageable()
	if len(keys) == 0 {
		return
	}
	key := rapid.SampledFrom(keys).Draw(p.T, "damaged")
	whole := p.model.Facts[key]
	p.store.Damage(key)
	p.model.Damage(key)
	for _, b := range []*state.Batch{
		{Scope: "s", Read: []state.Key{key}},
		{Scope: "s", Ops: []state.Op{state.Claim{Key: key, Token: whole.Token, Digest: whole.Digest, State: state.Settled, Expires: p.store.Now + 9}}},
	} {
		if _, err := p.store.Do(b, 0); !errors.Is(err, state.ErrCorrupt) {
			p.Fatalf("a damaged record gives %v", err)
		}
	}
	o := state.Replace{
		Key: key, Version: whole.Version, State: rapid.SampledFrom([]state.State{state.Settled, state.Void}).Draw(p.T, "state"), Owner: whole.Owner,
		Token: state.Token{7}, Body: []byte("mended"),
	}
	p.step(&state.Batch{Scope: "s", Ops: []state.Op{o}})
}

// damageable lists the claimed records that are counted as live: which others a
// damaged one was counted among cannot be told.
func (p *program) damageable() (keys []state.Key) {
	for _, key := range statetest.SortedKeys(p.model.Facts) {
		f := p.model.Facts[key]
		if key.Kind >= state.KindCredential && key.Kind <= state.KindSpend && f.State != state.Void && !f.Tomb && len(f.Body) <= state.FreeBodyBytes {
			keys = append(keys, key)
		}
	}
	return keys
}

// invariants holds on every engine, whatever the program.
func (p *program) invariants(batches []*state.Batch, applied bool, before, after map[state.Key]*state.Record) {
	if err := state.Recount("s", after); err != nil {
		p.Fatalf("%v\nafter %s", err, statetest.Show(batches))
	}
	if !applied && !statetest.Same(before, after) {
		p.Fatalf("nothing was applied, and something was written: %s", statetest.Show(batches))
	}
	if len(batches) > 1 {
		return // the others compare two states that are one batch apart
	}
	for key, old := range before {
		if now := after[key]; now != nil {
			p.neverBack(key, old, now)
		}
	}
	for key, now := range after {
		if now.Budget() != nil {
			p.withinLimit(key, before[key], now)
		}
	}
}

// neverBack: epochs, floors, fences and time rise; a receipt never changes but
// into a tombstone, unless it was over.
func (p *program) neverBack(key state.Key, old, now *state.Record) {
	switch {
	case now.Updated < old.Updated:
		p.Fatalf("a %s record's time goes back", key.Kind)
	case key.Kind == state.KindFloor && now.Value < old.Value:
		p.Fatalf("a floor goes from %d to %d", old.Value, now.Value)
	case key.Kind == state.KindScope && (now.Scope().Epoch < old.Scope().Epoch || now.Scope().Floor < old.Scope().Floor || now.Scope().Generation < old.Scope().Generation):
		p.Fatalf("a scope goes from %+v to %+v", *old.Scope(), *now.Scope())
	case key.Kind == state.KindOperation && now.Version != old.Version && now.State == state.Pending && now.Created == p.store.Now && old.Created < p.store.Now && now.Fence <= old.Fence:
		p.Fatalf("a new claim's fence goes from %d to %d", old.Fence, now.Fence)
	case old.State == state.Settled && key.Kind >= state.KindCredential && key.Kind <= state.KindSpend && !old.Over(p.store.Now) && now.Version != old.Version:
		if !now.Tomb || old.Retained(p.store.Now) || now.Fence != old.Fence {
			p.Fatalf("a settled %s record changes", key.Kind)
		}
	}
}

// withinLimit: a budget's use does not grow above the limit that is in force.
func (p *program) withinLimit(key state.Key, old, now *state.Record) {
	is, _, err := now.Budget().At(p.store.Now)
	if err != nil {
		p.Fatal(err)
	}
	was := uint64(0)
	if old != nil && old.Budget().Generation == is.Generation {
		b, _, err := old.Budget().At(p.store.Now)
		if err != nil {
			p.Fatal(err)
		}
		if is.Start < old.Budget().Start {
			p.Fatalf("the window of %q goes back", key.ID)
		}
		was = b.Used()
	}
	if is.Used() > was && (is.Used() > is.Limit && !is.Unlimited || is.Used() > state.MaxAmount) {
		p.Fatalf("the use of %q goes from %d to %d, above its limit of %d", key.ID, was, is.Used(), is.Limit)
	}
}
