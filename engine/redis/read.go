package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// Read is as the contract says. A replica refuses it.
func (e *Engine) Read(ctx context.Context, keys []state.Key) (engine.Snapshot, error) {
	end, err := e.begin(ctx)
	if err != nil {
		return engine.Snapshot{}, err
	}
	defer end()
	if err := engine.CheckKeys(keys); err != nil {
		return engine.Snapshot{}, err
	}
	r, err := e.read(ctx, keys)
	if err != nil {
		return engine.Snapshot{}, err
	}
	return e.dated(r.snap), nil
}

// Now reads the clock of the server that keeps the mark of the store's format.
func (e *Engine) Now(ctx context.Context) (int64, error) {
	snap, err := e.Read(ctx, nil)
	return snap.Now, err
}

// Due is as the contract says.
func (e *Engine) Due(ctx context.Context, scope string, index engine.Index, kind state.Kind, before int64, cursor string, limit int) ([]engine.DueKey, string, error) {
	end, limit, err := e.list(ctx, limit)
	if err != nil {
		return nil, "", err
	}
	defer end()
	if err := index.Check(); err != nil {
		return nil, "", err
	}
	if before < 1 {
		return nil, "", nil
	}
	last := "(" + dueMember(before+1, "") // beyond the largest time it is still above all others as bytes
	members, next, err := e.members(ctx, e.layout.place(scope).due(index, kind), cursor, last, limit)
	if err != nil {
		return nil, "", err
	}
	due := make([]engine.DueKey, len(members))
	for i, m := range members {
		if due[i], err = engine.ParseDueKey(scope, kind, []byte(m)); err != nil {
			return nil, "", unavailable(err)
		}
	}
	return due, next, nil
}

// members lists a sorted set in the order of the bytes, from a member on and up
// to last, as ZRANGEBYLEX writes it. next is the first one that did not fit.
func (e *Engine) members(ctx context.Context, key, from, last string, limit int) (members []string, next string, err error) {
	answer, err := e.servers.do(ctx, func(b rueidis.Builder) rueidis.Completed {
		return b.Zrangebylex().Key(key).Min("["+from).Max(last).Limit(0, int64(limit)+1).Build()
	})
	if err != nil {
		return nil, "", unavailable(err)
	}
	if members, err = answer.AsStrSlice(); err != nil {
		return nil, "", unavailable(err)
	}
	if len(members) > limit {
		members, next = members[:limit], members[limit]
	}
	return members, next, nil
}

// Scan is as the contract says.
func (e *Engine) Scan(ctx context.Context, scope string, kind state.Kind, prefix, cursor string, limit int) ([]engine.Found, string, error) {
	end, limit, err := e.list(ctx, limit)
	if err != nil {
		return nil, "", err
	}
	defer end()
	if scope == "" || !kind.Valid() {
		return nil, "", nil
	}
	list := e.named
	if kind.Hashed() {
		list = e.hashed
	}
	for {
		ids, next, err := list(ctx, scope, kind, prefix, cursor, limit)
		if err != nil {
			return nil, "", err
		}
		found, err := e.found(ctx, scope, kind, ids)
		if err != nil || len(found) > 0 || next == "" {
			return found, next, err
		}
		cursor = next // all of them went between the list and the reading
	}
}

// found reads the records with those IDs that are still there.
func (e *Engine) found(ctx context.Context, scope string, kind state.Kind, ids []string) ([]engine.Found, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	keys := make([]state.Key, len(ids))
	for i, id := range ids {
		keys[i] = state.Key{Scope: scope, Kind: kind, ID: id}
	}
	r, err := e.read(ctx, keys)
	if err != nil {
		return nil, err
	}
	found := make([]engine.Found, 0, len(keys))
	for i, item := range r.snap.Items {
		if item != nil {
			found = append(found, engine.Found{Key: keys[i], Item: item})
		}
	}
	return found, nil
}

// named lists IDs of a kind that has a sorted set of them.
func (e *Engine) named(ctx context.Context, scope string, kind state.Kind, prefix, cursor string, limit int) ([]string, string, error) {
	return e.members(ctx, e.layout.place(scope).ids(kind), max(prefix, cursor), beyond(prefix), limit)
}

// beyond is the end, as ZRANGEBYLEX writes it, of what begins with prefix.
func beyond(prefix string) string {
	end := []byte(prefix)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) == 0 {
		return "+"
	}
	end[len(end)-1]++
	return "(" + string(end)
}

// bucketsAtOnce is how many buckets one call of the list script may look at.
const bucketsAtOnce = 1024

// hashed lists IDs of a kind whose buckets are in the order of the IDs.
func (e *Engine) hashed(ctx context.Context, scope string, kind state.Kind, prefix, cursor string, limit int) (ids []string, next string, err error) {
	first, last := 0, buckets-1
	from := max(prefix, cursor)
	if from != "" {
		first = bucket(kind, from)
	}
	if prefix != "" {
		last = bucket(kind, prefix+"\xff\xff")
	}
	for first <= last && len(ids) <= limit {
		looked, found, err := e.bucketIDs(ctx, e.layout.place(scope), kind, first, last, limit+1-len(ids))
		if err != nil {
			return nil, "", err
		}
		first += looked
		found = slices.DeleteFunc(found, func(id string) bool { return id < from || !strings.HasPrefix(id, prefix) })
		slices.Sort(found)
		ids = append(ids, found...)
	}
	if len(ids) > limit {
		ids, next = ids[:limit], ids[limit]
	}
	return ids, next, nil
}

// bucketIDs gives the IDs in some buckets from first on, and how many buckets
// those were.
func (e *Engine) bucketIDs(ctx context.Context, p place, kind state.Kind, first, last, wanted int) (looked int, ids []string, err error) {
	keys := make([]string, 0, bucketsAtOnce)
	for n := first; n <= last && len(keys) < bucketsAtOnce; n++ {
		keys = append(keys, p.bucket(kind, n))
	}
	answer, err := e.servers.run(ctx, listScript, keys, []string{fmt.Sprint(wanted)})
	if err != nil {
		return 0, nil, unavailable(err)
	}
	parts, err := answer.ToArray()
	if err != nil || len(parts) != 2 {
		return 0, nil, unavailable(errAnswer)
	}
	count, err1 := parts[0].AsInt64()
	ids, err2 := parts[1].AsStrSlice()
	if err1 != nil || err2 != nil || count < 1 {
		return 0, nil, unavailable(errAnswer)
	}
	return int(count), ids, nil
}

// Scopes is as the contract says: it asks for the names under each hash tag.
func (e *Engine) Scopes(ctx context.Context, cursor string, limit int) ([]string, string, error) {
	end, limit, err := e.list(ctx, limit)
	if err != nil {
		return nil, "", err
	}
	defer end()
	names, err := e.servers.names(ctx, e.layout, cursor, limit+1)
	if err != nil {
		return nil, "", unavailable(err)
	}
	slices.Sort(names)
	if len(names) > limit {
		return names[:limit], names[limit], nil
	}
	return names, "", nil
}

// list begins a listing.
func (e *Engine) list(ctx context.Context, limit int) (end func(), page int, err error) {
	if end, err = e.begin(ctx); err != nil {
		return nil, 0, err
	}
	if page, err = engine.Page(limit); err != nil {
		end()
		return nil, 0, err
	}
	return end, page, nil
}
