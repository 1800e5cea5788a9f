// Command bench measures Counterfoil against what a durable answer costs at
// least, in one table: medians of runs that alternate, so that a slow minute of
// the machine meets all alike. Ratios count, not figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
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
	tables := flag.String("tables", "claims,permits,guarded", "which tables to print")
	profile := flag.String("cpuprofile", "", "write a CPU profile of the engine's runs to this file")
	flag.Parse()
	if *dir == "" {
		made, err := os.MkdirTemp("", "bench")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(made) }() // a temporary directory
		*dir = made
	}
	fmt.Printf("%d CPUs, %s, %s\n", runtime.NumCPU(), runtime.Version(), *dir)
	b := bench{dir: *dir, length: time.Duration(*seconds * float64(time.Second)), runs: *runs, profile: *profile}
	numbers, err := numbersOf(*callers)
	if err != nil {
		return err
	}
	for table := range strings.SplitSeq(*tables, ",") {
		switch table {
		case "claims":
			err = b.compareClaims(numbers)
		case "permits":
			err = comparePermits(b.runs, permitsARun, numbers)
		case "guarded":
			err = b.compareGuarded(numbers)
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

func (b bench) compareClaims(callers []int) error {
	fmt.Printf("%8s %14s %14s %8s %12s %24s\n", "callers", "bare loop/s", "engine/s", "ratio", "bytes/claim", "CPU µs/call: bare, engine")
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
	var bare, ours, bytes, bareCPU, oursCPU []float64
	for range b.runs {
		m, perClaim, err := b.engine(callers)
		if err != nil {
			return err
		}
		ours, oursCPU, bytes = append(ours, m.rate), append(oursCPU, m.cpu), append(bytes, perClaim)
		if m, err = b.bare(callers, int(median(bytes))); err != nil {
			return err
		}
		bare, bareCPU = append(bare, m.rate), append(bareCPU, m.cpu)
	}
	fmt.Printf("%8d %14.0f %14.0f %7.0f%% %12.0f %12.2f %11.2f\n", callers, median(bare), median(ours), 100*median(ours)/median(bare), median(bytes), median(bareCPU), median(oursCPU))
	return nil
}

// measure is what one run gave.
type measure struct {
	rate float64 // calls per second
	cpu  float64 // microseconds of CPU per call, of the whole process
}

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

func (b bench) engine(callers int) (m measure, bytesPerClaim float64, err error) {
	dir, err := os.MkdirTemp(b.dir, "engine")
	if err != nil {
		return m, 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	p, err := openPebble(dir)
	if err != nil {
		return m, 0, err
	}
	if b.profile != "" {
		file, err := os.Create(b.profile)
		if err != nil {
			return m, 0, err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return m, 0, err
		}
		defer pprof.StopCPUProfile()
	}
	e := newBareEngine(p)
	now := time.Now().UnixMilli()
	var claims atomic.Int64
	m, err = b.rate(callers, func(i int) func() error {
		r := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
		return func() error {
			claims.Add(1)
			return e.call(newCreate(r, now))
		}
	})
	bytesPerClaim = logBytes(p) / float64(claims.Load())
	if closeErr := e.close(); err == nil {
		err = closeErr
	}
	return m, bytesPerClaim, err
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
	return measure{rate: n / elapsed.Seconds(), cpu: float64(used.Microseconds()) / n}, nil
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
