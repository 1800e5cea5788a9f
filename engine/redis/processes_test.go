package redis

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// A test binary that is started with this variable is one of several processes
// of a test: it does its work on the server that the variable names.
const (
	workVariable   = "COUNTERFOIL_TEST_REDIS"
	sortVariable   = "COUNTERFOIL_TEST_WORK"
	numberVariable = "COUNTERFOIL_TEST_PROCESS"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(workVariable); url != "" {
		work := map[string]func(string) error{"engine": workOnEngine, "store": workOnStore}[os.Getenv(sortVariable)]
		if err := work(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// processNumber tells the versions of several processes apart.
func processNumber() int {
	n, _ := strconv.Atoi(os.Getenv(numberVariable)) // 0 in the test itself
	return n
}

const (
	processes = 8
	callers   = 8
	each      = 10

	storeCallers = 64
	limit        = 300 // below what all callers ask for
)

// workOnEngine raises one counter, and creates keys that every process wants.
func workOnEngine(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	e, err := Open(ctx, url, Options{})
	if err != nil {
		return err
	}
	errs := make(chan error, callers)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() { errs <- workOf(ctx, e, caller) })
	}
	wg.Wait()
	for range callers {
		if err := <-errs; err != nil {
			return err
		}
	}
	return e.Close()
}

func workOf(ctx context.Context, e *Engine, caller int) error {
	wins := 0
	for i := range each {
		for {
			err := increment(ctx, e, key("counter"))
			if err == nil {
				break
			}
			if !isConflict(err) {
				return err
			}
		}
		won, err := create(ctx, e, key(fmt.Sprintf("wanted-%d-%d", caller, i)))
		if err != nil {
			return err
		}
		if won {
			wins++
		}
	}
	for range wins {
		for {
			err := increment(ctx, e, key("wins"))
			if err == nil {
				break
			}
			if !isConflict(err) {
				return err
			}
		}
	}
	return nil
}

// create makes a record if there is none.
func create(ctx context.Context, e engine.Engine, k state.Key) (won bool, err error) {
	for {
		err := e.Transact(ctx, []state.Key{k}, func(s engine.Snapshot) (engine.Plan, error) {
			won = s.Items[0] == nil
			if !won {
				return engine.Plan{}, nil
			}
			return engine.Plan{Changes: []engine.Change{{Key: k, Item: item(1)}}, NotAfter: s.Now + minute}, nil
		})
		if !isConflict(err) {
			return won, err
		}
	}
}

// startProcesses runs all processes on a server, and gives what each printed.
func startProcesses(t *testing.T, sort, url string) []string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	printed := make([]string, processes)
	var wg sync.WaitGroup
	for n := range printed {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), workVariable+"="+url, sortVariable+"="+sort, numberVariable+"="+strconv.Itoa(n+1))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("process %d: %v\n%s", n+1, err, out)
			}
			printed[n] = string(out)
		})
	}
	wg.Wait()
	return printed
}

func TestSeveralProcessesLoseNoIncrementAndShareNoKey(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	must(t, Create(t.Context(), server.URL(), Options{}))
	startProcesses(t, "engine", server.URL())
	e := open(t, server.URL(), Options{})
	if got := count(get(t, e, key("counter"))); got != processes*callers*each {
		t.Errorf("%d increments made %d", processes*callers*each, got)
	}
	if got := count(get(t, e, key("wins"))); got != callers*each {
		t.Errorf("%d keys had %d creators", callers*each, got)
	}
}

// storeOn opens the store on a server.
func storeOn(ctx context.Context, url string, create bool) (*store.Store, error) {
	integrity := make([]byte, state.IntegrityKeyBytes)
	keys, err := state.NewKeys(state.IntegrityKeyID(integrity), [][]byte{integrity})
	if err != nil {
		return nil, err
	}
	e, err := Open(ctx, url, Options{})
	if err != nil {
		return nil, err
	}
	if create {
		if err := store.Create(ctx, e, store.Options{Keys: keys}); err != nil {
			return nil, err
		}
	}
	return store.Open(ctx, e, store.Options{Keys: keys})
}

// workOnStore lets many callers claim one key and spend on one limit, and
// prints how many got the key and how often the limit gave.
func workOnStore(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 80*time.Second)
	defer cancel()
	s, err := storeOn(ctx, url, false)
	if err != nil {
		return err
	}
	var wins, spent atomic.Int64
	errs := make(chan error, storeCallers)
	var wg sync.WaitGroup
	for range storeCallers {
		wg.Go(func() { errs <- claimAndSpend(ctx, s, &wins, &spent) })
	}
	wg.Wait()
	for range storeCallers {
		if err := <-errs; err != nil {
			return err
		}
	}
	fmt.Println(wins.Load(), spent.Load())
	return s.Close()
}

func claimAndSpend(ctx context.Context, s *store.Store, wins, spent *atomic.Int64) error {
	token, err := s.Token()
	if err != nil {
		return err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	for got, op := range map[*atomic.Int64]state.Op{
		wins: state.Claim{
			Key: state.Key{Scope: scope, Kind: state.KindMarker, ID: "wanted"}, Owner: "test", Token: token, State: state.Settled, Expires: now + 60*minute,
		},
		spent: state.Spend{Key: state.Key{Scope: scope, Kind: state.KindCounter, ID: "shared"}, Amount: 1, Limit: limit},
	} {
		out, err := s.Do(ctx, &state.Batch{Scope: scope, Ops: []state.Op{op}})
		if err != nil {
			return err
		}
		if out.Applied {
			got.Add(1)
		}
	}
	return nil
}

func TestManyProcessesHaveOneWinnerAndExactlyTheLimit(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	must(t, Create(t.Context(), server.URL(), Options{}))
	s, err := storeOn(t.Context(), server.URL(), true)
	must(t, err)
	must(t, s.Close())
	wins, spent := 0, 0
	for n, printed := range startProcesses(t, "store", server.URL()) {
		var w, s int
		if _, err := fmt.Sscan(printed, &w, &s); err != nil {
			t.Errorf("process %d printed %q: %v", n, printed, err)
		}
		wins, spent = wins+w, spent+s
	}
	if wins != 1 || spent != limit {
		t.Errorf("%d callers had the key, and the limit of %d gave %d", wins, limit, spent)
	}
}
