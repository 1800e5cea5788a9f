package state

import (
	"errors"
	"math/bits"
	"slices"
	"strings"

	"github.com/counterfoil/counterfoil/internal/planted"
)

// Limits of budgets.
const (
	MaxBudgetDepth = 8                 // a budget and its ancestors
	MaxHeld        = 2048              // entries of a budget's list of holds
	MaxHoldTTL     = 7 * 24 * 3600_000 // ms
	MaxUnitBytes   = 64
)

// Budget is the body of a budget record. Amounts are those of the window that
// began at Start; [Budget.At] rolls them on.
type Budget struct {
	Unit       string
	Limit      uint64
	Unlimited  bool
	Window     Window
	Parent     string  // name of the budget above, "" for none
	ParentGen  Version // generation of the parent that it was defined under
	Generation Version // changes if a budget of this name is removed and defined again
	Start      int64   // of the window that the amounts are of, ms
	Spent      uint64
	Fenced     uint64
	Held       []Held // by Until, each once
}

// Held is an amount that counts until a moment.
type Held struct {
	Until  int64
	Amount uint64
	Since  int64 // when the oldest hold in it was made
}

// At gives the budget as it stands at now, rolled into the window of now if
// that is a later one, and without holds that are over. The end of the window
// is 0 if it never ends.
func (b *Budget) At(now int64) (at Budget, end int64, err error) {
	at = *b
	end, err = at.roll(now)
	return at, end, err
}

// roll is At in place. It leaves a list of holds that others may have as it is.
func (b *Budget) roll(now int64) (end int64, err error) {
	start, end, err := b.Window.Bounds(now)
	if err != nil {
		return 0, err
	}
	if start > b.Start {
		b.Start, b.Spent, b.Fenced, b.Held = start, 0, 0, nil
		return end, nil
	}
	over := 0
	for over < len(b.Held) && b.Held[over].Until <= now {
		over++
	}
	b.Held = b.Held[over:]
	return end, nil
}

// Used is what counts against the limit: spent, fenced and held.
func (b *Budget) Used() uint64 { return b.Spent + b.held() }

func (b *Budget) held() uint64 {
	sum := b.Fenced
	for _, h := range b.Held {
		sum += h.Amount
	}
	return sum
}

// Figures gives where a budget stands, as [Budget.At] returned it.
func (b *Budget) Figures(name string, end int64) Figures {
	f := Figures{
		Name: name, Unit: b.Unit, Limit: b.Limit, Unlimited: b.Unlimited,
		Spent: b.Spent, Held: b.held(), Lifetime: b.Window.Kind == WindowLifetime,
		WindowAt: b.Start, ResetsAt: end, Generation: b.Generation,
	}
	limit := b.Limit
	if b.Unlimited {
		limit = MaxAmount
	}
	if used := f.Spent + f.Held; used < limit {
		f.Remaining = limit - used
	}
	if len(b.Held) > 0 {
		f.HeldUntil = b.Held[0].Until
	}
	return f
}

// fits reports whether the use may grow to used.
func (b *Budget) fits(used uint64) bool {
	return used <= MaxAmount && (b.Unlimited || used <= b.Limit)
}

// errShort: a bucket holds less than is taken, which no sequence of batches
// brings about.
var errShort = errors.New("a bucket holds less than is taken from it")

func (b *Budget) take(from Bucket, amount uint64) error {
	switch from.Kind {
	case BucketNone:
		return nil
	case BucketSpent:
		return subtract(&b.Spent, amount)
	case BucketFenced:
		return subtract(&b.Fenced, amount)
	case BucketHeld:
		if amount == 0 {
			return nil
		}
		i, ok := b.bucket(from.Until)
		if !ok || b.Held[i].Amount < amount {
			return errShort
		}
		if planted.On(planted.HoldFreedTwice) {
			amount = min(2*amount, b.Held[i].Amount)
		}
		b.Held = slices.Clone(b.Held)
		if b.Held[i].Amount -= amount; b.Held[i].Amount == 0 {
			b.Held = slices.Delete(b.Held, i, i+1)
		}
	}
	return nil
}

func (b *Budget) give(to Bucket, amount uint64, now int64) {
	switch to.Kind {
	case BucketNone:
	case BucketSpent:
		b.Spent += amount
	case BucketFenced:
		b.Fenced += amount
	case BucketHeld:
		if amount == 0 {
			return
		}
		i, ok := b.bucket(to.Until)
		b.Held = slices.Clone(b.Held)
		if ok {
			b.Held[i].Amount += amount
			return
		}
		b.Held = slices.Insert(b.Held, i, Held{Until: to.Until, Amount: amount, Since: now})
	}
}

func (b *Budget) bucket(until int64) (int, bool) {
	return slices.BinarySearchFunc(b.Held, until, func(h Held, t int64) int {
		switch {
		case h.Until < t:
			return -1
		case h.Until > t:
			return 1
		}
		return 0
	})
}

func subtract(from *uint64, amount uint64) error {
	if *from < amount {
		return errShort
	}
	*from -= amount
	return nil
}

// HoldUntil is when a hold made at now for ttl ends, all in ms: now + ttl,
// rounded up to a multiple of the largest power of two that is at most ttl/16.
// So a budget's list of holds stays short whatever is held, and a hold lasts at
// most 6.25 % longer than asked.
func HoldUntil(now, ttl int64) int64 {
	until := now + ttl
	if ttl < 16 {
		return until
	}
	step := int64(1) << (bits.Len64(uint64(ttl/16)) - 1)
	return (until + step - 1) / step * step
}

// CheckBudgetName reports what makes name unusable as a budget's: it must be 1
// to 8 path segments of 1 to 64 characters A–Z a–z 0–9 . _ ~ -, none of them
// "." or "..".
func CheckBudgetName(name string) error {
	if strings.Count(name, "/") >= 8 {
		return errors.New("a budget's name has at most 8 path segments")
	}
	for s := range strings.SplitSeq(name, "/") {
		if s == "" || len(s) > 64 || s == "." || s == ".." {
			return errors.New("each path segment of a budget's name has 1 to 64 characters and is not . or ..")
		}
		for i := range len(s) {
			if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._~-", rune(c)) {
				return errors.New("a budget's name consists of A–Z a–z 0–9 . _ ~ - and slashes between segments")
			}
		}
	}
	return nil
}

func (b *Budget) validate() error {
	switch {
	case b.Limit > MaxAmount || b.Unlimited && b.Limit != 0:
		return errors.New("the limit is out of range")
	case b.Spent > MaxAmount || b.Fenced > MaxAmount || len(b.Held) > MaxHeld:
		return errors.New("an amount is out of range")
	case b.Unit == "" || len(b.Unit) > MaxUnitBytes:
		return errors.New("the unit is out of range")
	case b.Generation.IsZero() || b.Start < 0:
		return errors.New("the generation or window is out of range")
	}
	for i, h := range b.Held {
		if h.Amount == 0 || h.Amount > MaxAmount || i > 0 && b.Held[i-1].Until >= h.Until {
			return errors.New("the list of holds is out of order or range")
		}
	}
	// Each amount is small enough that the sum cannot wrap.
	if b.Used() > MaxAmount {
		return errors.New("the use is out of range")
	}
	return b.Window.Validate()
}
