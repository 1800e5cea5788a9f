package budget

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

// HoldParams reserves amounts. The same Owner, RequestID and Entries again are the same hold.
type HoldParams struct {
	Scope     string
	Owner     string
	RequestID string // 1 to 256 bytes of UTF-8 without control characters
	Entries   []Entry
	// TTL is [MinTTL] to [MaxTTL]; the hold lasts at most 6.25 % longer.
	TTL time.Duration
	// Token recognises this very call if it is sent again; zero: one is drawn.
	Token state.Token
	// Permit is set if the hold is made for a permit; TTL and Token are not.
	Permit *HoldPermit
}

// HoldPermit is what a hold that is made for a permit has from it.
type HoldPermit struct {
	Wire []byte // the signed permit, at most [MaxPermit] bytes; kept, to be given again, while the hold is open
	// Expires is the end of permit and hold: whole seconds. The budgets may count the hold up to 1/64 of the time to live
	// longer, if that is more than 300 s.
	Expires time.Time
	Token   state.Token  // only what names it fences the hold
	Request state.Digest // of all that was asked for; another request under the same id is refused
	// Checks find out, in the same batch, whether the permit may be given away. Refusal says what they found against it,
	// from the index of the first of them.
	Checks  []state.Op
	Refusal func(out *state.Outcome, first int) error
}

// Held says that amounts are reserved.
type Held struct {
	ID        string // 64 hex digits, from Owner and RequestID
	ExpiresAt time.Time
	Budgets   []Figures // of every budget held in, ancestors too, the deepest first
	Permit    []byte    // of a hold that was made for one: the permit that holds it
	Repeated  bool      // the answer is the first one
}

// Hold reserves every entry in its budget and all ancestors, or nothing at all. Its refusals are [ErrBudgetUnknown],
// [ErrExceeded] with all figures, [ErrRequestIDReused], and [ErrHoldSettled] if the hold of that request is no longer
// open. When a hold has ended by itself, the same request makes a new one.
func (b *Budgets) Hold(ctx context.Context, p HoldParams) (Held, error) {
	if err := p.check(); err != nil {
		return Held{}, err
	}
	claim := state.Claim{Key: holdKey(p.Scope, ids.Hold(p.Owner, p.RequestID)), Owner: p.Owner, State: state.Pending}
	if p.Permit != nil {
		claim.Token, claim.Digest = p.Permit.Token, digest("mint", p.Entries, p.Permit.Request)
	} else {
		var err error
		if claim.Token, err = b.token(p.Token); err != nil {
			return Held{}, err
		}
		claim.Digest = digest("hold", p.Entries, state.Digest{})
	}
	return again(func() (Held, error) { return b.hold(ctx, p, claim) })
}

func (p *HoldParams) check() error {
	if err := checkNames(p.Owner, p.RequestID); err != nil {
		return err
	}
	if err := checkEntries(p.Entries); err != nil {
		return err
	}
	m := p.Permit
	if m == nil {
		return checkTTL(p.TTL)
	}
	switch {
	case p.TTL != 0 || !p.Token.IsZero():
		return invalidf("a hold for a permit has its end and token from the permit")
	case len(m.Wire) == 0 || len(m.Wire) > MaxPermit:
		return invalidf("the permit has %d bytes, the limit is %d", len(m.Wire), MaxPermit)
	case m.Token.IsZero():
		return invalidf("the permit has no token")
	case m.Expires.UnixMilli()%1000 != 0 || m.Expires.UnixMilli() <= 0:
		return invalidf("a permit ends at a whole second")
	}
	return nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return invalidf("a hold lasts %s to %s", MinTTL, MaxTTL)
	}
	return nil
}

// ends gives the end of the hold and, at or after it, that of its buckets.
func (p *HoldParams) ends(now int64) (expires, until int64, err error) {
	if p.Permit == nil {
		until = state.HoldUntil(now, p.TTL.Milliseconds())
		return until, until, nil
	}
	expires = p.Permit.Expires.UnixMilli()
	if expires <= now || expires-now > MaxTTL.Milliseconds() {
		return 0, 0, invalidf("a hold lasts at most %s and ends after now", MaxTTL)
	}
	return expires, permitUntil(now, expires), nil
}

// exactPermit is up to how long a permit may live for the buckets of its hold to end with it, in ms.
const exactPermit = 300_000

// permitUntil is when the buckets of a hold end that expires with a permit. Permits end at whole seconds; so that a
// budget's list of buckets stays short, those that live for more than 300 s share buckets: the end is rounded up to a
// multiple of the largest power of two of seconds ≤ 1/64 of the time to live.
func permitUntil(now, expires int64) int64 {
	if expires-now <= exactPermit {
		return expires
	}
	step := int64(1000) << (bits.Len64(uint64((expires-now)/64_000)) - 1) //nolint:gosec // positive.
	return (expires + step - 1) / step * step
}

func (b *Budgets) hold(ctx context.Context, p HoldParams, claim state.Claim) (Held, error) {
	now, err := b.store.Now(ctx)
	if err != nil {
		return Held{}, err
	}
	expires, until, err := p.ends(now)
	if err != nil {
		return Held{}, err
	}
	is := body{stage: stageOpen, until: until, entries: p.Entries}
	if p.Permit != nil {
		is.minted, is.permit = true, p.Permit.Wire
	}
	part, err := b.holding(ctx, p.Scope, &is)
	if err != nil {
		return Held{}, err
	}
	claim.Expires, claim.Body = expires, is.append(nil)
	ops := slices.Concat([]state.Op{claim}, part.Ops)
	if p.Permit != nil {
		ops = append(ops, p.Permit.Checks...)
	}
	out, err := b.store.Do(ctx, &state.Batch{Scope: p.Scope, Ops: ops, Keep: true})
	if err != nil {
		return Held{}, err
	}
	if rec := earlier(&out); rec != nil {
		return heldBefore(claim, rec)
	}
	if err := p.Permit.refused(&out, 1+len(part.Ops)); err != nil {
		return Held{}, err
	}
	if err := claimRefused(&out, part); err != nil {
		return Held{}, err
	}
	res, err := part.Read(&out, 1)
	if err != nil {
		return Held{}, err
	}
	return Held{ID: claim.Key.ID, ExpiresAt: at(expires), Budgets: res.Budgets, Permit: is.permit}, nil
}

// refused gives what the checks of a permit found against it, after what concerns the batch as a whole.
func (m *HoldPermit) refused(out *state.Outcome, first int) error {
	if m == nil || m.Refusal == nil || out.Applied {
		return nil
	}
	if err := refusedWhole(out, state.Recovering, state.Stale); err != nil {
		return err
	}
	return m.Refusal(out, first)
}

// holding is the part of a batch that reserves the entries of a hold, and notes which budgets each counts in.
func (b *Budgets) holding(ctx context.Context, scope string, is *body) (*Part, error) {
	is.of = make([][]int, len(is.entries))
	p, err := b.spread(ctx, scope, is.entries)
	switch {
	case errors.Is(err, ErrBudgetUnknown):
		// An earlier hold of the request answers first, else the refusal does.
		return refuse(state.BudgetGone, err), nil
	case err != nil:
		return nil, err
	}
	for i, e := range is.entries {
		is.of[i] = slices.Collect(p.chain(e.Budget))
	}
	return b.taking(scope, p, state.Bucket{Kind: state.BucketHeld, Until: is.until}), nil
}

// heldBefore answers a request that was granted before, from the record of it.
func heldBefore(claim state.Claim, rec *state.Record) (Held, error) {
	if rec.Digest != claim.Digest {
		return Held{}, ErrRequestIDReused
	}
	h, err := holdOf(claim.Key, rec)
	if err != nil {
		return Held{}, err
	}
	if h.stage != stageOpen {
		return Held{}, ErrHoldSettled
	}
	return Held{
		ID: claim.Key.ID, ExpiresAt: at(rec.Expires), Budgets: Latest(h.kept.Figures), Permit: h.permit, Repeated: true,
	}, nil
}

// held is a hold's record, decoded.
type held struct {
	body
	key  state.Key
	rec  *state.Record
	kept state.Kept
}

func holdOf(key state.Key, rec *state.Record) (held, error) {
	damaged := &state.RecordError{Key: key, Err: state.ErrCorrupt}
	b, err := decodeBody(rec.Body)
	if err != nil {
		return held{}, damaged
	}
	kept, err := keptOf(key, rec)
	if err != nil {
		return held{}, err
	}
	pending := b.stage <= stageBare
	if pending != (rec.State == state.Pending) {
		return held{}, damaged
	}
	// A settled hold may have kept the outcome of its capture instead.
	for i := 0; pending && i < len(b.of); i++ {
		if slices.ContainsFunc(b.of[i], func(place int) bool { return place >= len(kept.Figures) }) {
			return held{}, damaged
		}
	}
	return held{body: b, key: key, rec: rec, kept: kept}, nil
}

// HoldState is where a hold is in its life.
type HoldState string

// The states of a hold.
const (
	HoldOpen     HoldState = "open"
	HoldFenced   HoldState = "fenced"
	HoldCaptured HoldState = "captured"
	HoldVoided   HoldState = "voided"
	HoldExpired  HoldState = "expired"
)

// GetHoldParams names a hold.
type GetHoldParams struct {
	Scope    string
	Owner    string
	AnyOwner bool // for who may see the whole scope: Owner is not looked at
	HoldID   string
}

// HoldView is what is known about a hold.
type HoldView struct {
	ID        string
	Owner     string
	State     HoldState
	Entries   []Entry
	ExpiresAt time.Time // open and expired ones; else zero
}

// GetHold tells where a hold is in its life, and waits until all that it tells is durable. Its refusal is
// [ErrHoldUnknown].
func (b *Budgets) GetHold(ctx context.Context, p GetHoldParams) (HoldView, error) {
	if len(p.HoldID) != 64 {
		return HoldView{}, ErrHoldUnknown
	}
	key := holdKey(p.Scope, p.HoldID)
	out, err := b.store.Do(ctx, &state.Batch{Scope: p.Scope, Read: []state.Key{key}})
	switch {
	case err != nil:
		return HoldView{}, err
	case len(out.Records) != 1:
		return HoldView{}, unexpected(&out)
	}
	rec := out.Records[0]
	if rec == nil || rec.State == state.Void || !p.AnyOwner && rec.Owner != p.Owner {
		return HoldView{}, ErrHoldUnknown
	}
	h, err := holdOf(key, rec)
	if err != nil {
		return HoldView{}, err
	}
	v := HoldView{ID: p.HoldID, Owner: rec.Owner, State: h.stage.state(), Entries: h.entries}
	if h.stage == stageOpen {
		v.ExpiresAt = at(rec.Expires)
		if rec.Expires <= out.Now {
			v.State = HoldExpired
		}
	}
	return v, nil
}

func (s stage) state() HoldState {
	switch s {
	case stageFenced, stageBare:
		return HoldFenced
	case stageCaptured:
		return HoldCaptured
	case stageVoided:
		return HoldVoided
	}
	return HoldOpen
}

func holdKey(scope, id string) state.Key {
	return state.Key{Scope: scope, Kind: state.KindHold, ID: id}
}
