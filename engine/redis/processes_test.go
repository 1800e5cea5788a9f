package redis

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

// A test binary that is started with this variable is one of several processes
// of a test: it does its work on the server that the variable names.
const (
	workVariable   = "COUNTERFOIL_TEST_REDIS"
	numberVariable = "COUNTERFOIL_TEST_PROCESS"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(workVariable); url != "" {
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
	processes = 4
	callers   = 16
	each      = 20
)

// work raises one counter, and creates keys that every process wants.
func work(url string) error {
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

func TestSeveralProcessesLoseNoIncrementAndShareNoKey(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	must(t, Create(t.Context(), server.URL(), Options{}))
	self, err := os.Executable()
	must(t, err)
	var wg sync.WaitGroup
	for n := range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), workVariable+"="+server.URL(), numberVariable+"="+strconv.Itoa(n+1))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("process %d: %v\n%s", n+1, err, out)
			}
		})
	}
	wg.Wait()
	e := open(t, server.URL(), Options{})
	if got := count(get(t, e, key("counter"))); got != processes*callers*each {
		t.Errorf("%d increments made %d", processes*callers*each, got)
	}
	if got := count(get(t, e, key("wins"))); got != callers*each {
		t.Errorf("%d keys had %d creators", callers*each, got)
	}
}
