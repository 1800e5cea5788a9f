package state

// MaxKeys is how many keys a batch may name, the store's own not counted.
const MaxKeys = 64

// Batch is what takes effect as a whole or not at all, within one scope.
type Batch struct {
	Scope string
	Ops   []Op
	// Read names records to return as they are just before the effects.
	Read []Key
	// NotAfter is the time from which the batch is refused as stale, in ms, so
	// that a late copy of a message cannot take effect; 0: no bound.
	NotAfter int64
	// Keep stores the figures of the batch's Moves in the anchor's record, so
	// that a repetition can be answered as the first time. Anchor: Claim,
	// Update or Settle.
	Keep bool
}

// anchor gives the op that decides repetition, or nil.
func (b *Batch) anchor() Op {
	if len(b.Ops) > 0 && b.Ops[0].code()&anchors != 0 {
		return b.Ops[0]
	}
	return nil
}

// Keys appends to dst every key that b names itself, the scope record and the
// quota records of the given shard that its claims are counted in. Decide asks
// for whatever else it needs.
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
			dst = append(dst, quotaKey(b.Scope, meter{o.Key.Kind, meterLive}, OwnerTag{}, shard))
			if o.Owner != "" {
				dst = append(dst, quotaKey(b.Scope, meter{o.Key.Kind, meterLive}, TagOwner(o.Owner), shard))
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
	if len(b.Ops) == 0 && len(b.Read) == 0 {
		return invalidf("the batch is empty")
	}
	if b.NotAfter < 0 {
		return invalidf("NotAfter is negative")
	}
	if err := b.validateKeys(); err != nil {
		return err
	}
	anchor := b.anchor()
	if b.Keep && (anchor == nil || anchor.code()&(opClaim|opUpdate|opSettle) == 0) {
		return invalidf("only a Claim, Update or Settle as first op can keep the outcome")
	}
	removes := 0
	for i, op := range b.Ops {
		if err := validateOp(op); err != nil {
			return invalidf("op %d: %v", i, err)
		}
		switch o := op.(type) {
		case Remove:
			removes++
		case Move:
			if anchor == nil {
				return invalidf("op %d: a Move needs an anchor before it", i)
			}
		case Claim:
			if o.Expires != 0 && b.NotAfter > o.Expires {
				return invalidf("NotAfter is later than the Expires of op %d", i)
			}
		}
	}
	if removes > 0 && (removes > 1 || len(b.Ops) > 1) {
		return invalidf("a Remove stands alone in its batch")
	}
	return nil
}

func (b *Batch) validateKeys() error {
	seen := make([]Key, 0, 16)
	add := func(k Key) error {
		if k.Scope != b.Scope {
			return invalidf("a key is of another scope than the batch")
		}
		if err := k.Validate(); err != nil {
			return invalidf("%v", err)
		}
		for _, s := range seen {
			if s == k {
				return invalidf("one %s key is named twice", k.Kind)
			}
		}
		if seen = append(seen, k); len(seen) > MaxKeys {
			return invalidf("more than %d keys", MaxKeys)
		}
		return nil
	}
	for i, op := range b.Ops {
		if op == nil {
			return invalidf("op %d is nil", i)
		}
		if op.code() == opRefuse {
			continue
		}
		k := op.target()
		if again, err := b.movedBefore(i, op); again || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if k.Kind.Valid() && allowed[k.Kind]&op.code() == 0 {
			return invalidf("op %d: records of kind %s do not allow it", i, k.Kind)
		}
		if err := add(k); err != nil {
			return err
		}
		if r, ok := op.(Remove); ok {
			for _, a := range r.Ancestors {
				if err := add(a.Key); err != nil {
					return err
				}
			}
		}
	}
	for _, k := range b.Read {
		if k.Scope != b.Scope {
			return invalidf("a key to read is of another scope than the batch")
		}
		if err := k.Validate(); err != nil {
			return invalidf("%v", err)
		}
	}
	if len(b.Read) > MaxKeys {
		return invalidf("more than %d keys to read", MaxKeys)
	}
	return nil
}

// movedBefore reports whether op is a second Move on one budget, the only op
// that may name a key that an earlier one names: a call that fences a hold and
// spends on top touches some budgets twice. The two are taken one after the
// other. An Extra stands on a budget's only Move.
func (b *Batch) movedBefore(i int, op Op) (bool, error) {
	m, ok := op.(Move)
	if !ok {
		return false, nil
	}
	for _, earlier := range b.Ops[:i] {
		if e, ok := earlier.(Move); ok && e.Key == m.Key {
			if e.Extra != 0 || m.Extra != 0 {
				return false, invalidf("op %d: a budget with an Extra is moved twice", i)
			}
			return true, nil
		}
	}
	return false, nil
}
