package state

import (
	"slices"

	"github.com/counterfoil/counterfoil/internal/planted"
)

// MaxKeys is how many different keys a batch may name, those to read included
// and the store's own counts not.
const MaxKeys = 64

// MaxOps is how many ops a batch may have: a budget can be moved twice.
const MaxOps = 2 * MaxKeys

// Batch is what takes effect as a whole or not at all, within one scope.
type Batch struct {
	Scope string
	Ops   []Op
	// Read names records to return as they are just before the effects.
	Read []Key
	// NotAfter is the last moment at which the batch may take effect, in ms;
	// later it is stale, so that a late copy of a message does nothing. It must
	// not be after the Expires of any Claim. 0: no bound.
	NotAfter int64
	// Keep stores the figures of the batch's Moves in the anchor's record, so
	// that a repetition can be answered as the first time. Anchor: Claim,
	// Update or Settle.
	Keep bool

	// valid spares Decide to look at the form again: see Checked.
	valid bool
}

// Checked is a copy of a batch whose form was found right, for who decides it
// several times. It shares only bodies with the batch: a caller who left may
// use his for something else.
func (b *Batch) Checked() (Batch, error) {
	c := *b
	c.Ops, c.Read = slices.Clone(b.Ops), slices.Clone(b.Read)
	err := c.Validate()
	c.valid = err == nil
	return c, err
}

// anchor gives the op that decides repetition, or nil.
func (b *Batch) anchor() Op {
	if len(b.Ops) > 0 && b.Ops[0].code()&anchors != 0 {
		return b.Ops[0]
	}
	return nil
}

// Keys appends to dst every key that a valid b names itself, the scope record
// and the quota records of the given shard that its claims are counted in.
// Decide asks for whatever else it needs. A key may come up more than once.
func (b *Batch) Keys(dst []Key, shard uint16) []Key {
	dst = append(dst, ScopeKey(b.Scope))
	for _, op := range b.Ops {
		if op.code() == opRefuse {
			continue
		}
		if k := op.target(); k.Kind != KindScope {
			dst = append(dst, k)
		}
		switch o := op.(type) {
		case Claim:
			if planted.On(planted.UncomparedCount) {
				continue
			}
			dst = append(dst, quotaKey(b.Scope, meter{o.Key.Kind, meterLive}, OwnerTag{}, shard))
			if o.Owner != "" {
				dst = append(dst, quotaKey(b.Scope, meter{o.Key.Kind, meterLive}, TagOwner(o.Owner), shard))
			}
		case PutBudget:
			if o.Parent != "" {
				dst = append(dst, o.parentKey())
			}
		case Remove:
			for _, a := range o.Ancestors {
				dst = append(dst, a.Key)
			}
		}
	}
	return append(dst, b.Read...)
}

// Size estimates the memory that b holds, in bytes, for the store's bounds.
func (b *Batch) Size() int {
	n := 256 + 64*len(b.Ops) + 128*len(b.Read)
	for _, op := range b.Ops {
		n += 128
		switch o := op.(type) {
		case Claim:
			n += len(o.Body)
		case Update:
			n += len(o.Body)
		case Settle:
			n += len(o.Body) + len(o.Short)
		case Drop:
			n += len(o.Why)
		case Replace:
			n += len(o.Body)
		}
	}
	return n
}

// Validate reports the first rule of form that b breaks, wrapping ErrInvalid,
// or nil. It looks at no record.
func (b *Batch) Validate() error {
	if b.Scope != StoreScope {
		if err := CheckScopeName(b.Scope); err != nil {
			return invalidf("%v", err)
		}
	}
	switch {
	case len(b.Ops) == 0 && len(b.Read) == 0:
		return invalidf("the batch is empty")
	case len(b.Ops) > MaxOps:
		return invalidf("more than %d ops", MaxOps)
	case badTime(b.NotAfter):
		return invalidf("NotAfter is negative or out of range")
	}
	for i, op := range b.Ops {
		if err := validateOp(op); err != nil {
			return invalidf("op %d: %v", i, err)
		}
	}
	anchor := b.anchor()
	if b.Keep && (anchor == nil || anchor.code()&(opClaim|opUpdate|opSettle) == 0) {
		return invalidf("only a Claim, Update or Settle as first op can keep the outcome")
	}
	for i, op := range b.Ops {
		switch o := op.(type) {
		case Remove:
			if len(b.Ops) > 1 {
				return invalidf("op %d: a Remove stands alone in its batch", i)
			}
		case Move:
			if anchor == nil {
				return invalidf("op %d: a Move needs an anchor before it", i)
			}
		case Claim:
			if o.Expires != 0 && b.NotAfter > o.Expires {
				return invalidf("op %d: NotAfter is later than its Expires", i)
			}
		}
	}
	return b.validateKeys()
}

// validateKeys checks what each op and read names: keys of this scope, on
// which their kind allows the op, each named by one op.
func (b *Batch) validateKeys() error {
	type name struct { // the scope is that of the batch
		kind Kind
		id   string
	}
	var room [16]name
	named := room[:0]
	for i, op := range b.Ops {
		if op.code() == opRefuse {
			continue
		}
		k := op.target()
		if err := b.validateKey(k); err != nil {
			return invalidf("op %d: %v", i, err)
		}
		if allowed[k.Kind]&op.code() == 0 {
			return invalidf("op %d: records of kind %s do not allow it", i, k.Kind)
		}
		if slices.Contains(named, name{k.Kind, k.ID}) {
			if !b.movedOnce(i, k) {
				return invalidf("op %d: an earlier op names its %s key", i, k.Kind)
			}
			continue
		}
		named = append(named, name{k.Kind, k.ID})
		if r, ok := op.(Remove); ok {
			for _, a := range r.Ancestors {
				if err := b.validateKey(a.Key); err != nil {
					return invalidf("op %d: ancestor: %v", i, err)
				}
				named = append(named, name{a.Key.Kind, a.Key.ID})
			}
		}
	}
	for i, k := range b.Read {
		if err := b.validateKey(k); err != nil {
			return invalidf("read %d: %v", i, err)
		}
		if n := (name{k.Kind, k.ID}); !slices.Contains(named, n) {
			named = append(named, n)
		}
	}
	if len(named) > MaxKeys {
		return invalidf("more than %d keys", MaxKeys)
	}
	return nil
}

func (b *Batch) validateKey(k Key) error {
	switch {
	case k.Scope != b.Scope:
		return errOtherScope
	case k.Kind == KindScope && k.ID != scopeID:
		return errScopeID
	}
	return k.validateID()
}

// movedOnce reports whether op i may name a key that an earlier op names: as
// the second Move on one budget, neither with an Extra. A call that fences a
// hold and spends on top touches some budgets twice; the two are taken one
// after the other.
func (b *Batch) movedOnce(i int, key Key) bool {
	m, ok := b.Ops[i].(Move)
	earlier := 0
	for _, op := range b.Ops[:i] {
		if e, isMove := op.(Move); isMove && e.Key == key {
			earlier++
			ok = ok && e.Extra == 0
		}
	}
	return ok && earlier == 1 && m.Extra == 0
}
