package postgres

import (
	"context"
	"strconv"

	"github.com/counterfoil/counterfoil/engine"
)

// minVersion is the oldest server that is used, as server_version_num.
const minVersion = 140000

// Settings reads the server's settings that the guarantee rests on.
func (e *Engine) Settings(ctx context.Context) ([]engine.Setting, error) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	var version int
	var fsync, pages, standbys, locks string
	err := e.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_standby_names'), current_setting('max_locks_per_transaction')`).Scan(&version, &fsync, &pages, &standbys, &locks)
	if err != nil {
		return nil, unavailable(err)
	}
	list := []engine.Setting{
		{Name: "server_version_num", Value: strconv.Itoa(version), Want: "at least " + strconv.Itoa(minVersion), Safe: version >= minVersion, Mend: "upgrade the server"},
		{Name: "fsync", Value: fsync, Want: "on", Safe: fsync == "on", Mend: "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()"},
		{Name: "full_page_writes", Value: pages, Want: "on", Safe: pages == "on", Mend: "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()"},
	}
	if e.options.Replicated {
		list = append(list, engine.Setting{
			Name: "synchronous_standby_names", Value: standbys, Want: "the standbys to wait for", Safe: standbys != "",
			Mend: "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (…)'; SELECT pg_reload_conf()",
		})
	}
	return list, nil
}
