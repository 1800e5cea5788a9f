package cli

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/operation"
)

// measured is what bench answers. Times are of one begin and its complete together.
type measured struct {
	Callers   int     `json:"callers"`
	Seconds   float64 `json:"seconds"`
	Pairs     int     `json:"pairs"`
	PerSecond float64 `json:"pairs_per_second"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Max       float64 `json:"max_ms"`
	Failed    int     `json:"failed"`
}

// Bounds of a load.
const (
	maxCallers   = 1024
	maxBenchTime = 10 * time.Minute
	maxSamples   = 1 << 20 // of one caller
)

func (a *app) benchCommand() *cobra.Command {
	var callers int
	var length time.Duration
	c := a.asking("bench", "Put a small load on a server or store: begin and complete operations, which stay there as receipts", cobra.NoArgs,
		func(ctx context.Context, c *call, at *reached) error {
			if callers < 1 || callers > maxCallers {
				return badValue("--callers: want 1 to %d", maxCallers)
			}
			if length < time.Second || length > maxBenchTime {
				return badValue("--for: want 1s to %s", maxBenchTime)
			}
			if err := at.open(ctx); err != nil {
				return err
			}
			m, failure := c.load(ctx, at, callers, length)
			if m.Pairs == 0 && failure != nil {
				return failure
			}
			if failure != nil {
				c.note("the first failure: " + failure.Error())
			}
			return c.answer(m, "%.0f begin and complete a second with %d callers in %.1f s; p50 %.1f ms, p99 %.1f ms, max %.1f ms; %d failed",
				m.PerSecond, m.Callers, m.Seconds, m.P50, m.P99, m.Max, m.Failed)
		})
	c.Flags().IntVar(&callers, "callers", 64, "how many ask at the same time")
	c.Flags().DurationVar(&length, "for", 5*time.Second, "how long")
	return c
}

// load makes callers work until the time is over.
func (c *call) load(ctx context.Context, at *reached, callers int, length time.Duration) (*measured, error) {
	var seed [8]byte
	if err := entropy.Fill(seed[:]); err != nil {
		return nil, err
	}
	over, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	started := c.clock.Boot()
	var mu sync.Mutex
	var all []time.Duration
	var failure error
	m := &measured{Callers: callers}
	var working sync.WaitGroup
	for i := range callers {
		working.Go(func() {
			w := &worker{to: at, prefix: "bench/" + hex.EncodeToString(seed[:]) + "/" + strconv.Itoa(i) + "/", clock: c.clock}
			w.work(ctx, over)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, w.times...)
			m.Pairs += w.pairs
			m.Failed += w.failed
			if failure == nil {
				failure = w.failure
			}
		})
	}
	working.Wait()
	m.Seconds = (c.clock.Boot() - started).Seconds()
	m.PerSecond = float64(m.Pairs) / m.Seconds
	slices.Sort(all)
	if n := len(all); n > 0 {
		m.P50, m.P99, m.Max = milliseconds(all[n/2]), milliseconds(all[n*99/100]), milliseconds(all[n-1])
	}
	return m, failure
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// worker is one caller of a load.
type worker struct {
	to     counterfoil.Caller
	prefix string
	clock  clock.Clock

	pairs, failed int
	times         []time.Duration
	failure       error
}

// work begins and completes operations until over ends; what is under way then is finished.
func (w *worker) work(ctx, over context.Context) {
	for n := 0; over.Err() == nil; n++ {
		before := w.clock.Boot()
		err := w.pair(ctx, w.prefix+strconv.Itoa(n))
		switch {
		case err == nil:
			w.pairs++
			if len(w.times) < maxSamples {
				w.times = append(w.times, w.clock.Boot()-before)
			}
		case ctx.Err() == nil:
			w.failed++
			w.failure = err
			if pause(over, 10*time.Millisecond) != nil {
				return
			}
		}
	}
}

func (w *worker) pair(ctx context.Context, key string) error {
	begun, err := w.to.Begin(ctx, counterfoil.BeginParams{Key: key, Fingerprint: counterfoil.Fingerprint{1}})
	if err != nil {
		return err
	}
	_, err = w.to.Complete(ctx, counterfoil.CompleteParams{ID: begun.ID, Token: begun.Token, Receipt: operation.Receipt{Status: 200}})
	return err
}
