package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/counterfoil/counterfoil/engine/redis"
	"github.com/counterfoil/counterfoil/internal/testserver"
)

// compareRedis prints claims beside one bare Lua claim a call, spends on four hot budgets beside one bare Lua script of four
// counters a call, four processes beside one, and a large store beside a small one, all on one real server that syncs every
// command.
func (b bench) compareRedis() (err error) {
	h := &host{dir: b.dir}
	defer h.close()
	defer func() {
		if failed, ok := recover().(hostFailed); ok {
			err = fmt.Errorf("the server: %s", string(failed))
		}
	}()
	server := testserver.Redis(h, testserver.RedisOptions{})
	ctx := context.Background()
	if err := prepareRedis(ctx, server); err != nil {
		return err
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, PipelineMultiplex: -1,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	fmt.Printf("\n%-28s %8s %14s %14s %8s\n", "on Redis", "callers", "beside it/s", "ours/s", "ratio")
	for _, row := range []struct {
		name    string
		callers int
		work    string
		beside  func() error
	}{
		{"claims", 64, workClaims, bareClaim(ctx, client)},
		{"claims", 256, workClaims, bareClaim(ctx, client)},
		{"spends on 4 hot budgets", 64, workSpends, bareCounters(ctx, client)},
		{"spends on 4 hot budgets", 256, workSpends, bareCounters(ctx, client)},
	} {
		if err := b.besideServer(server.URL(), row.name, row.callers, row.work, row.beside); err != nil {
			return err
		}
	}
	if err := b.processesOn(server.URL()); err != nil {
		return err
	}
	return b.manyBesideFew(ctx, func() (string, error) {
		server := testserver.Redis(h, testserver.RedisOptions{})
		return server.URL(), prepareRedis(ctx, server)
	})
}

func prepareRedis(ctx context.Context, server *testserver.RedisServer) error {
	if err := redis.Create(ctx, server.URL(), redis.Options{}); err != nil {
		return err
	}
	e, err := redis.Open(ctx, server.URL(), redis.Options{})
	if err != nil {
		return err
	}
	return prepareStore(ctx, e)
}

// bareClaim is the least that a claim in Lua can be: no rule, no index, no seal.
func bareClaim(ctx context.Context, client rueidis.Client) func() error {
	script := rueidis.NewLuaScript(`if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1`)
	body := string(make([]byte, 150))
	return func() error {
		id := make([]byte, 32)
		if _, err := rand.Read(id); err != nil {
			return err
		}
		return script.Exec(ctx, client, []string{"bare:" + string(id)}, []string{body}).Error()
	}
}

// bareCounters raises four counters if each stays below its limit.
func bareCounters(ctx context.Context, client rueidis.Client) func() error {
	script := rueidis.NewLuaScript(`for i = 1, #KEYS do
  if tonumber(redis.call('GET', KEYS[i]) or 0) + tonumber(ARGV[1]) > tonumber(ARGV[2]) then return 0 end
end
for i = 1, #KEYS do redis.call('INCRBY', KEYS[i], ARGV[1]) end
return 1`)
	var keys []string
	for n := range hotBudgets {
		keys = append(keys, "counter:"+strconv.Itoa(n))
	}
	return func() error {
		return script.Exec(ctx, client, keys, []string{"1", "1000000000"}).Error()
	}
}
