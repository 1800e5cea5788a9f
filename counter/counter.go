package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// Limits of a call.
const (
	MaxAmount  = state.MaxAmount // a counter, amount or limit: 2^53 − 1
	MaxEntries = state.MaxKeys   // counters of one call
)

// Refusals. Nothing was written.
var (
	// ErrExceeded: a counter would rise above its limit. The error is an [*ExceededError].
	ErrExceeded = errors.New("counter: it would rise above its limit")
	// ErrUnknown: there is no such counter.
	ErrUnknown = errors.New("counter: there is none")
)

// ErrInvalid is for a parameter that is never accepted. Nothing was sent. It wraps [state.ErrInvalid].
var ErrInvalid = fmt.Errorf("counter: %w", state.ErrInvalid)

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// ExceededError lists every entry of a call that did not fit.
type ExceededError struct {
	Refused []Refusal // in the order of the entries
}

// Refusal is one entry that did not fit, with the counter as it stood.
type Refusal struct {
	Index  int // among the entries of the call
	Name   string
	Value  uint64
	Amount uint64
	Limit  uint64
}

// First is the index of the first entry that did not fit.
func (e *ExceededError) First() int { return e.Refused[0].Index }

// Error says what is missing in the first of them.
func (e *ExceededError) Error() string {
	r := e.Refused[0]
	text := fmt.Sprintf("counter: %s stands at %d, %d more would be above its limit %d", r.Name, r.Value, r.Amount, r.Limit)
	if more := len(e.Refused) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d others)", more)
	}
	return text
}

// Is reports whether target is [ErrExceeded].
func (e *ExceededError) Is(target error) bool { return target == ErrExceeded }

// Options configure [Counters]. There are none yet.
type Options struct{}

// Counters works on the counters of a store. It is safe for concurrent use.
type Counters struct {
	store *store.Store
}

// New makes Counters on a store.
func New(s *store.Store, _ Options) *Counters { return &Counters{store: s} }

// AddParams adds to a counter.
type AddParams struct {
	Scope  string
	Name   string // 1 to 256 bytes of UTF-8 without control characters
	Amount uint64
}

// Added is a counter after a step.
type Added struct {
	Value uint64
}

// Add adds to a counter; an absent one stands at 0. An amount of 0 writes nothing. Its refusal is [ErrExceeded] at
// [MaxAmount].
func (c *Counters) Add(ctx context.Context, p AddParams) (Added, error) {
	out, err := c.do(ctx, p.Scope, []string{p.Name}, func(_ int, key state.Key) state.Op {
		return state.Add{Key: key, Amount: p.Amount}
	})
	if err != nil {
		return Added{}, err
	}
	return Added{out.Values[0]}, nil
}

// GetParams names a counter.
type GetParams struct {
	Scope string
	Name  string
}

// Got is a counter as it stands.
type Got struct {
	Value uint64
}

// Get reads a counter, and waits until what it tells is durable. Its refusal is [ErrUnknown].
func (c *Counters) Get(ctx context.Context, p GetParams) (Got, error) {
	if err := checkName(p.Name); err != nil {
		return Got{}, err
	}
	out, err := c.store.Do(ctx, &state.Batch{Scope: p.Scope, Read: []state.Key{key(p.Scope, p.Name)}})
	switch {
	case err != nil:
		return Got{}, err
	case len(out.Records) != 1:
		return Got{}, refused(&out, nil)
	case out.Records[0] == nil:
		return Got{}, ErrUnknown
	}
	return Got{out.Records[0].Value}, nil
}

// RaiseParams lifts a counter.
type RaiseParams struct {
	Scope string
	Name  string
	To    uint64
}

// Raised is a counter after a step.
type Raised struct {
	Value uint64 // To, or what it stood at if that is more
}

// Raise lifts a counter to at least a value (fetch-max): it never goes back.
func (c *Counters) Raise(ctx context.Context, p RaiseParams) (Raised, error) {
	out, err := c.do(ctx, p.Scope, []string{p.Name}, func(_ int, key state.Key) state.Op {
		return state.Raise{Key: key, To: p.To}
	})
	if err != nil {
		return Raised{}, err
	}
	return Raised{out.Values[0]}, nil
}

// Entry is an amount to spend of a counter, and the limit that the counter must not rise above.
type Entry struct {
	Name   string
	Amount uint64
	Limit  uint64
}

// TrySpendParams spends of one counter.
type TrySpendParams struct {
	Scope string
	Entry
}

// Spent is the grant of a spend.
type Spent struct {
	Value    uint64 // the counter after it
	Headroom uint64 // what its limit leaves
}

// TrySpend adds to a counter if the sum stays within the limit. An amount of 0 is always granted and writes nothing. Its
// refusal is [ErrExceeded].
func (c *Counters) TrySpend(ctx context.Context, p TrySpendParams) (Spent, error) {
	many, err := c.TrySpendMany(ctx, TrySpendManyParams{Scope: p.Scope, Entries: []Entry{p.Entry}})
	if err != nil {
		return Spent{}, err
	}
	return Spent{Value: many.Values[0], Headroom: many.Headroom}, nil
}

// TrySpendManyParams spends of several counters, each named once, at most [MaxEntries].
type TrySpendManyParams struct {
	Scope   string
	Entries []Entry
}

// SpentMany is the grant of a spend of several counters.
type SpentMany struct {
	Values   []uint64 // the counters after it, in the order of the entries
	Headroom uint64   // the smallest that any of their limits leaves
}

// TrySpendMany spends every entry, or none of them. Its refusal is an [*ExceededError] with every entry that does not fit.
func (c *Counters) TrySpendMany(ctx context.Context, p TrySpendManyParams) (SpentMany, error) {
	names := make([]string, len(p.Entries))
	for i, e := range p.Entries {
		names[i] = e.Name
	}
	out, err := c.do(ctx, p.Scope, names, func(i int, key state.Key) state.Op {
		return state.Spend{Key: key, Amount: p.Entries[i].Amount, Limit: p.Entries[i].Limit}
	})
	if err != nil {
		return SpentMany{}, err
	}
	s := SpentMany{Values: out.Values, Headroom: out.Figures[0].Remaining}
	for _, f := range out.Figures {
		s.Headroom = min(s.Headroom, f.Remaining)
	}
	return s, nil
}

// Amount is an amount of a counter.
type Amount struct {
	Name   string
	Amount uint64
}

// RefundParams gives back to one counter.
type RefundParams struct {
	Scope string
	Amount
}

// Refunded is a counter after a refund.
type Refunded struct {
	Value uint64 // 0 if it is absent
}

// Refund takes an amount off a counter, which stops at 0. An absent one stays absent.
func (c *Counters) Refund(ctx context.Context, p RefundParams) (Refunded, error) {
	many, err := c.RefundMany(ctx, RefundManyParams{Scope: p.Scope, Amounts: []Amount{p.Amount}})
	if err != nil {
		return Refunded{}, err
	}
	return Refunded{many.Values[0]}, nil
}

// RefundManyParams gives back to several counters, each named once, at most [MaxEntries].
type RefundManyParams struct {
	Scope   string
	Amounts []Amount
}

// RefundedMany is the counters after a refund, in the order of the amounts.
type RefundedMany struct {
	Values []uint64
}

// RefundMany does what [Counters.Refund] does to all counters or to none.
func (c *Counters) RefundMany(ctx context.Context, p RefundManyParams) (RefundedMany, error) {
	names := make([]string, len(p.Amounts))
	for i, a := range p.Amounts {
		names[i] = a.Name
	}
	out, err := c.do(ctx, p.Scope, names, func(i int, key state.Key) state.Op {
		return state.Refund{Key: key, Amount: p.Amounts[i].Amount}
	})
	if err != nil {
		return RefundedMany{}, err
	}
	return RefundedMany{out.Values}, nil
}

// do sends a batch with one op for each counter.
func (c *Counters) do(ctx context.Context, scope string, names []string, op func(int, state.Key) state.Op) (state.Outcome, error) {
	b := &state.Batch{Scope: scope, Ops: make([]state.Op, len(names))}
	if len(names) == 0 || len(names) > MaxEntries {
		return state.Outcome{}, invalidf("%d counters are named, a call is about 1 to %d", len(names), MaxEntries)
	}
	for i, name := range names {
		if err := checkName(name); err != nil {
			return state.Outcome{}, err
		}
		if slices.Contains(names[:i], name) {
			return state.Outcome{}, invalidf("entry %d: an earlier one names the same counter", i)
		}
		b.Ops[i] = op(i, key(scope, name))
	}
	out, err := c.store.Do(ctx, b)
	if err == nil && !out.Applied {
		err = refused(&out, names)
	}
	return out, err
}

// refused gives the error of a refused batch.
func refused(out *state.Outcome, names []string) error {
	var e ExceededError
	for _, r := range out.Refusals {
		if err := state.RefusalError(r.Reason); err != nil {
			return fmt.Errorf("counter: %w", err)
		}
		if r.Reason == state.OverLimit && r.Op < len(names) {
			f := r.Figures
			e.Refused = append(e.Refused, Refusal{Index: r.Op, Name: names[r.Op], Value: f.Spent, Amount: f.Amount, Limit: f.Limit})
		}
	}
	if e.Refused == nil {
		return fmt.Errorf("counter: %w: the batch has no answer", state.ErrUnavailable)
	}
	return &e
}

func key(scope, name string) state.Key {
	return state.Key{Scope: scope, Kind: state.KindCounter, ID: name}
}

func checkName(name string) error {
	if err := state.CheckName(name); err != nil {
		return invalidf("name: %v", err)
	}
	return nil
}
