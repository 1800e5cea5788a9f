package budget

import (
	"time"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// Limits of a call. A [Part] counts towards the keys of the batch that it is put into.
const (
	MaxEntries = 16              // budgets that a caller names
	MaxBudgets = 40              // with their ancestors
	MaxAmount  = state.MaxAmount // an amount or limit: 2^53 − 1
	MinTTL     = time.Second
	MaxTTL     = 7 * 24 * time.Hour
	MaxPermit  = 16 << 10 // bytes of a permit that a hold carries
)

// Memory is how long holds and spends are remembered after their end, so that they are answered by their names.
const Memory = 24 * time.Hour

// bareLease is how long a hold that was fenced without an operation waits to be settled, before it is charged in full.
const bareLease = 24 * time.Hour

// Figures is where a budget stands, taken from the step that answered. Times are in ms since 1970; Held includes what is
// fenced.
type Figures = state.Figures

// Entry is an amount of a budget's unit.
type Entry struct {
	Budget string
	Amount uint64 // 0 to MaxAmount
}

// Options configure [Budgets]. The zero value is ready to use.
type Options struct {
	// Cached is how many budgets' ancestry is kept in memory. Default 65,536.
	Cached int
}

// Budgets works on the budgets, spends and holds of a store. It is safe for concurrent use.
type Budgets struct {
	store   *store.Store
	lineage lineage
}

// New makes Budgets on a store and hands the store's sweeper the holds that nobody settled. It must be called before the
// store is used.
func New(s *store.Store, o Options) *Budgets {
	if o.Cached <= 0 {
		o.Cached = 1 << 16
	}
	b := &Budgets{store: s}
	b.lineage.limit = o.Cached
	s.HandleLeases(state.KindHold, b.chargeAbandoned)
	return b
}

// Smallest is the least that remains in any of the budgets, those without a limit left out. It reports false if none has
// a limit.
func Smallest(figures []Figures) (uint64, bool) {
	least, limited := uint64(0), false
	for i := range figures {
		if f := &figures[i]; !f.Unlimited && (!limited || f.Remaining < least) {
			least, limited = f.Remaining, true
		}
	}
	return least, limited
}

// Latest gives the figures that a batch left the budgets with, one for each, from all that its moves gave.
func Latest(all []Figures) []Figures {
	last := make([]Figures, 0, len(all))
	for i := range all {
		last = appendLatest(last, &all[i])
	}
	return last
}

// appendLatest adds the figures that a move left a budget with to those that earlier moves left all of them with.
func appendLatest(last []Figures, f *Figures) []Figures {
	for i := range last {
		if earlier := &last[i]; earlier.Name == f.Name {
			amount := earlier.Amount + f.Amount
			*earlier = *f
			earlier.Amount = amount
			return last
		}
	}
	return append(last, *f)
}

func budgetKey(scope, name string) state.Key {
	return state.Key{Scope: scope, Kind: state.KindBudget, ID: name}
}

func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
