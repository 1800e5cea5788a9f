package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/open"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// host runs a server outside of a test.
type host struct {
	dir      string
	cleanups []func()
}

type hostFailed string

func (h *host) Helper()                        {}
func (h *host) Failed() bool                   { return false }
func (h *host) Cleanup(f func())               { h.cleanups = append(h.cleanups, f) }
func (h *host) Logf(format string, a ...any)   { fmt.Fprintf(os.Stderr, format+"\n", a...) }
func (h *host) Fatalf(format string, a ...any) { panic(hostFailed(fmt.Sprintf(format, a...))) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp(h.dir, "server")
	if err != nil {
		h.Fatalf("%v", err)
	}
	// The server may run under another account, which must get through.
	if err := os.Chmod(h.dir, 0o711); err != nil {
		h.Fatalf("%v", err)
	}
	return dir
}

func (h *host) close() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}

func (b bench) besideServer(url, name string, callers int, work string, beside func() error) error {
	var bare, ours []float64
	for range b.runs {
		m, err := b.rate(callers, func(int) func() error { return beside })
		if err != nil {
			return err
		}
		w, err := b.workOn(url, work, callers)
		if err != nil {
			return err
		}
		bare, ours = append(bare, m.rate), append(ours, w.Rate)
	}
	fmt.Printf("%-28s %8d %14.0f %14.0f %7.1fx\n", name, callers, median(bare), median(ours), median(ours)/median(bare))
	return nil
}

// processesOn prints what four processes of 64 callers reach beside one.
func (b bench) processesOn(url string) error {
	const many, callers = 4, 64
	for _, work := range []string{workClaims, workSpends} {
		var one, all, longest []float64
		for range b.runs {
			first, err := b.startWork(url, work, callers, 1)
			if err != nil {
				return err
			}
			together, err := b.startWork(url, work, callers, many)
			if err != nil {
				return err
			}
			one, all, longest = append(one, first.Rate), append(all, together.Rate), append(longest, together.Longest)
		}
		fmt.Printf("%-28s %8d %14.0f %14.0f %7.2fx   longest call %.2f s\n", fmt.Sprintf("%s by %d processes", work, many), callers,
			median(one), median(all), median(all)/median(one), slices.Max(longest))
	}
	return nil
}

// benchKeys are the same in every process.
func benchKeys() (*state.Keys, error) {
	key := make([]byte, state.IntegrityKeyBytes)
	return state.NewKeys(state.IntegrityKeyID(key), [][]byte{key})
}

// The works that a process of its own can be given.
const (
	workClaims = "claims"
	workSpends = "spends"
)

// worked is what the processes did.
type worked struct {
	Rate    float64 `json:"rate"`    // calls per second
	Longest float64 `json:"longest"` // call, in seconds
}

// startWork starts processes, each with a store of its own on the server, and adds up what they did.
func (b bench) startWork(url, work string, callers, processes int) (sum worked, err error) {
	self, err := os.Executable()
	if err != nil {
		return sum, err
	}
	type result struct {
		worked
		err error
	}
	results := make(chan result)
	for range processes {
		go func() {
			cmd := exec.Command(self, "-seconds", fmt.Sprint(b.length.Seconds()), "-callers", fmt.Sprint(callers), "-work", work, "-on", url)
			cmd.Stderr = os.Stderr
			var r result
			out, err := cmd.Output()
			if r.err = err; err == nil {
				r.err = json.Unmarshal(out, &r.worked)
			}
			results <- r
		}()
	}
	for range processes {
		r := <-results
		if r.err != nil {
			err = fmt.Errorf("a process: %w", r.err)
		}
		sum.Rate += r.Rate
		sum.Longest = max(sum.Longest, r.Longest)
	}
	return sum, err
}

// workOn opens the store on a server and lets callers work on it.
func (b bench) workOn(url, work string, callers int) (w worked, err error) {
	ctx := context.Background()
	s, err := storeOn(ctx, url)
	if err != nil {
		return w, err
	}
	call := claimOn(ctx, s)
	if work == workSpends {
		call = spendOn(ctx, budget.New(s, budget.Options{}))
	}
	var longest atomic.Int64
	m, err := b.rate(callers, func(int) func() error {
		return func() error {
			begin := time.Now()
			err := call()
			for took := int64(time.Since(begin)); ; {
				if old := longest.Load(); took <= old || longest.CompareAndSwap(old, took) {
					return err
				}
			}
		}
	})
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return worked{Rate: m.rate, Longest: time.Duration(longest.Load()).Seconds()}, err
}

func claimOn(ctx context.Context, s *store.Store) func() error {
	return func() error {
		id := make([]byte, 32)
		if _, err := rand.Read(id); err != nil {
			return err
		}
		claim := state.Claim{
			Key:   state.Key{Scope: scope, Kind: state.KindMarker, ID: string(id)},
			Owner: "bench", State: state.Settled, Expires: time.Now().Add(time.Hour).UnixMilli(), Body: make([]byte, 150),
		}
		copy(claim.Token[:], id)
		out, err := s.Do(ctx, &state.Batch{Scope: scope, Ops: []state.Op{claim}})
		if err == nil && !out.Applied {
			err = fmt.Errorf("claim: %s", out.Refusals[0].Reason)
		}
		return err
	}
}

func spendOn(ctx context.Context, budgets *budget.Budgets) func() error {
	entries := make([]budget.Entry, hotBudgets)
	for n := range entries {
		entries[n] = budget.Entry{Budget: hot(n), Amount: 1}
	}
	return func() error {
		_, err := budgets.Spend(ctx, budget.SpendParams{Scope: scope, Owner: "bench", RequestID: rand.Text(), Entries: entries})
		return err
	}
}

// storeOn opens the store on a server.
func storeOn(ctx context.Context, url string) (*store.Store, error) {
	location, err := open.Parse(url)
	if err != nil {
		return nil, err
	}
	e, err := location.Open(ctx, open.Options{})
	if err != nil {
		return nil, err
	}
	keys, err := benchKeys()
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, e, store.Options{Keys: keys})
}

// prepareStore makes a store with the hot budgets.
func prepareStore(ctx context.Context, e engine.Engine) error {
	keys, err := benchKeys()
	if err != nil {
		return err
	}
	if err := store.Create(ctx, e, store.Options{Keys: keys}); err != nil {
		return err
	}
	s, err := store.Open(ctx, e, store.Options{Keys: keys})
	if err != nil {
		return err
	}
	budgets := budget.New(s, budget.Options{})
	for n := range hotBudgets {
		_, err := budgets.Define(ctx, budget.DefineParams{Scope: scope, Definition: budget.Definition{
			Name: hot(n), Unit: "cent", Limit: budget.MaxAmount, Window: budget.Window{Kind: budget.Lifetime},
		}})
		if err != nil {
			return err
		}
	}
	return s.Close()
}
