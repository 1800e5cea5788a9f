// Command bench measures Counterfoil against what a durable answer costs at
// least, in one table: medians of runs that alternate, so that a slow minute of
// the machine meets all alike. Ratios count, not figures.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/counterfoil/counterfoil/engine/pebble"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	dir := flag.String("dir", "", "directory for the stores; a temporary one by default")
	seconds := flag.Float64("seconds", 2, "length of one run")
	runs := flag.Int("runs", 5, "runs of each, alternating")
	callers := flag.String("callers", "1,64,256,1024", "numbers of callers")
	tables := flag.String("tables", "claims,core,permits,guarded,guard,http,redis,postgres", "which tables to print")
	large := flag.Bool("large", false, "fill the large store with 10 million records instead of one")
	work := flag.String("work", "", "what to do as one of several processes, on the server of -on, instead of the tables")
	on := flag.String("on", "", "URL of the server to work on")
	profile := flag.String("cpuprofile", "", "write a CPU profile of the engine's runs to this file")
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // as the server does; what is beside it gains too
	}
	if *dir == "" {
		made, err := os.MkdirTemp("", "bench")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(made) }() // a temporary directory
		*dir = made
	}
	if *work == "" {
		fmt.Printf("%d CPUs, %s, %s\n", runtime.NumCPU(), runtime.Version(), *dir)
	}
	b := bench{dir: *dir, length: time.Duration(*seconds * float64(time.Second)), runs: *runs, profile: *profile}
	numbers, err := numbersOf(*callers)
	if err != nil {
		return err
	}
	if *work != "" {
		w, err := b.workOn(*on, *work, numbers[0])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(w)
	}
	for table := range strings.SplitSeq(*tables, ",") {
		switch table {
		case "claims":
			err = b.compareClaims(numbers)
		case "core":
			err = b.compareCore(*large)
		case "permits":
			err = comparePermits(b.runs, permitsARun, numbers)
		case "guarded":
			err = b.compareGuarded(numbers)
		case "guard":
			err = b.compareGuard()
		case "redis":
			err = b.compareRedis()
		case "postgres":
			err = b.comparePostgres()
		case "http":
			err = b.compareHTTP()
		default:
			err = fmt.Errorf("-tables: there is no table %q", table)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// permitsARun is how many permits one run checks and consumes.
const permitsARun = 5_000

func numbersOf(list string) ([]int, error) {
	var numbers []int
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-callers: %q is not a number above 0", field)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// compareClaims prints the core's claim on Pebble, and the engine alone under a bare grouping loop, beside the bare loop.
func (b bench) compareClaims(callers []int) error {
	fmt.Printf("%8s %12s %12s %8s %14s %8s %12s   CPU µs a call: bare loop, claim, engine alone\n",
		"callers", "bare loop/s", "claims/s", "ratio", "engine alone/s", "ratio", "bytes/claim")
	for _, n := range callers {
		if err := b.compare(n); err != nil {
			return err
		}
	}
	return nil
}

type bench struct {
	dir     string
	length  time.Duration
	runs    int
	profile string
}

func (b bench) compare(callers int) error {
	var bare, alone, claims series
	for range b.runs {
		m, err := b.engine(callers)
		if err != nil {
			return err
		}
		alone.add(m)
		if m, err = b.onStore(callers, claiming); err != nil {
			return err
		}
		claims.add(m)
		if m, err = b.bare(callers, int(m.bytes)); err != nil {
			return err
		}
		bare.add(m)
	}
	fmt.Printf("%8d %12.0f %12.0f %7.0f%% %14.0f %7.0f%% %12.0f %12.2f %8.2f %8.2f\n", callers,
		bare.rate(), claims.rate(), 100*claims.rate()/bare.rate(), alone.rate(), 100*alone.rate()/bare.rate(), claims.bytes(), bare.cpu(), claims.cpu(), alone.cpu())
	return nil
}

// measure is what one run gave.
type measure struct {
	calls float64
	rate  float64 // calls per second
	cpu   float64 // microseconds of CPU per call, of the whole process
	// bytes that the write-ahead log got per call, where there is one
	bytes float64
}

// series are the measures of several runs; their medians count.
type series []measure

func (s *series) add(m measure) { *s = append(*s, m) }

func (s series) of(value func(measure) float64) float64 {
	values := make([]float64, len(s))
	for i, m := range s {
		values[i] = value(m)
	}
	return median(values)
}

func (s series) rate() float64  { return s.of(func(m measure) float64 { return m.rate }) }
func (s series) cpu() float64   { return s.of(func(m measure) float64 { return m.cpu }) }
func (s series) bytes() float64 { return s.of(func(m measure) float64 { return m.bytes }) }

func (b bench) bare(callers, bytes int) (m measure, err error) {
	dir, err := os.MkdirTemp(b.dir, "bare")
	if err != nil {
		return m, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	l, err := newBareLoop(dir)
	if err != nil {
		return m, err
	}
	m, err = b.rate(callers, func(i int) func() error {
		r := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
		return func() error { return l.call(newAppend(r, bytes)) }
	})
	if closeErr := l.close(); err == nil {
		err = closeErr
	}
	return m, err
}

// engine measures Pebble alone, without store, seal and rules.
func (b bench) engine(callers int) (m measure, err error) {
	dir, err := os.MkdirTemp(b.dir, "engine")
	if err != nil {
		return m, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	p, err := openPebble(dir)
	if err != nil {
		return m, err
	}
	e := newBareEngine(p)
	now := time.Now().UnixMilli()
	before := logBytes(p)
	m, err = b.rate(callers, func(i int) func() error {
		r := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
		return func() error { return e.call(newCreate(r, now)) }
	})
	m.bytes = (logBytes(p) - before) / m.calls
	if closeErr := e.close(); err == nil {
		err = closeErr
	}
	return m, err
}

func logBytes(p *pebble.Engine) float64 {
	s, err := p.Stats(context.Background())
	if err != nil {
		return 0
	}
	return float64(s.LogWritten)
}

// rate runs the callers side by side and gives the calls of all per second.
func (b bench) rate(callers int, caller func(int) func() error) (measure, error) {
	var calls atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	stop := make(chan struct{})
	begin, before := time.Now(), cpuTime()
	for i := range callers {
		call := caller(i)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := call(); err != nil {
					failed.Store(&err)
					return
				}
				calls.Add(1)
			}
		})
	}
	<-time.After(b.length)
	close(stop)
	wg.Wait()
	elapsed, used := time.Since(begin), cpuTime()-before
	if err := failed.Load(); err != nil {
		return measure{}, *err
	}
	n := float64(calls.Load())
	return measure{calls: n, rate: n / elapsed.Seconds(), cpu: float64(used.Microseconds()) / n}, nil
}

// cpuTime is what the process has used of all CPUs.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
