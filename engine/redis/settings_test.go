package redis

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/testserver"
)

// weaker has, for each setting that is needed, a value that is not.
var weaker = map[string]string{
	"appendonly":                "no",
	"appendfsync":               "everysec",
	"no-appendfsync-on-rewrite": "yes",
	"maxmemory-policy":          "allkeys-lru",
	"aof-load-truncated":        "yes",
}

func TestEachUnsafeSettingIsRefusedWithTheCommandThatMendsIt(t *testing.T) {
	t.Parallel()
	for _, binary := range []string{"redis-server", "valkey-server"} {
		server := testserver.Redis(t, testserver.RedisOptions{Binary: binary})
		must(t, Create(t.Context(), server.URL(), Options{}))
		for _, x := range needed {
			server.Must("CONFIG", "SET", x.name, weaker[x.name])
			_, err := Open(t.Context(), server.URL(), Options{})
			mend := fmt.Sprintf("CONFIG SET %s %s", x.name, x.want)
			if !errors.Is(err, engine.ErrUnsafe) || !strings.Contains(err.Error(), mend) || !strings.Contains(err.Error(), server.Addr()) {
				t.Errorf("%s with %s %s: %v, want ErrUnsafe with %q and the server", binary, x.name, weaker[x.name], err, mend)
			}
			if err := Create(t.Context(), server.URL(), Options{}); !errors.Is(err, engine.ErrUnsafe) {
				t.Errorf("%s with %s %s: Create: %v, want ErrUnsafe", binary, x.name, weaker[x.name], err)
			}
			e := open(t, server.URL(), Options{UnsafeDurability: true})
			if list := e.Guarantee().Unsafe; len(list) != 1 || !strings.Contains(list[0], x.name) {
				t.Errorf("%s with %s %s accepted: the guarantee lists %q", binary, x.name, weaker[x.name], list)
			}
			server.Must("CONFIG", "SET", x.name, x.want)
		}
		open(t, server.URL(), Options{})
	}
}

func TestSettingsListsEveryNodeForTheOperator(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, 3, 0, testserver.RedisOptions{})
	bad := cluster.Masters[1]
	bad.Must("CONFIG", "SET", "appendfsync", "no")
	url := "redis://" + strings.Join(cluster.Addrs(), ",")
	found, err := Settings(t.Context(), url, Options{})
	must(t, err)
	if len(found) != 3*len(needed) {
		t.Errorf("%d settings, want %d of 3 nodes", len(found), 3*len(needed))
	}
	for _, s := range found {
		if safe := s.Where != bad.Addr() || s.Name != "appendfsync"; s.Safe != safe {
			t.Errorf("%+v, want safe %v", s, safe)
		}
	}
	if _, err := Open(t.Context(), url, Options{}); !errors.Is(err, engine.ErrUnsafe) || !strings.Contains(err.Error(), bad.Addr()) {
		t.Errorf("Open with one unsafe node: %v, want ErrUnsafe naming %s", err, bad.Addr())
	}
}

func TestHiddenSettingsMustBeDeclared(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{Config: []string{`rename-command CONFIG ""`}})
	if err := Create(t.Context(), server.URL(), Options{}); !errors.Is(err, errHidden) {
		t.Fatalf("Create: %v, want %v", err, errHidden)
	}
	managed := Options{ManagedConfig: true}
	must(t, Create(t.Context(), server.URL(), managed))
	e := open(t, server.URL(), managed)
	// What INFO shows is checked, the rest is said to be taken on trust.
	list := e.Guarantee().Unsafe
	for _, x := range needed {
		hidden := x.name != "appendonly" && x.name != "maxmemory-policy"
		if got := slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, x.name+" on") }); got != hidden {
			t.Errorf("the guarantee lists %q, want %s in it: %v", list, x.name, hidden)
		}
	}
	evicting := testserver.Redis(t, testserver.RedisOptions{Config: []string{`rename-command CONFIG ""`, "maxmemory-policy allkeys-lru"}})
	if err := Create(t.Context(), evicting.URL(), managed); !errors.Is(err, engine.ErrUnsafe) {
		t.Errorf("Create on a service that evicts: %v, want ErrUnsafe", err)
	}
}

func TestSettingsAreCheckedAgainWhenTheServerWasRestarted(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.RedisOptions{})
	must(t, Create(t.Context(), server.URL(), Options{}))
	e := open(t, server.URL(), Options{})
	must(t, increment(t.Context(), e, key("k")))
	server.Must("CONFIG", "SET", "appendfsync", "everysec")
	server.Must("CONFIG", "REWRITE")
	server.Restart()
	eventually(t, "the weaker setting is noticed", func() error {
		if err := increment(t.Context(), e, key("k")); !errors.Is(err, engine.ErrUnsafe) {
			return fmt.Errorf("increment: %w", errors.Join(errors.New("want ErrUnsafe"), err))
		}
		return nil
	})
	server.Must("CONFIG", "SET", "appendfsync", "always")
	must(t, increment(t.Context(), e, key("k")))
}
