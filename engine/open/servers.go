package open

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/engine/redis"
)

// wish is what a URL says about the guarantee.
type wish struct {
	replicated bool
	// Of Redis alone: how many replicas must have a change on disk, and whether a managed service hides its settings.
	replicas int
	hidden   bool
}

const maxReplicas = 16

// wishOf takes the parameters about the guarantee out of a URL, which is left as it is otherwise: a list of several hosts is
// nothing that net/url reads. Its errors repeat nothing of the URL.
func wishOf(location string) (rest string, w wish, err error) {
	rest, query, ok := strings.Cut(location, "?")
	if !ok {
		return location, w, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", w, errors.New("the parameters of the URL cannot be read")
	}
	isRedis := strings.HasPrefix(location, "redis")
	for _, name := range []string{"guarantee", "replicas", "config"} {
		if len(values[name]) > 1 {
			return "", w, fmt.Errorf("the URL has the parameter %s twice", name)
		}
	}
	switch values.Get("guarantee") {
	case "replicated":
		w.replicated, w.replicas = true, 1
	case "", "node":
	default:
		return "", w, errors.New("guarantee: want node or replicated")
	}
	if values.Has("replicas") {
		w.replicas, err = strconv.Atoi(values.Get("replicas"))
		if err != nil || !w.replicated || !isRedis || w.replicas < 1 || w.replicas > maxReplicas {
			return "", w, fmt.Errorf("replicas: want a number from 1 to %d, for Redis and beside guarantee=replicated", maxReplicas)
		}
	}
	if values.Has("config") {
		if w.hidden = isRedis && values.Get("config") == "hidden"; !w.hidden {
			return "", w, errors.New("config: want hidden, for a managed Redis that hides its settings")
		}
	}
	values.Del("config")
	values.Del("guarantee")
	values.Del("replicas")
	if len(values) > 0 {
		rest += "?" + values.Encode()
	}
	return rest, w, nil
}

func parseServer(location string) (string, error) {
	if _, after, _ := strings.Cut(location, ":"); !strings.HasPrefix(after, "//") {
		return "", errors.New("want // and a host after the colon")
	}
	_, _, err := wishOf(location)
	return location, err
}

// redisOf gives what the engine takes of a URL that was parsed.
func redisOf(target string, o Options) (string, redis.Options, error) {
	rest, w, err := wishOf(target)
	return rest, redis.Options{UnsafeDurability: o.UnsafeDurability, Replicas: w.replicas, ManagedConfig: w.hidden}, err
}

func createRedis(ctx context.Context, target string, o Options) error {
	rest, options, err := redisOf(target, o)
	if err != nil {
		return err
	}
	return redis.Create(ctx, rest, options)
}

func openRedis(ctx context.Context, target string, o Options) (engine.Engine, error) {
	rest, options, err := redisOf(target, o)
	if err != nil {
		return nil, err
	}
	e, err := redis.Open(ctx, rest, options)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func settingsOfRedis(ctx context.Context, target string, o Options) ([]engine.Setting, error) {
	rest, options, err := redisOf(target, o)
	if err != nil {
		return nil, err
	}
	return redis.Settings(ctx, rest, options)
}

// postgresOf gives what the engine takes of a URL that was parsed.
func postgresOf(target string, o Options) (string, postgres.Options, error) {
	rest, w, err := wishOf(target)
	return rest, postgres.Options{UnsafeDurability: o.UnsafeDurability, Replicated: w.replicated}, err
}

func createPostgres(ctx context.Context, target string, o Options) error {
	rest, options, err := postgresOf(target, o)
	if err != nil {
		return err
	}
	return postgres.Create(ctx, rest, options)
}

func migratePostgres(ctx context.Context, target string, o Options) (bool, error) {
	rest, options, err := postgresOf(target, o)
	if err != nil {
		return false, err
	}
	return postgres.Migrate(ctx, rest, options)
}

func openPostgres(ctx context.Context, target string, o Options) (engine.Engine, error) {
	rest, options, err := postgresOf(target, o)
	if err != nil {
		return nil, err
	}
	e, err := postgres.Open(ctx, rest, options)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func settingsOfPostgres(ctx context.Context, target string, o Options) ([]engine.Setting, error) {
	rest, options, err := postgresOf(target, o)
	if err != nil {
		return nil, err
	}
	return postgres.Settings(ctx, rest, options)
}
