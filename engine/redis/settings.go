package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/counterfoil/counterfoil/engine"
)

// errHidden: the servers do not show their settings.
var errHidden = errors.New("redis: the server does not let its settings be read (CONFIG GET); permit it to the user, or declare a managed service that hides them by config=hidden in the URL")

// settings are what every node must have: with any other value a crash or a
// full memory can lose or evict what was acknowledged, or hide that it did.
var needed = []struct{ name, want string }{
	{"appendonly", "yes"},
	{"appendfsync", "always"},
	{"no-appendfsync-on-rewrite", "no"},
	{"maxmemory-policy", "noeviction"},
	{"aof-load-truncated", "no"},
}

// Settings lists what the guarantee rests on at the servers that url names,
// without opening a store: every setting of every node, the right ones too.
func Settings(ctx context.Context, url string, o Options) ([]engine.Setting, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	s, err := connect(ctx, t, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	return s.settings(ctx)
}

// Settings reads the settings of every node again: they can be changed while
// servers run.
func (e *Engine) Settings(ctx context.Context) ([]engine.Setting, error) {
	end, err := e.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return e.servers.settings(ctx)
}

// settings asks every node, in the order of their addresses.
func (s *servers) settings(ctx context.Context) ([]engine.Setting, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.ReplyTimeout)
	defer cancel()
	nodes := s.client.Nodes()
	var all []engine.Setting
	for _, address := range slices.Sorted(maps.Keys(nodes)) {
		some, err := s.checkNode(ctx, address, nodes[address])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", address, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

func (s *servers) checkNode(ctx context.Context, address string, node rueidis.Client) ([]engine.Setting, error) {
	info, err := infoOf(ctx, node)
	if err != nil {
		return nil, unavailable(err)
	}
	oldest := "7.0"
	if s.options.Replicas > 0 {
		oldest = "7.2" // WAITAOF
	}
	version := info["redis_version"] // Valkey gives the version of Redis that it is compatible with
	if !atLeast(version, oldest) {
		return nil, fmt.Errorf("redis: the server is version %s, and %s is needed", version, oldest)
	}
	if !s.cluster && info["role"] != "master" {
		return nil, fmt.Errorf("%w: the server is a replica; name its primary", engine.ErrUnavailable)
	}
	values, err := configOf(ctx, node)
	hidden := err != nil
	if hidden {
		if reply, ok := rueidis.IsRedisErr(err); !ok || reply.IsLoading() {
			return nil, unavailable(err)
		}
		if !s.options.ManagedConfig {
			return nil, errHidden
		}
		values = map[string]string{"maxmemory-policy": info["maxmemory_policy"], "appendonly": onOff(info["aof_enabled"])}
	}
	found := make([]engine.Setting, 0, len(needed))
	for _, x := range needed {
		c := engine.Setting{Where: address, Name: x.name, Value: values[x.name], Want: x.want, Safe: values[x.name] == x.want}
		switch {
		case hidden && c.Value == "":
			c.Value, c.Safe = takenOnTrust, true
		case !c.Safe:
			c.Mend = fmt.Sprintf("CONFIG SET %s %s, then CONFIG REWRITE", x.name, x.want)
		}
		found = append(found, c)
	}
	return found, nil
}

func infoOf(ctx context.Context, node rueidis.Client) (map[string]string, error) {
	text, err := node.Do(ctx, node.B().Info().Build()).ToString()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

func configOf(ctx context.Context, node rueidis.Client) (map[string]string, error) {
	names := make([]string, len(needed))
	for i, x := range needed {
		names[i] = x.name
	}
	return node.Do(ctx, node.B().ConfigGet().Parameter(names...).Build()).AsStrMap()
}

func onOff(enabled string) string {
	switch enabled {
	case "1":
		return "yes"
	case "0":
		return "no"
	}
	return ""
}

// atLeast compares the first two numbers of a version.
func atLeast(version, oldest string) bool {
	numbers := func(v string) (n [2]int) {
		for i, part := range strings.SplitN(v, ".", 3) {
			if i < 2 {
				n[i], _ = strconv.Atoi(part) // what is no number is 0, which is too old
			}
		}
		return n
	}
	a, b := numbers(version), numbers(oldest)
	return a[0] > b[0] || a[0] == b[0] && a[1] >= b[1]
}

// takenOnTrust is the value of a setting that a managed service hides.
const takenOnTrust = "hidden, taken on the service's word"

// accept refuses unsafe settings, unless they were accepted explicitly, and
// lists what the guarantee must say of the settings.
func (s *servers) accept(found []engine.Setting) (weak []string, err error) {
	if weak, err = engine.Accept(found, s.options.UnsafeDurability); err != nil {
		return nil, err
	}
	for _, x := range found {
		if x.Value == takenOnTrust {
			weak = append(weak, fmt.Sprintf("%s on %s is %s", x.Name, x.Where, x.Value))
		}
	}
	return weak, nil
}

// trust makes sure that the settings were checked since the server of a lineage
// started: with each start the lineage changes, and the settings may have.
func (e *Engine) trust(ctx context.Context, lineage string) error {
	e.mu.Lock()
	known := e.trusted[lineage]
	e.mu.Unlock()
	if known {
		return nil
	}
	found, err := e.servers.settings(ctx)
	if err != nil {
		return err
	}
	if _, err := e.servers.accept(found); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.trusted) >= maxTrusted {
		clear(e.trusted)
	}
	e.trusted[lineage] = true
	return nil
}

// maxTrusted bounds how many lineages are remembered.
const maxTrusted = 1024
