package pebble

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// Read is as the contract says.
func (e *Engine) Read(ctx context.Context, keys []state.Key) (engine.Snapshot, error) {
	if err := engine.CheckKeys(keys); err != nil {
		return engine.Snapshot{}, err
	}
	if err := e.latch.enter(ctx); err != nil {
		return engine.Snapshot{}, err
	}
	defer e.leave()
	snap := engine.Snapshot{Now: e.now(), Keys: keys, Items: make([]*state.Sealed, len(keys))}
	if err := e.readAll(keys, snap.Items); err != nil {
		return engine.Snapshot{}, err
	}
	return snap, e.latch.check()
}

// readAll reads by one iterator, which sees one moment; a single key needs none.
func (e *Engine) readAll(keys []state.Key, items []*state.Sealed) (err error) {
	if len(keys) == 0 {
		return nil
	}
	if len(keys) == 1 {
		items[0], err = e.get(appendDataKey(nil, keys[0]))
		return err
	}
	iter, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{dataSpace}, UpperBound: []byte{dataSpace + 1}})
	if err != nil {
		return unreadable(err)
	}
	defer func() { err = errors.Join(err, unreadable(iter.Close())) }()
	var key []byte
	for i, k := range keys {
		key = appendDataKey(key[:0], k)
		if iter.SeekPrefixGE(key) && string(iter.Key()) == string(key) {
			value, err := iter.ValueAndErr()
			if err != nil {
				return unreadable(err)
			}
			items[i] = parseOrDamaged(value)
		} else if err := iter.Error(); err != nil {
			return unreadable(err)
		}
	}
	return nil
}

func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: read: %w", engine.ErrUnavailable, err)
}

// Due is as the contract says.
func (e *Engine) Due(ctx context.Context, scope string, index engine.Index, kind state.Kind, before int64, cursor string, limit int) (due []engine.DueKey, next string, err error) {
	if err := index.Check(); err != nil {
		return nil, "", err
	}
	first := int64(math.MaxInt64)
	if cursor == "" {
		l := dueList{scope, index, kind}
		cursor = cursorAt(e.horizons.begin(l))
		defer func() { e.horizons.end(l, first, err == nil) }()
	}
	prefix := engine.AppendDuePrefix([]byte{indexSpace(index)}, scope, kind)
	next, err = e.list(ctx, prefix, "", cursor, limit, func(rest, _ []byte) (bool, error) {
		d, err := engine.ParseDueKey(scope, kind, rest)
		if err != nil {
			return false, err
		}
		if first = min(first, d.At); d.At > before {
			return false, nil
		}
		due = append(due, d)
		return true, nil
	})
	return due, next, err
}

// Scan is as the contract says.
func (e *Engine) Scan(ctx context.Context, scope string, kind state.Kind, prefix, cursor string, limit int) (found []engine.Found, next string, err error) {
	all := engine.AppendDuePrefix([]byte{dataSpace}, scope, kind) // what all keys of the kind begin with
	next, err = e.list(ctx, all, prefix, cursor, limit, func(rest, value []byte) (bool, error) {
		k := state.Key{Scope: scope, Kind: kind, ID: string(rest)}
		found = append(found, engine.Found{Key: k, Item: parseOrDamaged(value)})
		return true, nil
	})
	return found, next, err
}

// Scopes is as the contract says.
func (e *Engine) Scopes(ctx context.Context, cursor string, limit int) (scopes []string, next string, err error) {
	next, err = e.list(ctx, []byte{scopeSpace}, "", cursor, limit, func(rest, _ []byte) (bool, error) {
		scopes = append(scopes, string(rest))
		return true, nil
	})
	return scopes, next, err
}

// list calls take with what follows space in the keys that begin with space
// and prefix, and their values, from the cursor on, until take declines or
// limit are taken. The cursor is what follows space in the first key of the
// next page.
func (e *Engine) list(ctx context.Context, space []byte, prefix, cursor string, limit int, take func(rest, value []byte) (bool, error)) (next string, err error) {
	if limit, err = engine.Page(limit); err != nil {
		return "", err
	}
	if err := e.latch.enter(ctx); err != nil {
		return "", err
	}
	defer e.leave()
	space = space[:len(space):len(space)]
	iter, err := e.db.NewIter(&pebble.IterOptions{
		LowerBound: append(space, max(prefix, cursor)...),
		UpperBound: after(append(space, prefix...)),
	})
	if err != nil {
		return "", unreadable(err)
	}
	defer func() { err = errors.Join(err, unreadable(iter.Close()), e.latch.check()) }()
	taken := 0
	for ok := iter.First(); ok; ok = iter.Next() {
		rest := iter.Key()[len(space):]
		value, err := iter.ValueAndErr()
		if err != nil {
			return "", unreadable(err)
		}
		if taken == limit {
			next = string(rest)
			break
		}
		if more, err := take(rest, value); err != nil || !more {
			return "", err
		}
		taken++
	}
	return next, unreadable(iter.Error())
}
