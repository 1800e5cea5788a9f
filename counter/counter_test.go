package counter_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/counterfoil/counterfoil/counter"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/state"
)

const scope = storetest.Scope

type rig struct {
	*storetest.Fixture
	*counter.Counters
	t *testing.T
}

func each(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) {
		test(t, &rig{f, counter.New(f.Store, counter.Options{}), t})
	})
}

func ctx() context.Context { return context.Background() }

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) refused(err, want error) {
	r.t.Helper()
	if !errors.Is(err, want) {
		r.t.Fatalf("got %v, want %v", err, want)
	}
}

func (r *rig) add(name string, amount uint64) uint64 {
	r.t.Helper()
	got, err := r.Add(ctx(), counter.AddParams{Scope: scope, Name: name, Amount: amount})
	r.must(err)
	return got.Value
}

func (r *rig) spend(name string, amount, limit uint64) (counter.Spent, error) {
	return r.TrySpend(ctx(), counter.TrySpendParams{Scope: scope, Entry: counter.Entry{Name: name, Amount: amount, Limit: limit}})
}

func (r *rig) spendMany(entries ...counter.Entry) (counter.SpentMany, error) {
	return r.TrySpendMany(ctx(), counter.TrySpendManyParams{Scope: scope, Entries: entries})
}

func (r *rig) stands(name string, want uint64) {
	r.t.Helper()
	got, err := r.Get(ctx(), counter.GetParams{Scope: scope, Name: name})
	r.must(err)
	if got.Value != want {
		r.t.Fatalf("%s stands at %d, want %d", name, got.Value, want)
	}
}

func (r *rig) absent(name string) {
	r.t.Helper()
	if got, err := r.Get(ctx(), counter.GetParams{Scope: scope, Name: name}); !errors.Is(err, counter.ErrUnknown) {
		r.t.Fatalf("%s stands at %d (%v), want none", name, got.Value, err)
	}
}

func TestACounterIsSpentToItsExactLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		got, err := r.spend("c", 9, 10)
		r.must(err)
		if got != (counter.Spent{Value: 9, Headroom: 1}) {
			t.Fatalf("%+v", got)
		}
		_, err = r.spend("c", 2, 10)
		r.refused(err, counter.ErrExceeded)
		got, err = r.spend("c", 1, 10)
		r.must(err)
		if got != (counter.Spent{Value: 10, Headroom: 0}) {
			t.Fatalf("%+v", got)
		}
		r.stands("c", 10)
		// The limit is the caller's: a lower one refuses, and takes nothing back.
		_, err = r.spend("c", 1, 5)
		r.refused(err, counter.ErrExceeded)
		r.stands("c", 10)
	})
}

func TestZeroIsFreeAndLeavesNoCounter(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		got, err := r.spend("c", 0, 0)
		r.must(err)
		if got.Value != 0 {
			t.Fatalf("%+v", got)
		}
		r.absent("c")
		if v := r.add("c", 0); v != 0 {
			t.Fatalf("it stands at %d", v)
		}
		r.absent("c")
		r.add("c", 7)
		_, err = r.spend("c", 0, 3) // also above the limit
		r.must(err)
		r.stands("c", 7)
	})
}

func TestOverflowIsLoud(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.add("c", counter.MaxAmount)
		_, err := r.Add(ctx(), counter.AddParams{Scope: scope, Name: "c", Amount: 1})
		r.refused(err, counter.ErrExceeded)
		_, err = r.spend("c", counter.MaxAmount, counter.MaxAmount)
		r.refused(err, counter.ErrExceeded)
		r.stands("c", counter.MaxAmount)
	})
}

func TestAmountsAndLimitsAboveTheCeilingAreInvalid(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		const above = counter.MaxAmount + 1
		_, err := r.spend("c", above, counter.MaxAmount)
		r.refused(err, state.ErrInvalid)
		_, err = r.spend("c", 1, above)
		r.refused(err, state.ErrInvalid)
		_, err = r.Add(ctx(), counter.AddParams{Scope: scope, Name: "c", Amount: above})
		r.refused(err, state.ErrInvalid)
		_, err = r.Raise(ctx(), counter.RaiseParams{Scope: scope, Name: "c", To: above})
		r.refused(err, state.ErrInvalid)
		_, err = r.Refund(ctx(), counter.RefundParams{Scope: scope, Amount: counter.Amount{Name: "c", Amount: above}})
		r.refused(err, state.ErrInvalid)
		r.absent("c")
	})
}

func TestNamesThatNobodyCanMeanAreInvalid(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		for _, name := range []string{"", "\xff", "a\nb", strings.Repeat("a", 257)} {
			_, err := r.spend(name, 1, 1)
			r.refused(err, counter.ErrInvalid)
			_, err = r.Get(ctx(), counter.GetParams{Scope: scope, Name: name})
			r.refused(err, counter.ErrInvalid)
			_, err = r.Remove(ctx(), counter.RemoveParams{Scope: scope, Name: name})
			r.refused(err, counter.ErrInvalid)
			_, err = r.RemovePrefix(ctx(), counter.RemovePrefixParams{Scope: scope, Prefix: name})
			r.refused(err, counter.ErrInvalid)
		}
		_, err := r.spendMany()
		r.refused(err, counter.ErrInvalid)
		_, err = r.spendMany(make([]counter.Entry, counter.MaxEntries+1)...)
		r.refused(err, counter.ErrInvalid)
	})
}

func TestDuplicateKeysAreRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		_, err := r.spendMany(counter.Entry{Name: "c", Amount: 1, Limit: 5}, counter.Entry{Name: "c", Amount: 1, Limit: 5})
		r.refused(err, counter.ErrInvalid)
		_, err = r.RefundMany(ctx(), counter.RefundManyParams{Scope: scope, Amounts: []counter.Amount{{"c", 1}, {"d", 1}, {"c", 1}}})
		r.refused(err, counter.ErrInvalid)
		r.absent("c")
	})
}

func TestARefusedBatchLeavesNothingAndNamesTheFirstAndAll(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.add("b", 4)
		_, err := r.spendMany(
			counter.Entry{Name: "a", Amount: 1, Limit: 5}, counter.Entry{Name: "b", Amount: 2, Limit: 5},
			counter.Entry{Name: "c", Amount: 1, Limit: 5}, counter.Entry{Name: "d", Amount: 6, Limit: 5},
		)
		var over *counter.ExceededError
		if !errors.As(err, &over) || over.First() != 1 {
			t.Fatalf("got %v", err)
		}
		want := []counter.Refusal{{Index: 1, Name: "b", Value: 4, Amount: 2, Limit: 5}, {Index: 3, Name: "d", Amount: 6, Limit: 5}}
		if !slices.Equal(over.Refused, want) {
			t.Fatalf("refused are %+v, want %+v", over.Refused, want)
		}
		r.absent("a")
		r.stands("b", 4)
		r.absent("c")
	})
}

func TestACommittedBatchReturnsTheSmallestHeadroom(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		got, err := r.spendMany(
			counter.Entry{Name: "a", Amount: 1, Limit: 50}, counter.Entry{Name: "b", Amount: 2, Limit: 5}, counter.Entry{Name: "c", Amount: 3, Limit: 9},
		)
		r.must(err)
		if got.Headroom != 3 || !slices.Equal(got.Values, []uint64{1, 2, 3}) {
			t.Fatalf("%+v", got)
		}
	})
}

func TestRefundClampsAtZeroAndNeverRevives(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		refund := func(amount uint64) uint64 {
			t.Helper()
			got, err := r.Refund(ctx(), counter.RefundParams{Scope: scope, Amount: counter.Amount{Name: "c", Amount: amount}})
			r.must(err)
			return got.Value
		}
		if v := refund(5); v != 0 {
			t.Fatalf("an absent one stands at %d", v)
		}
		r.absent("c")
		r.add("c", 7)
		if v := refund(5); v != 2 {
			t.Fatalf("it stands at %d", v)
		}
		if v := refund(5); v != 0 {
			t.Fatalf("it stands at %d", v)
		}
		r.stands("c", 0)
		_, err := r.Remove(ctx(), counter.RemoveParams{Scope: scope, Name: "c"})
		r.must(err)
		refund(5)
		r.absent("c")
	})
}

func TestRefundOfABatchIsAtomic(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.add("a", 5)
		r.add("b", 5)
		r.Damage(state.Key{Scope: scope, Kind: state.KindCounter, ID: "b"})
		amounts := []counter.Amount{{"a", 2}, {"b", 2}}
		_, err := r.RefundMany(ctx(), counter.RefundManyParams{Scope: scope, Amounts: amounts})
		r.refused(err, state.ErrCorrupt)
		r.stands("a", 5)
		amounts[1].Name = "c"
		got, err := r.RefundMany(ctx(), counter.RefundManyParams{Scope: scope, Amounts: amounts})
		r.must(err)
		if !slices.Equal(got.Values, []uint64{3, 0}) {
			t.Fatalf("%+v", got)
		}
	})
}

func TestPrefixRemovalTouchesOnlyItsPrefix(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		for _, name := range []string{"s/1/a", "s/1/b", "s/10/a", "s/2", "t", "s/1"} {
			r.add(name, 3)
		}
		got, err := r.RemovePrefix(ctx(), counter.RemovePrefixParams{Scope: scope, Prefix: "s/1/"})
		r.must(err)
		if got.Count != 2 || got.More {
			t.Fatalf("%+v", got)
		}
		r.absent("s/1/a")
		r.absent("s/1/b")
		for _, name := range []string{"s/10/a", "s/2", "t", "s/1"} {
			r.stands(name, 3)
		}
		got, err = r.RemovePrefix(ctx(), counter.RemovePrefixParams{Scope: scope, Prefix: "s/1/"})
		r.must(err)
		if got.Count != 0 {
			t.Fatalf("%+v", got)
		}
		// As bytes: every name that begins so.
		got, err = r.RemovePrefix(ctx(), counter.RemovePrefixParams{Scope: scope, Prefix: "s/1"})
		r.must(err)
		if got.Count != 2 {
			t.Fatalf("%+v", got)
		}
		one, err := r.Remove(ctx(), counter.RemoveParams{Scope: scope, Name: "t"})
		r.must(err)
		again, err := r.Remove(ctx(), counter.RemoveParams{Scope: scope, Name: "t"})
		r.must(err)
		if one.Count != 1 || again.Count != 0 {
			t.Fatalf("%+v, %+v", one, again)
		}
	})
}

func TestPrefixRemovalIsBoundedAndResumable(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		const counters = 4100
		for from := 0; from < counters; from += 50 {
			var list []counter.Entry
			for i := from; i < from+50; i++ {
				list = append(list, counter.Entry{Name: "p/" + strconv.Itoa(i), Amount: 1, Limit: 1})
			}
			_, err := r.spendMany(list...)
			r.must(err)
		}
		first, err := r.RemovePrefix(ctx(), counter.RemovePrefixParams{Scope: scope, Prefix: "p/"})
		r.must(err)
		second, err := r.RemovePrefix(ctx(), counter.RemovePrefixParams{Scope: scope, Prefix: "p/"})
		r.must(err)
		if !first.More || second.More || first.Count+second.Count != counters {
			t.Fatalf("%+v, then %+v", first, second)
		}
	})
}

func TestFetchMaxIsMonotonicUnder32Writers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		stores := []*counter.Counters{r.Counters, counter.New(r.Second(), counter.Options{})}
		var highest atomic.Uint64
		var wg sync.WaitGroup
		for w := range 32 {
			wg.Go(func() {
				last := uint64(0)
				for i := range 50 {
					to := uint64((w*31 + i*17) % 1600)
					got, err := stores[w%2].Raise(ctx(), counter.RaiseParams{Scope: scope, Name: "c", To: to})
					if err != nil {
						t.Error(err)
						return
					}
					if got.Value < to || got.Value < last {
						t.Errorf("raised to %d after %d, it stands at %d", to, last, got.Value)
						return
					}
					last = got.Value
					for old := highest.Load(); to > old && !highest.CompareAndSwap(old, to); old = highest.Load() {
					}
				}
			})
		}
		wg.Wait()
		r.stands("c", highest.Load())
	})
}

func TestManySpendersGrantExactlyTheLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		stores := []*counter.Counters{r.Counters, counter.New(r.Second(), counter.Options{})}
		const limit = 1000
		var granted atomic.Int64
		var wg sync.WaitGroup
		for w := range 64 {
			wg.Go(func() {
				for range 100 {
					_, err := stores[w%2].TrySpend(ctx(), counter.TrySpendParams{Scope: scope, Entry: counter.Entry{Name: "c", Amount: 1, Limit: limit}})
					if err == nil {
						granted.Add(1)
					} else if !errors.Is(err, counter.ErrExceeded) {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if granted.Load() != limit {
			t.Fatalf("%d were granted", granted.Load())
		}
		r.stands("c", limit)
	})
}

// TestADamagedOrImpossibleValueIsAnErrorNotZero: one that does not authenticate, and one that no step leaves behind, such as a
// negative number read as unsigned, sealed by somebody who has the key.
func TestADamagedOrImpossibleValueIsAnErrorNotZero(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		minus := int64(-1)
		for i, harm := range []func(key state.Key){
			r.Damage,
			func(key state.Key) {
				r.Rewrite(key, func(rec *state.Record) *state.Record { rec.Value = uint64(minus); return rec })
			},
			func(key state.Key) {
				r.Rewrite(key, func(rec *state.Record) *state.Record { rec.Value = counter.MaxAmount + 1; return rec })
			},
		} {
			name := "c" + strconv.Itoa(i)
			r.add(name, 5)
			harm(state.Key{Scope: scope, Kind: state.KindCounter, ID: name})
			_, err := r.Get(ctx(), counter.GetParams{Scope: scope, Name: name})
			r.refused(err, state.ErrCorrupt)
			_, err = r.spend(name, 1, 100)
			r.refused(err, state.ErrCorrupt)
			_, err = r.Refund(ctx(), counter.RefundParams{Scope: scope, Amount: counter.Amount{Name: name, Amount: 1}})
			r.refused(err, state.ErrCorrupt)
			_, err = r.Remove(ctx(), counter.RemoveParams{Scope: scope, Name: name})
			r.refused(err, state.ErrCorrupt)
			_, err = r.RemovePrefix(ctx(), counter.RemovePrefixParams{Scope: scope, Prefix: name})
			r.refused(err, state.ErrCorrupt)
		}
	})
}

func TestSpendsAreRefusedInQuarantine(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.add("c", 5)
		r.Quarantine()
		_, err := r.spend("c", 1, 100)
		r.refused(err, state.ErrRecovering)
		_, err = r.Refund(ctx(), counter.RefundParams{Scope: scope, Amount: counter.Amount{Name: "c", Amount: 1}})
		r.must(err)
		r.stands("c", 4)
	})
}

func TestCountersOutliveAReopenAndCountInTheQuota(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.add("c", 5)
		r.Reopen()
		r.Counters = counter.New(r.Store, counter.Options{})
		r.stands("c", 5)
		r.Caps(func(c *state.Caps) { c.Live = 2 })
		r.add("d", 1)
		_, err := r.Add(ctx(), counter.AddParams{Scope: scope, Name: "e", Amount: 1})
		r.refused(err, state.ErrFull)
		_, err = r.Remove(ctx(), counter.RemoveParams{Scope: scope, Name: "d"})
		r.must(err)
		r.add("e", 1)
	})
}
