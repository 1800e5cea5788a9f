package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// rows are arguments of counterfoil.swap, a slice for each column of several
// records.
type rows struct {
	kinds    []int16
	ids      [][]byte
	versions [][]byte
	expiries []int64
	leases   []int64
	datas    [][]byte
}

func newRows(n int) *rows {
	return &rows{
		kinds: make([]int16, 0, n), ids: make([][]byte, 0, n), versions: make([][]byte, 0, n),
		expiries: make([]int64, 0, n), leases: make([]int64, 0, n), datas: make([][]byte, 0, n),
	}
}

func (r *rows) add(c engine.Change) {
	r.kinds = append(r.kinds, int16(c.Key.Kind))
	r.ids = append(r.ids, []byte(c.Key.ID))
	if c.Item == nil {
		return
	}
	r.versions = append(r.versions, c.Item.Version[:])
	r.expiries = append(r.expiries, c.Item.Expiry)
	r.leases = append(r.leases, c.Item.Lease)
	r.datas = append(r.datas, append([]byte{}, c.Item.Data...)) // nil would be NULL
}

// lock is one lock on the absence of a key.
type lock struct {
	hash  int64
	alone bool
}

// swapOf makes the call of counterfoil.swap.
func (e *Engine) swapOf(snap engine.Snapshot, plan engine.Plan) (sql string, args []any, err error) {
	positions, err := engine.Positions(snap.Keys, plan.Changes)
	if err != nil {
		return "", nil, err
	}
	change := make(map[int]engine.Change, len(positions))
	for i, p := range positions {
		change[p] = plan.Changes[i]
	}
	order := make([]int, len(snap.Keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return snap.Keys[a].Compare(snap.Keys[b]) })

	n := len(order)
	kinds, ids, seen, written := make([]int16, 0, n), make([][]byte, 0, n), make([][]byte, 0, n), make([]bool, 0, n)
	var locks []lock
	created, changed, deleted := newRows(len(change)), newRows(8), newRows(0)
	for _, at := range order {
		key, item := snap.Keys[at], snap.Items[at]
		c, isWritten := change[at]
		if item == nil {
			locks = append(locks, lock{hashOf(key), isWritten && c.Item != nil})
		}
		if item == nil && isWritten && c.Item != nil {
			created.add(c)
			continue
		}
		var version []byte
		if item != nil {
			version = item.Version[:]
		}
		kinds, ids, seen, written = append(kinds, int16(key.Kind)), append(ids, []byte(key.ID)), append(seen, version), append(written, isWritten)
		switch {
		case !isWritten || item == nil && c.Item == nil:
		case c.Item == nil:
			deleted.add(c)
		default:
			changed.add(c)
		}
	}
	hashes, alone := flatten(snap.Keys[0].Scope, locks)
	var now any
	if e.options.Clock != nil {
		now = e.options.now()
	}
	return swapSQL, []any{
		[]byte(snap.Keys[0].Scope), kinds, ids, seen, written, hashes, alone,
		created.kinds, created.ids, created.versions, created.expiries, created.leases, created.datas,
		changed.kinds, changed.ids, changed.versions, changed.expiries, changed.leases, changed.datas,
		deleted.kinds, deleted.ids, snap.Lineage.ID, plan.NotAfter, now, turnOf(snap.Keys[0].Scope),
	}, nil
}

// maxLocks bounds the advisory locks of a transaction. With the few on tables it
// stays below 64, the default of max_locks_per_transaction, so that the server
// has room for the locks of all its connections.
const maxLocks = 40

// flatten orders locks by their hash; of two on one hash the stronger counts.
// Before them comes the lock on the absence of every key of the scope: shared,
// or alone and then in place of too many others.
func flatten(scope string, locks []lock) (hashes []int64, alone []bool) {
	if len(locks) == 0 {
		return []int64{}, []bool{}
	}
	whole := hashOf(state.Key{Scope: scope})
	if len(locks) > maxLocks {
		return []int64{whole}, []bool{true}
	}
	slices.SortFunc(locks, func(a, b lock) int {
		switch {
		case a.hash != b.hash && a.hash < b.hash:
			return -1
		case a.hash != b.hash:
			return 1
		case a.alone == b.alone:
			return 0
		case a.alone:
			return -1
		}
		return 1
	})
	hashes, alone = []int64{whole}, []bool{false}
	for i, l := range locks {
		if i > 0 && locks[i-1].hash == l.hash || l.hash == whole {
			continue
		}
		hashes, alone = append(hashes, l.hash), append(alone, l.alone)
	}
	return hashes, alone
}

// hashOf names the lock on a key's absence. Two keys of one hash only wait for
// each other. The key without kind and ID stands for all of its scope.
func hashOf(key state.Key) int64 {
	sum := sha256.Sum256(key.Append(nil))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // bits, not a number.
}
