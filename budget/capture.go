package budget

import (
	"context"
	"crypto/subtle"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// holdKeep is how long a settled hold is remembered, in ms.
const holdKeep = int64(Memory / time.Millisecond)

// CaptureParams settles a hold.
type CaptureParams struct {
	Scope  string
	Owner  string
	HoldID string
	// Capture is what to charge; nil charges the hold in full, an empty list nothing. A budget of the hold that is not
	// named is given back, one that is not in the hold is [ErrInvalid].
	Capture *[]Entry
	// Token is of a permit that was used without an operation: it settles the hold whoever holds it. Zero: the owner
	// captures an open hold.
	Token state.Token
}

// Captured says what was charged of a hold.
type Captured struct {
	Captured   []Entry
	Uncaptured []Entry   // what was asked above the hold and did not fit, as a whole, every budget
	Budgets    []Figures // of every budget of the hold, ancestors too, the deepest first
	Repeated   bool      // the answer is the first one
}

// Capture settles a hold: it charges what is asked and returns the rest. What is asked above the hold is charged too if it
// fits as a whole in every budget; else the capture is cut to the hold. Its refusals are [ErrHoldUnknown],
// [ErrHoldExpired], [ErrHoldFenced], [ErrHoldSettled] and [ErrNotHolder].
func (b *Budgets) Capture(ctx context.Context, p CaptureParams) (Captured, error) {
	if err := checkName("owner", p.Owner); err != nil {
		return Captured{}, err
	}
	return again(func() (Captured, error) {
		h, err := b.settleable(ctx, holdKey(p.Scope, p.HoldID), p.Owner, p.Token)
		if err != nil {
			return Captured{}, err
		}
		out, part, err := b.settle(ctx, &h, p.Capture, false)
		if err != nil {
			return Captured{}, err
		}
		if !out.Repeated {
			res, err := part.Read(&out, 0)
			return Captured{Captured: res.Captured, Uncaptured: res.Uncaptured, Budgets: res.Budgets}, err
		}
		kept, err := keptOf(h.key, out.Anchor)
		if err != nil {
			return Captured{}, err
		}
		c := Captured{Budgets: Latest(kept.Figures), Repeated: true}
		c.Captured, c.Uncaptured, err = Cut(h.entries, p.Capture, kept.Extra)
		return c, err
	})
}

// VoidParams names an open hold of its owner.
type VoidParams struct {
	Scope  string
	Owner  string
	HoldID string
}

// Voided says that everything was given back.
type Voided struct {
	Budgets  []Figures // of every budget of the hold, ancestors too, the deepest first
	Repeated bool      // the answer is the first one
}

// Void gives back all that an open hold holds. Its refusals are [ErrHoldUnknown], [ErrHoldExpired], [ErrHoldFenced] and
// [ErrHoldSettled].
func (b *Budgets) Void(ctx context.Context, p VoidParams) (Voided, error) {
	if err := checkName("owner", p.Owner); err != nil {
		return Voided{}, err
	}
	return again(func() (Voided, error) {
		h, err := b.settleable(ctx, holdKey(p.Scope, p.HoldID), p.Owner, state.Token{})
		if err != nil {
			return Voided{}, err
		}
		out, part, err := b.settle(ctx, &h, nil, true)
		if err != nil {
			return Voided{}, err
		}
		if !out.Repeated {
			res, err := part.Read(&out, 0)
			return Voided{Budgets: res.Budgets}, err
		}
		kept, err := keptOf(h.key, out.Anchor)
		return Voided{Budgets: Latest(kept.Figures), Repeated: true}, err
	})
}

// settle sends the batch that settles a hold by itself.
func (b *Budgets) settle(ctx context.Context, h *held, capture *[]Entry, void bool) (state.Outcome, *Part, error) {
	now, err := b.store.Now(ctx)
	if err != nil {
		return state.Outcome{}, nil, err
	}
	part, err := h.settling(h.rec.Token, capture, void, now)
	if err != nil {
		return state.Outcome{}, nil, err
	}
	out, err := b.store.Do(ctx, &state.Batch{Scope: h.key.Scope, Ops: part.Ops, Keep: true})
	switch {
	case err != nil:
		return out, part, err
	case out.Applied || out.Repeated:
		return out, part, nil
	}
	if err := refusedWhole(&out, state.Recovering, state.Stale); err != nil {
		return out, part, err
	}
	if _, err := part.Read(&out, 0); err != nil {
		return out, part, err
	}
	return out, part, unexpected(&out)
}

// settleable reads a hold that its owner, or who has the token of its use, may settle.
func (b *Budgets) settleable(ctx context.Context, key state.Key, owner string, token state.Token) (held, error) {
	h, err := b.read(ctx, key)
	if err != nil {
		return held{}, err
	}
	holder := h.bare && subtle.ConstantTimeCompare(token[:], h.rec.Token[:]) == 1
	switch {
	case holder:
		return h, nil
	case h.rec.Owner != owner:
		return held{}, ErrHoldUnknown
	case !token.IsZero():
		return held{}, ErrNotHolder
	case h.used:
		return held{}, h.notOpen()
	}
	return h, nil
}

// read gives a hold as it is stored. What a batch decides on it is decided on the version that was read.
func (b *Budgets) read(ctx context.Context, key state.Key) (held, error) {
	if len(key.ID) != 64 {
		return held{}, ErrHoldUnknown
	}
	recs, err := b.store.Read(ctx, key)
	switch {
	case err != nil:
		return held{}, err
	case recs[0] == nil || recs[0].State == state.Void:
		return held{}, ErrHoldUnknown
	}
	return holdOf(key, recs[0])
}

// ExtendParams moves the end of an open hold.
type ExtendParams struct {
	Scope  string
	Owner  string
	HoldID string
	TTL    time.Duration // from now, [MinTTL] to [MaxTTL]; at most 6.25 % are added
}

// Extended says when the hold ends.
type Extended struct {
	ExpiresAt time.Time
}

// Extend moves the end of an open hold to now + TTL; it never moves it back. A hold that was made for a permit ends with
// it: [ErrInvalid]. Its refusals are [ErrHoldUnknown], [ErrHoldExpired], [ErrHoldFenced], [ErrHoldSettled] and
// [ErrWindowClosed].
func (b *Budgets) Extend(ctx context.Context, p ExtendParams) (Extended, error) {
	if err := checkName("owner", p.Owner); err != nil {
		return Extended{}, err
	}
	if err := checkTTL(p.TTL); err != nil {
		return Extended{}, err
	}
	return again(func() (Extended, error) { return b.extend(ctx, p) })
}

func (b *Budgets) extend(ctx context.Context, p ExtendParams) (Extended, error) {
	h, err := b.settleable(ctx, holdKey(p.Scope, p.HoldID), p.Owner, state.Token{})
	switch {
	case err != nil:
		return Extended{}, err
	case h.stage != stageOpen:
		return Extended{}, ErrHoldSettled
	case h.minted:
		return Extended{}, invalidf("the hold was made for a permit and ends with it; mint another")
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return Extended{}, err
	}
	// With a new token the update is never taken for the repetition of another one, also where it changes nothing: it must
	// look at the budgets.
	token, err := b.store.Token()
	if err != nil {
		return Extended{}, err
	}
	is := h.body
	is.until = max(h.until, state.HoldUntil(now, p.TTL.Milliseconds()))
	update := state.Update{
		Key: h.key, Token: h.rec.Token, NewToken: token, IfVersion: h.rec.Version, Expires: is.until, Body: is.append(nil),
	}
	ops := append([]state.Op{update}, h.moves(func(i int, m *state.Move) {
		m.Give, m.GiveAmount = state.Bucket{Kind: state.BucketHeld, Until: is.until}, m.TakeAmount
		m.IfClosed = state.GoneRefuse
	})...)
	out, err := b.store.Do(ctx, &state.Batch{Scope: p.Scope, Ops: ops})
	switch {
	case err != nil:
		return Extended{}, err
	case out.Applied || out.Repeated:
		return Extended{ExpiresAt: at(out.Anchor.Expires)}, nil
	}
	if err := refusedWhole(&out, state.Recovering, state.Stale); err != nil {
		return Extended{}, err
	}
	if err := h.refused(&out, 0, len(ops), h.rec.Token); err != nil {
		return Extended{}, err
	}
	return Extended{}, unexpected(&out)
}
