package storetest

import (
	"context"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/redis"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/testserver"
)

// redisMedium is a real server of its own.
type redisMedium struct {
	url     string
	options redis.Options
}

func onRedis(t testing.TB, c clock.Clock) medium {
	t.Helper()
	return redisMedium{testserver.Redis(t, testserver.RedisOptions{}).URL(), redis.Options{Clock: c}}
}

func (m redisMedium) create(t testing.TB) engine.Engine {
	t.Helper()
	if err := redis.Create(context.Background(), m.url, m.options); err != nil {
		t.Fatalf("create a store on Redis: %v", err)
	}
	return m.again(t)
}

func (m redisMedium) again(t testing.TB) engine.Engine {
	t.Helper()
	e, err := redis.Open(context.Background(), m.url, m.options)
	if err != nil {
		t.Fatalf("open the store on Redis: %v", err)
	}
	return e
}
