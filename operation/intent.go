package operation

import (
	"context"
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/state"
)

// Intent is what the record of an operation remembers, read before the step that ends it. It may be out of date: that
// step checks the record again.
type Intent struct {
	rec  *state.Record
	key  state.Key
	body *body
}

// Intent reads an operation of the owner, by its id; of any owner if owner is "". It fails with [ErrNotFound], and with
// [state.ErrCorrupt] if the record is damaged.
func (o *Operations) Intent(ctx context.Context, scope, owner, id string) (*Intent, error) {
	key, err := recordKey(scope, id)
	if err != nil {
		return nil, err
	}
	recs, err := o.store.Read(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("operation: %w", err)
	}
	if !owned(recs[0], owner) {
		return nil, ErrNotFound
	}
	i := &Intent{rec: recs[0], key: key, body: &body{}}
	if len(i.rec.Body) > 0 {
		if i.body, err = decodeBody(i.rec.Body); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// owned reports whether there is a record and it is the owner's; tombstones know only the owner's tag.
func owned(r *state.Record, owner string) bool {
	return r != nil && (owner == "" || r.OwnerTag == state.TagOwner(owner))
}

// Pending reports whether the operation is not finished: only then is there a hold to settle or a spend to return.
func (i *Intent) Pending() bool { return i.rec.State == state.Pending }

// Owner is whose operation it is, "" if only a tombstone is left.
func (i *Intent) Owner() string { return i.rec.Owner }

// Hold is the hold that the intent fenced; the zero Hold if none.
func (i *Intent) Hold() Hold { return i.body.hold }

// Spends gives what the claim's batch spent; ok is false if it spent nothing.
func (i *Intent) Spends() (kept state.Kept, ok bool, err error) {
	if !i.body.spends || !i.Pending() {
		return state.Kept{}, false, nil
	}
	kept, err = state.DecodeResult(i.rec.Result)
	if err != nil {
		return state.Kept{}, false, corrupt(err)
	}
	return kept, true, nil
}

// money refuses a step that would leave a hold or spends behind.
func (i *Intent) money(returns bool) error {
	if i.Pending() && (i.body.hold != Hold{} || returns && i.body.spends) {
		return invalidf("the operation has a hold or spends; end it by the guarded call, which settles them")
	}
	return nil
}

// finished reports whether only a tombstone is left, on which no step is possible.
func (i *Intent) finished() bool { return i.rec.Tomb }

var errTomb = errors.Join(ErrNotPending, ErrKeyExpired)
