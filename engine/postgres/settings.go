package postgres

import (
	"context"
	"strconv"

	"github.com/counterfoil/counterfoil/engine"
)

// minVersion is the oldest server that is used, as server_version_num.
const minVersion = 140000

// Settings lists what the guarantee rests on at the server that url names,
// without opening a store: every setting, the right ones too.
func Settings(ctx context.Context, url string, o Options) ([]engine.Setting, error) {
	o.UnsafeDurability = true // they are to be looked at, not used
	e, err := connect(ctx, url, o)
	if err != nil {
		return nil, err
	}
	defer e.pool.Close()
	return e.Settings(ctx)
}

// Settings reads the server's settings again: they can be changed while it runs.
func (e *Engine) Settings(ctx context.Context) ([]engine.Setting, error) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	found, err := settingsOf(ctx, e.pool, e.options)
	return found, unavailable(err)
}

func settingsOf(ctx context.Context, q querier, o Options) ([]engine.Setting, error) {
	var version int
	var fsync, pages, standbys string
	err := q.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_standby_names')`).Scan(&version, &fsync, &pages, &standbys)
	if err != nil {
		return nil, err
	}
	list := []engine.Setting{
		{Name: "server_version_num", Value: strconv.Itoa(version), Want: "at least " + strconv.Itoa(minVersion), Safe: version >= minVersion, Mend: "upgrade the server"},
		{Name: "fsync", Value: fsync, Want: "on", Safe: fsync == "on", Mend: "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()"},
		{Name: "full_page_writes", Value: pages, Want: "on", Safe: pages == "on", Mend: "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()"},
	}
	if o.Replicated {
		list = append(list, engine.Setting{
			Name: "synchronous_standby_names", Value: standbys, Want: "the standbys to wait for", Safe: standbys != "",
			Mend: "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (…)'; SELECT pg_reload_conf()",
		})
	}
	for i := range list {
		if list[i].Safe {
			list[i].Mend = ""
		}
	}
	return list, nil
}
