package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

const (
	clockSQL = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
	nowSQL   = "SELECT " + clockSQL
	// The timeline changes when a standby is promoted. A standby has none yet and
	// refuses: nothing is ever read from one.
	timelineSQL = "left(pg_walfile_name(pg_current_wal_lsn()), 8)"
	// Clock and timeline are asked once, not for each row. The inner select is not
	// pulled up, so that each key is looked up in the primary key's index, whatever
	// the planner believes about the table.
	readSQL = `SELECT (SELECT ` + clockSQL + `), (SELECT ` + timelineSQL + `), k.n, r.version, r.expiry, r.lease, r.data
		FROM unnest($2::smallint[], $3::bytea[]) WITH ORDINALITY AS k(kind, id, n)
		LEFT JOIN LATERAL (
			SELECT r.version, r.expiry, r.lease, r.data FROM counterfoil.records r WHERE r.scope = $1 AND r.kind = k.kind AND r.id = k.id OFFSET 0
		) r ON true`
	scanSQL = `SELECT id, version, expiry, lease, data FROM counterfoil.records
		WHERE scope = $1 AND kind = $2 AND id >= $3 AND id < $4 ORDER BY id LIMIT $5`
	dueExpirySQL = `SELECT expiry, id FROM counterfoil.records
		WHERE scope = $1 AND kind = $2 AND expiry > 0 AND expiry <= $3 AND (expiry, id) >= ($4, $5) ORDER BY expiry, id LIMIT $6`
	dueLeaseSQL = `SELECT lease, id FROM counterfoil.records
		WHERE scope = $1 AND kind = $2 AND lease > 0 AND lease <= $3 AND (lease, id) >= ($4, $5) ORDER BY lease, id LIMIT $6`
	// Each step looks up the next scope in the index: no scan over records.
	scopesSQL = `WITH RECURSIVE s(scope) AS (
			(SELECT scope FROM counterfoil.records WHERE scope >= $1 ORDER BY scope LIMIT 1)
			UNION ALL
			SELECT (SELECT r.scope FROM counterfoil.records r WHERE r.scope > s.scope ORDER BY r.scope LIMIT 1) FROM s WHERE s.scope IS NOT NULL
		) SELECT s.scope FROM s JOIN counterfoil.records r ON r.scope = s.scope AND r.kind = $2 AND r.id = $3 ORDER BY s.scope LIMIT $4`
)

func (e *Engine) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.options.ReadTimeout)
}

// Now asks the server's clock.
func (e *Engine) Now(ctx context.Context) (int64, error) {
	switch {
	case e.closed.Load():
		return 0, engine.ErrClosed
	case e.options.Clock != nil:
		return e.options.now(), ctx.Err()
	}
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	var now int64
	err := e.pool.QueryRow(ctx, nowSQL).Scan(&now)
	return now, unavailable(err)
}

// reader is the pool, or a connection of it.
type reader interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Read is as the contract says.
func (e *Engine) Read(ctx context.Context, keys []state.Key) (engine.Snapshot, error) {
	return e.read(ctx, e.pool, keys)
}

// read takes one statement, so one snapshot.
func (e *Engine) read(ctx context.Context, from reader, keys []state.Key) (engine.Snapshot, error) {
	snap := engine.Snapshot{Keys: keys, Items: make([]*state.Sealed, len(keys)), Now: e.options.now()}
	if err := engine.CheckKeys(keys); err != nil {
		return snap, err
	}
	if len(keys) == 0 {
		now, err := e.Now(ctx)
		snap.Now = now
		return snap, err
	}
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	kinds, ids := make([]int16, len(keys)), make([][]byte, len(keys))
	for i, k := range keys {
		kinds[i], ids[i] = int16(k.Kind), []byte(k.ID)
	}
	rows, err := from.Query(ctx, readSQL, []byte(keys[0].Scope), kinds, ids)
	if err != nil {
		return snap, unavailable(err)
	}
	var now, n int64
	var timeline string
	var f fields
	_, err = pgx.ForEachRow(rows, append([]any{&now, &timeline, &n}, f.targets()...), func() error {
		snap.Lineage = lineageOf(timeline)
		if e.options.Clock == nil {
			snap.Now = now
		}
		if f.version == nil {
			return nil
		}
		item, err := f.item()
		snap.Items[n-1] = item
		return err
	})
	return snap, unavailable(err)
}

// fields are the columns of a record; all are null where there is none.
type fields struct {
	version       []byte
	expiry, lease *int64
	data          []byte
}

func (f *fields) targets() []any { return []any{&f.version, &f.expiry, &f.lease, &f.data} }

func (f *fields) item() (*state.Sealed, error) {
	item := &state.Sealed{Expiry: *f.expiry, Lease: *f.lease, Data: append([]byte(nil), f.data...)}
	if len(f.version) != len(item.Version) {
		return nil, fmt.Errorf("%w: a version has %d bytes", engine.ErrForeign, len(f.version))
	}
	copy(item.Version[:], f.version)
	return item, nil
}

// Scan is as the contract says. The cursor is the ID to go on from.
func (e *Engine) Scan(ctx context.Context, scope string, kind state.Kind, prefix, cursor string, limit int) ([]engine.Found, string, error) {
	limit, err := engine.Page(limit)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	rows, err := e.pool.Query(ctx, scanSQL, []byte(scope), int16(kind), []byte(max(prefix, cursor)), after(prefix), limit+1)
	if err != nil {
		return nil, "", unavailable(err)
	}
	var page []engine.Found
	var id []byte
	var f fields
	_, err = pgx.ForEachRow(rows, append([]any{&id}, f.targets()...), func() error {
		item, err := f.item()
		page = append(page, engine.Found{Key: state.Key{Scope: scope, Kind: kind, ID: string(id)}, Item: item})
		return err
	})
	if err != nil {
		return nil, "", unavailable(err)
	}
	next := ""
	if len(page) > limit {
		next, page = page[limit].Key.ID, page[:limit]
	}
	return page, next, nil
}

// lineageOf names the history that a server is on by its timeline, and the one
// before it: a promoted standby goes on from the timeline of its primary.
func lineageOf(timeline string) engine.Lineage {
	l := engine.Lineage{ID: timeline}
	if n, err := strconv.ParseUint(timeline, 16, 32); err == nil && n > 1 {
		l.Previous = fmt.Sprintf("%08X", n-1)
	}
	return l
}

// after is the first ID behind all that begin with prefix.
func after(prefix string) []byte {
	end := []byte(prefix)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) == 0 {
		return bytes.Repeat([]byte{0xff}, state.MaxIDBytes+1)
	}
	end[len(end)-1]++
	return end
}

// Due is as the contract says. The cursor is the time and ID to go on from.
func (e *Engine) Due(ctx context.Context, scope string, index engine.Index, kind state.Kind, before int64, cursor string, limit int) ([]engine.DueKey, string, error) {
	if err := index.Check(); err != nil {
		return nil, "", err
	}
	limit, err := engine.Page(limit)
	if err != nil {
		return nil, "", err
	}
	from := engine.DueKey{}
	if cursor != "" {
		if from, err = engine.ParseDueKey(scope, kind, []byte(cursor)); err != nil {
			return nil, "", err
		}
	}
	sql := dueExpirySQL
	if index == engine.ByLease {
		sql = dueLeaseSQL
	}
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	rows, err := e.pool.Query(ctx, sql, []byte(scope), int16(kind), before, from.At, []byte(from.Key.ID), limit+1)
	if err != nil {
		return nil, "", unavailable(err)
	}
	var page []engine.DueKey
	var at int64
	var id []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &id}, func() error {
		page = append(page, engine.DueKey{Key: state.Key{Scope: scope, Kind: kind, ID: string(id)}, At: at})
		return nil
	})
	if err != nil {
		return nil, "", unavailable(err)
	}
	next := ""
	if len(page) > limit {
		last := page[limit]
		next = string(append(binary.BigEndian.AppendUint64(nil, uint64(last.At)), last.Key.ID...)) //nolint:gosec // above 0.
		page = page[:limit]
	}
	return page, next, nil
}

// Scopes is as the contract says. The cursor is the scope to go on from.
func (e *Engine) Scopes(ctx context.Context, cursor string, limit int) ([]string, string, error) {
	limit, err := engine.Page(limit)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	rows, err := e.pool.Query(ctx, scopesSQL, []byte(cursor), int16(state.KindScope), []byte(state.ScopeKey("").ID), limit+1)
	if err != nil {
		return nil, "", unavailable(err)
	}
	names, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var name []byte
		err := row.Scan(&name)
		return string(name), err
	})
	if err != nil {
		return nil, "", unavailable(err)
	}
	next := ""
	if len(names) > limit {
		next, names = names[limit], names[:limit]
	}
	return names, next, nil
}
