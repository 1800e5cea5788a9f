package budget

import (
	"context"
	"errors"

	"github.com/counterfoil/counterfoil/state"
)

// tries bounds how often a call starts again because what it rested on had changed.
const tries = 8

// again runs a call until it rests on nothing that is out of date.
func again[T any](call func() (T, error)) (T, error) {
	res, err := call()
	for n := 1; n < tries && Again(err); n++ {
		res, err = call()
	}
	return res, err
}

// earlier gives the record of a request that was granted before, nil if the batch's claim met none.
func earlier(out *state.Outcome) *state.Record {
	if out.Repeated {
		return out.Anchor
	}
	if r, ok := out.Refused(0); ok && r.Reason == state.Exists {
		return r.Record
	}
	return nil
}

// claimRefused gives the first refusal of a batch that claims a record and moves amounts, in the order in which refusals
// are answered; nil if it was applied.
func claimRefused(out *state.Outcome, part *Part) error {
	if out.Applied {
		return nil
	}
	if err := refusedWhole(out, state.Recovering, state.Stale); err != nil {
		return err
	}
	_, err := part.Read(out, 1)
	if errors.Is(err, ErrBudgetUnknown) {
		return err
	}
	if full := refusedWhole(out, state.Full, state.OwnerFull); full != nil {
		return full
	}
	if err != nil {
		return err
	}
	if r, ok := out.Refused(0); ok && r.Reason == state.Expired {
		return invalidf("the time that it should end at is past")
	}
	return unexpected(out)
}

// owned reads a record that only its owner may see; to anybody else it does not exist.
func (b *Budgets) owned(ctx context.Context, key state.Key, owner string, unknown error) (*state.Record, error) {
	if len(key.ID) != 64 {
		return nil, unknown
	}
	recs, err := b.store.Read(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case recs[0] == nil || recs[0].State == state.Void || recs[0].Owner != owner:
		return nil, unknown
	}
	return recs[0], nil
}

// keptOf decodes the outcome that a record kept.
func keptOf(key state.Key, rec *state.Record) (state.Kept, error) {
	kept, err := state.DecodeResult(rec.Result)
	if err != nil {
		return kept, &state.RecordError{Key: key, Err: state.ErrCorrupt}
	}
	return kept, nil
}

func (b *Budgets) token(given state.Token) (state.Token, error) {
	if !given.IsZero() {
		return given, nil
	}
	return b.store.Token()
}

func checkNames(owner, requestID string) error {
	if err := checkName("owner", owner); err != nil {
		return err
	}
	return checkName("request id", requestID)
}

func checkName(what, name string) error {
	if err := state.CheckName(name); err != nil {
		return invalidf("%s: %v", what, err)
	}
	return nil
}
