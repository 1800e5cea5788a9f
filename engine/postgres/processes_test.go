package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// A test binary that is started with this variable is one of several processes
// of a test: it does its work on the server that the variable names.
const workVariable = "COUNTERFOIL_TEST_POSTGRES"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(workVariable); dsn != "" {
		if err := work(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	processes = 8
	callers   = 64
	limit     = 300 // below what all callers ask for
)

// storeOn opens the store on a server.
func storeOn(ctx context.Context, dsn string, create bool) (*store.Store, error) {
	key := make([]byte, state.IntegrityKeyBytes)
	keys, err := state.NewKeys(state.IntegrityKeyID(key), [][]byte{key})
	if err != nil {
		return nil, err
	}
	e, err := postgres.Open(ctx, dsn, postgres.Options{})
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

// work lets many callers claim one key and spend on one limit, and prints how
// many got the key and how often the limit gave.
func work(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 80*time.Second)
	defer cancel()
	s, err := storeOn(ctx, dsn, false)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var failed error
	var wins, spent int
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			won, err := claimed(ctx, s)
			given := false
			if err == nil {
				given, err = spend(ctx, s)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			}
			if won {
				wins++
			}
			if given {
				spent++
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	fmt.Println(wins, spent)
	return s.Close()
}

func claimed(ctx context.Context, s *store.Store) (bool, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return false, err
	}
	c := state.Claim{Key: state.Key{Scope: scope, Kind: state.KindMarker, ID: "wanted"}, Owner: "test", State: state.Settled, Expires: now + 60*minute}
	copy(c.Token[:], strconv.Itoa(os.Getpid())+"-"+fmt.Sprint(versions.Add(1)))
	out, err := s.Do(ctx, &state.Batch{Scope: scope, Ops: []state.Op{c}})
	return err == nil && out.Applied, err
}

func spend(ctx context.Context, s *store.Store) (bool, error) {
	op := state.Spend{Key: state.Key{Scope: scope, Kind: state.KindCounter, ID: "shared"}, Amount: 1, Limit: limit}
	out, err := s.Do(ctx, &state.Batch{Scope: scope, Ops: []state.Op{op}})
	return err == nil && out.Applied, err
}

func TestManyProcessesHaveOneWinnerAndExactlyTheLimit(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{})
	s, err := storeOn(t.Context(), server.DSN(), true)
	must(t, err)
	must(t, s.Close())
	self, err := os.Executable()
	must(t, err)
	results := make(chan string)
	for n := range processes {
		go func() {
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), workVariable+"="+server.DSN())
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("process %d: %v\n%s", n, err, errorOutput(err))
			}
			results <- string(out)
		}()
	}
	wins, spent := 0, 0
	for range processes {
		var w, n int
		if _, err := fmt.Sscan(strings.TrimSpace(<-results), &w, &n); err != nil {
			t.Error(err)
		}
		wins, spent = wins+w, spent+n
	}
	if wins != 1 || spent != limit {
		t.Errorf("%d callers had the key, and the limit of %d gave %d", wins, limit, spent)
	}
}

func errorOutput(err error) string {
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // of Output alone, never wrapped.
		return string(exit.Stderr)
	}
	return ""
}
