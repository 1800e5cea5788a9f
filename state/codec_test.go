package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"runtime"
	"testing"
)

// seeds are encodings of records of every kind that has a body of its own.
func seeds() map[Kind][]*Record {
	scope := NewScope(1)
	scope.Quarantine, scope.Note, scope.Lineage = "why", "note", "replid"
	budget := &Budget{
		Unit: "USD", Limit: 5, Window: Window{Kind: WindowDay, Zone: "Europe/Berlin"}, Parent: "org", ParentGen: Version{1}, Generation: Version{2}, Start: 9,
		Spent: 1, Fenced: 2, Held: []Held{{Until: 10, Amount: 1, Since: 3}, {Until: 12, Amount: 1, Since: 4}},
	}
	return map[Kind][]*Record{
		KindScope:   {{State: Settled, scope: &scope}},
		KindBudget:  {{State: Settled, budget: budget}},
		KindQuota:   {{State: Settled, quota: &quota{Used: 1, Allowance: 2, Cap: 3}}},
		KindWriter:  {{State: Settled, writer: &Writer{Instance: [16]byte{1}, Mark: 5, Lease: 6}}},
		KindCounter: {{State: Settled, Value: 300}},
		KindFloor:   {{State: Settled, Value: 1}},
		KindOperation: {
			{State: Pending, Owner: "ann", OwnerTag: TagOwner("ann"), Token: Token{1}, Digest: Digest{2}, Given: Digest{3}, Created: 1, Updated: 2, Lease: 4, Fence: 5, Body: []byte("b")},
			{State: Settled, Tomb: true, OwnerTag: OwnerTag{1}, Expires: 9, Shard: 3},
			{State: Void, Retain: 1, Epoch: 2, Generation: 3, Result: []byte{0}},
		},
	}
}

// TestWhatDoesNotFitItsRangeIsCorrupt, also if it authenticates.
func TestWhatDoesNotFitItsRangeIsCorrupt(t *testing.T) {
	t.Parallel()
	keys, err := NewKeys(IntegrityKeyID(make([]byte, 32)), [][]byte{make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	budget := func(change func(*Budget)) *Record {
		b := *seeds()[KindBudget][0].budget
		change(&b)
		return &Record{State: Settled, budget: &b}
	}
	scope := func(change func(*Scope)) *Record {
		s := NewScope(1)
		change(&s)
		return &Record{State: Settled, scope: &s}
	}
	for name, c := range map[string]struct {
		kind Kind
		rec  *Record
	}{
		"no state":                        {KindOperation, &Record{}},
		"an unknown state":                {KindOperation, &Record{State: 4}},
		"a pending tombstone":             {KindOperation, &Record{State: Pending, Tomb: true}},
		"a shard beyond the slots":        {KindOperation, &Record{State: Pending, Shard: MaxWriters + 1}},
		"a negative time":                 {KindOperation, &Record{State: Pending, Created: -1}},
		"a time beyond the range":         {KindOperation, &Record{State: Pending, Updated: MaxAmount + 1}},
		"a negative lease":                {KindOperation, &Record{State: Pending, Lease: -1}},
		"an owner that is too long":       {KindOperation, &Record{State: Pending, Owner: string(make([]byte, 257))}},
		"a body that is too large":        {KindOperation, &Record{State: Pending, Body: make([]byte, MaxBodyBytes+1)}},
		"a counter above the ceiling":     {KindCounter, &Record{State: Settled, Value: MaxAmount + 1}},
		"a floor above the ceiling":       {KindFloor, &Record{State: Settled, Value: MaxAmount + 1}},
		"a counter without a value":       {KindScope, &Record{State: Settled, Body: []byte{}}},
		"a count above the ceiling":       {KindQuota, &Record{State: Settled, quota: &quota{Used: MaxAmount + 1}}},
		"a budget's limit":                {KindBudget, budget(func(b *Budget) { b.Limit = MaxAmount + 1 })},
		"a budget unlimited with a limit": {KindBudget, budget(func(b *Budget) { b.Unlimited = true })},
		"a budget's spent":                {KindBudget, budget(func(b *Budget) { b.Spent = MaxAmount + 1 })},
		"a budget's use":                  {KindBudget, budget(func(b *Budget) { b.Spent, b.Fenced = MaxAmount, 1 })},
		"a budget's holds out of order":   {KindBudget, budget(func(b *Budget) { b.Held = []Held{{Until: 12, Amount: 1}, {Until: 10, Amount: 1}} })},
		"a budget's hold twice":           {KindBudget, budget(func(b *Budget) { b.Held = []Held{{Until: 12, Amount: 1}, {Until: 12, Amount: 1}} })},
		"a budget's empty hold":           {KindBudget, budget(func(b *Budget) { b.Held = []Held{{Until: 12}} })},
		"a budget's holds too many":       {KindBudget, budget(func(b *Budget) { b.Held = make([]Held, MaxHeld+1) })},
		"a budget without a unit":         {KindBudget, budget(func(b *Budget) { b.Unit = "" })},
		"a budget without a generation":   {KindBudget, budget(func(b *Budget) { b.Generation = Version{} })},
		"a budget of no zone":             {KindBudget, budget(func(b *Budget) { b.Window.Zone = "Europe/Atlantis" })},
		"a budget of no window":           {KindBudget, budget(func(b *Budget) { b.Window = Window{} })},
		"a scope without an epoch":        {KindScope, scope(func(s *Scope) { s.Epoch = 0 })},
		"a scope without a generation":    {KindScope, scope(func(s *Scope) { s.Generation = 0 })},
		"a scope's cap":                   {KindScope, scope(func(s *Scope) { s.Caps.Live = MaxAmount + 1 })},
		"a scope's writers":               {KindScope, scope(func(s *Scope) { s.Writers = MaxWriters + 1 })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := Key{Scope: "s", Kind: c.kind, ID: "x"}
			c.rec.Version = Version{1}
			if _, err := keys.Open(key, keys.Seal(key, c.rec)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("opened: %v", err)
			}
		})
	}
}

// FuzzDecodeRecord: whatever is read is what would be written, nothing panics,
// and no length in the data decides how much is allocated.
func FuzzDecodeRecord(f *testing.F) {
	for kind, records := range seeds() {
		for _, r := range records {
			f.Add(byte(kind), appendRecord(nil, kind, r))
		}
	}
	f.Add(byte(KindBudget), []byte{2, 0x80, 8, 0, 0, 0, 0xff, 0xff, 0xff, 7})
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		k := Kind(kind)
		if !k.Valid() {
			return
		}
		r, err := decodeRecord(bytes.Clone(b), k)
		if err != nil {
			return
		}
		if got := appendRecord(nil, k, r); !bytes.Equal(got, b) {
			t.Errorf("%x of a %s was read, and is written as %x", b, k, got)
		}
	})
}

// TestDecodingAllocatesNoMoreThanItWasGiven: lengths that lie are found out
// before memory is taken for them.
func TestDecodingAllocatesNoMoreThanItWasGiven(t *testing.T) {
	long := binary.AppendUvarint([]byte{1, 0x80, 8, 0, 0, 0}, MaxBodyBytes)
	held := appendBudget(nil, seeds()[KindBudget][0].budget)
	held = append(held[:len(held)-7], binary.AppendUvarint(nil, MaxHeld)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := decodeRecord(long, KindOperation); err == nil {
			t.Fatal("decoded")
		}
		if _, err := decodeBudget(&decoder{b: held}); err == nil {
			t.Fatal("decoded")
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

func FuzzOpen(f *testing.F) {
	secret := make([]byte, IntegrityKeyBytes)
	keys, err := NewKeys(IntegrityKeyID(secret), [][]byte{secret})
	if err != nil {
		f.Fatal(err)
	}
	for kind, records := range seeds() {
		for _, r := range records {
			r.Version = Version{1}
			s := keys.Seal(Key{Scope: "s", Kind: kind, ID: "x"}, r)
			f.Add("s", byte(kind), "x", s.Version[:], s.Expiry, s.Lease, s.Data)
		}
	}
	f.Fuzz(func(t *testing.T, scope string, kind byte, id string, version []byte, expiry, lease int64, data []byte) {
		key := Key{Scope: scope, Kind: Kind(kind), ID: id}
		if key.Validate() != nil || len(version) != len(Version{}) {
			return
		}
		s := &Sealed{Version: Version(version), Expiry: expiry, Lease: lease, Data: data}
		r, err := keys.Open(key, s)
		switch {
		case err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrKeyUnknown):
			t.Errorf("an error of another sort: %v", err)
		case err == nil && !reflect.DeepEqual(keys.Seal(key, r), s):
			t.Error("what was opened is sealed otherwise")
		}
	})
}

func FuzzDecodeResult(f *testing.F) {
	figures := &Figures{Name: "a/b", Unit: "USD", Limit: 9, Spent: 1, Held: 2, Remaining: 6, Amount: 1, WindowAt: 5, ResetsAt: 9, HeldUntil: 7, Generation: Version{1}}
	unlimited := &Figures{Name: "c", Unlimited: true, Lifetime: true}
	f.Add(appendResult(nil, &Outcome{}))
	f.Add(appendResult(nil, &Outcome{Extra: true, Figures: []*Figures{nil, figures, unlimited}, Skipped: []bool{false, true, false}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := DecodeResult(bytes.Clone(b))
		if err != nil {
			return
		}
		o := &Outcome{Extra: k.Extra}
		for i, at := range k.Ops {
			if at < len(o.Figures) {
				return // no batch writes them in another order
			}
			o.Figures = append(o.Figures, make([]*Figures, at-len(o.Figures)+1)...)
			o.Skipped = append(o.Skipped, make([]bool, at-len(o.Skipped)+1)...)
			o.Figures[at], o.Skipped[at] = &k.Figures[i], k.Skipped[i]
		}
		if got := appendResult(nil, o); !bytes.Equal(got, b) {
			t.Errorf("%x was read, and is written as %x", b, got)
		}
	})
}
