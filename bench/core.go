package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"

	"github.com/redis/rueidis"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// compareCore prints the rest of what the core is held to on the embedded
// engine: claims beside a Redis server that syncs every command, spends on hot
// budgets beside the bare loop, a large store beside a small one, and what is
// left without a disk.
func (b bench) compareCore(large bool) error {
	fmt.Printf("\n%-44s %8s %14s %14s %8s\n", "on Pebble", "callers", "beside it/s", "ours/s", "ratio")
	for _, step := range []func() error{b.besideRedis, b.hotSpends, func() error { return b.liveOnPebble(large) }, b.inMemory} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func row(name string, callers int, beside, ours series) {
	fmt.Printf("%-44s %8d %14.0f %14.0f %7.2fx\n", name, callers, beside.rate(), ours.rate(), ours.rate()/beside.rate())
}

// besideRedis compares claims with the least that a Redis server can do for one.
func (b bench) besideRedis() (err error) {
	h := &host{dir: b.dir}
	defer h.close()
	defer func() {
		if failed, ok := recover().(hostFailed); ok {
			err = fmt.Errorf("the server: %s", string(failed))
		}
	}()
	server := testserver.Redis(h, testserver.RedisOptions{})
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, PipelineMultiplex: -1,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	for _, callers := range []int{64, 256} {
		var lua, set, claims series
		for range b.runs {
			for call, to := range map[*func() error]*series{ptr(bareClaim(ctx, client)): &lua, ptr(bareSet(ctx, client)): &set} {
				m, err := b.rate(callers, func(int) func() error { return *call })
				if err != nil {
					return err
				}
				to.add(m)
			}
			m, err := b.onStore(callers, claiming)
			if err != nil {
				return err
			}
			claims.add(m)
		}
		row("claims, beside one Lua claim a call on Redis", callers, lua, claims)
		row("claims, beside SET NX on Redis", callers, set, claims)
	}
	return nil
}

func ptr[T any](v T) *T { return &v }

func bareSet(ctx context.Context, client rueidis.Client) func() error {
	body := string(make([]byte, 150))
	return func() error {
		id := make([]byte, 32)
		if _, err := rand.Read(id); err != nil {
			return err
		}
		return client.Do(ctx, client.B().Set().Key("set:"+string(id)).Value(body).Nx().Build()).Error()
	}
}

// hotSpends compares spends on four budgets that all callers share with the
// bare loop.
func (b bench) hotSpends() error {
	for _, callers := range []int{64, 256} {
		var bare, spends series
		for range b.runs {
			m, err := b.onStore(callers, spending)
			if err != nil {
				return err
			}
			spends.add(m)
			if m, err = b.bare(callers, int(m.bytes)); err != nil {
				return err
			}
			bare.add(m)
		}
		row(fmt.Sprintf("spends on 4 hot budgets, beside the bare loop (%.0f bytes)", spends.bytes()), callers, bare, spends)
	}
	return nil
}

// spending makes callers of a spend on four hot budgets.
func spending(c *counterfoil.Counterfoil) (func(int) func() error, error) {
	ctx := context.Background()
	for n := range hotBudgets {
		if _, err := c.Budgets.Define(ctx, budget.DefineParams{Scope: scope, Definition: budget.Definition{
			Name: hot(n), Unit: "cent", Limit: budget.MaxAmount, Window: budget.Window{Kind: budget.Lifetime},
		}}); err != nil {
			return nil, err
		}
	}
	return func(int) func() error { return spendOn(ctx, c.Budgets) }, nil
}

// liveOnPebble compares claims in a store with many live records with claims in
// one with few.
func (b bench) liveOnPebble(large bool) error {
	const few, callers = 10_000, 64
	many := 1_000_000
	if large {
		many = 10_000_000
	}
	var small, big series
	for _, run := range []struct {
		live int
		to   *series
	}{{few, &small}, {many, &big}} {
		if err := b.claimsBeside(run.live, callers, run.to); err != nil {
			return err
		}
	}
	row(fmt.Sprintf("claims with %d live records, beside 10000", many), callers, small, big)
	return nil
}

// claimsBeside fills a store and measures claims in it, several times.
func (b bench) claimsBeside(live, callers int, to *series) error {
	dir, err := os.MkdirTemp(b.dir, "live")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	keys, err := keyring.NewMemory(keyring.Options{}, scope)
	if err != nil {
		return err
	}
	c, _, err := openCore(dir, keys)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // what was measured is over
	if err := raiseCaps(c.Store()); err != nil {
		return err
	}
	caller, err := claiming(c)
	if err != nil {
		return err
	}
	if err := times1024(live, caller); err != nil {
		return err
	}
	for range b.runs {
		m, err := b.rate(callers, caller)
		if err != nil {
			return err
		}
		to.add(m)
	}
	return nil
}

// times1024 makes n calls from 1,024 callers.
func times1024(n int, caller func(int) func() error) error {
	const callers = 1024
	var wg sync.WaitGroup
	failed := make(chan error, callers)
	for i := range callers {
		wg.Go(func() {
			call := caller(i)
			for k := i; k < n; k += callers {
				if err := call(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

// raiseCaps makes room for more live records than a scope has by default.
func raiseCaps(s *store.Store) error {
	return s.ChangeScope(context.Background(), scope, func(body *state.Scope, _ int64) error {
		body.Caps.Live, body.Caps.OwnerLive = 1<<40, 1<<40
		return nil
	})
}

// inMemory prints claims on the memory engine, which nothing is beside.
func (b bench) inMemory() error {
	keys, err := keyring.NewMemory(keyring.Options{}, scope)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for _, callers := range []int{1, 64} {
		e := memory.New(clock.System{})
		if err := store.Create(ctx, e, store.Options{Keys: keys.Integrity()}); err != nil {
			return err
		}
		c, err := counterfoil.Open(ctx, e, keys, store.Options{}, counterfoil.Options{})
		if err != nil {
			return err
		}
		caller, err := claiming(c)
		if err != nil {
			return err
		}
		var claims series
		for range b.runs {
			m, err := b.rate(callers, caller)
			if err != nil {
				return err
			}
			claims.add(m)
		}
		fmt.Printf("%-44s %8d %14s %14.0f %8.1f µs CPU\n", "claims in memory", callers, "", claims.rate(), claims.cpu())
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}
