package memory

import (
	"strings"
	"sync"

	"github.com/google/btree"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// records is what the handles share: the records by key, and what lists them
// in order. Items are never changed in place.
type records struct {
	turn sync.Mutex // held by a transaction that met several conflicts; for speed only

	mu     sync.RWMutex
	byKey  map[state.Key]*state.Sealed
	keys   *btree.BTreeG[string] // encoded keys
	due    map[engine.Index]*btree.BTreeG[string]
	scopes *btree.BTreeG[string] // names of scopes that have a scope record
}

func newRecords() *records {
	ordered := func() *btree.BTreeG[string] { return btree.NewOrderedG[string](32) }
	return &records{
		byKey:  map[state.Key]*state.Sealed{},
		keys:   ordered(),
		due:    map[engine.Index]*btree.BTreeG[string]{engine.ByExpiry: ordered(), engine.ByLease: ordered()},
		scopes: ordered(),
	}
}

func (r *records) read(keys []state.Key) []*state.Sealed {
	items := make([]*state.Sealed, len(keys))
	r.mu.RLock()
	defer r.mu.RUnlock()
	for i, k := range keys {
		items[i] = r.byKey[k]
	}
	return items
}

// unchanged reports whether every key still has the version that was read, or
// is still absent. The caller holds mu.
func (r *records) unchanged(snap engine.Snapshot) bool {
	for i, k := range snap.Keys {
		was, is := snap.Items[i], r.byKey[k]
		switch {
		case (was == nil) != (is == nil):
			return false
		case was != nil && was.Version != is.Version:
			return false
		}
	}
	return true
}

// put writes or, with a nil item, deletes one record and its index entries. The
// caller holds mu.
func (r *records) put(k state.Key, item *state.Sealed) {
	for index, tree := range r.due {
		if at := index.Time(r.byKey[k]); at > 0 {
			tree.Delete(dueEntry(k, at))
		}
		if at := index.Time(item); at > 0 {
			tree.ReplaceOrInsert(dueEntry(k, at))
		}
	}
	encoded := string(k.Append(nil))
	if item == nil {
		delete(r.byKey, k)
		r.keys.Delete(encoded)
	} else {
		r.byKey[k] = item
		r.keys.ReplaceOrInsert(encoded)
	}
	if k == state.ScopeKey(k.Scope) {
		if item == nil {
			r.scopes.Delete(k.Scope)
		} else {
			r.scopes.ReplaceOrInsert(k.Scope)
		}
	}
}

func dueEntry(k state.Key, at int64) string {
	return string(engine.DueKey{Key: k, At: at}.Append(nil))
}

func (r *records) listDue(scope string, index engine.Index, kind state.Kind, before int64, cursor string, limit int) (due []engine.DueKey, next string, err error) {
	prefix := string(engine.AppendDuePrefix(nil, scope, kind))
	r.mu.RLock()
	defer r.mu.RUnlock()
	r.due[index].AscendGreaterOrEqual(prefix+cursor, func(entry string) bool {
		rest, ok := strings.CutPrefix(entry, prefix)
		if !ok {
			return false
		}
		var d engine.DueKey
		if d, err = engine.ParseDueKey(scope, kind, []byte(rest)); err != nil || d.At > before {
			return false
		}
		if len(due) == limit {
			next = rest
			return false
		}
		due = append(due, d)
		return true
	})
	return due, next, err
}

func (r *records) scan(scope string, kind state.Kind, prefix, cursor string, limit int) (found []engine.Found, next string) {
	all := string(engine.AppendDuePrefix(nil, scope, kind)) // what all keys of the kind begin with
	r.mu.RLock()
	defer r.mu.RUnlock()
	r.keys.AscendGreaterOrEqual(all+max(prefix, cursor), func(encoded string) bool {
		id, ok := strings.CutPrefix(encoded, all)
		if !ok || !strings.HasPrefix(id, prefix) {
			return false
		}
		if len(found) == limit {
			next = id
			return false
		}
		k := state.Key{Scope: scope, Kind: kind, ID: id}
		found = append(found, engine.Found{Key: k, Item: r.byKey[k]})
		return true
	})
	return found, next
}

func (r *records) listScopes(cursor string, limit int) (scopes []string, next string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	r.scopes.AscendGreaterOrEqual(cursor, func(scope string) bool {
		if len(scopes) == limit {
			next = scope
			return false
		}
		scopes = append(scopes, scope)
		return true
	})
	return scopes, next
}
