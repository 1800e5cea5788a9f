package postgres

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// blobs is an argument of type bytea[]; a nil blob is NULL. The driver would find
// out by reflection what each element of a [][]byte is.
type blobs []blob

type blob []byte

var _ pgtype.ArrayGetter = blobs(nil)

// Dimensions, Index and IndexType are what the driver asks an array for.
func (b blobs) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(b)), LowerBound: 1}} //nolint:gosec // at most MaxKeys.
}

// Index gives one element.
func (b blobs) Index(i int) any { return &b[i] }

// IndexType gives an element's type.
func (b blobs) IndexType() any { return (*blob)(nil) }

// BytesValue is what the driver asks an element for.
func (b *blob) BytesValue() ([]byte, error) { return *b, nil }

// keys are two arguments of counterfoil.swap.
type keys struct {
	kinds []int16
	ids   blobs
	text  []byte // that the ids lie in
}

func newKeys(n int) keys { return keys{kinds: make([]int16, 0, n), ids: make(blobs, 0, n)} }

func (k *keys) add(key state.Key) {
	begin := len(k.text)
	k.text = append(k.text, key.ID...)
	k.kinds = append(k.kinds, int16(key.Kind))
	k.ids = append(k.ids, k.text[begin:])
}

// rows are arguments of counterfoil.swap, a slice for each column of several
// records.
type rows struct {
	keys
	versions blobs
	expiries []int64
	leases   []int64
	datas    blobs
}

func newRows(n int) *rows {
	return &rows{
		keys: newKeys(n), versions: make(blobs, 0, n),
		expiries: make([]int64, 0, n), leases: make([]int64, 0, n), datas: make(blobs, 0, n),
	}
}

func (r *rows) add(c *engine.Change) {
	r.keys.add(c.Key)
	r.versions = append(r.versions, c.Item.Version[:])
	r.expiries = append(r.expiries, c.Item.Expiry)
	r.leases = append(r.leases, c.Item.Lease)
	data := blob(c.Item.Data)
	if data == nil {
		data = blob{} // nil would be NULL
	}
	r.datas = append(r.datas, data)
}

// swapOf makes the call of counterfoil.swap.
func (e *Engine) swapOf(snap engine.Snapshot, plan engine.Plan) (sql string, args []any, err error) {
	positions, err := engine.Positions(snap.Keys, plan.Changes)
	if err != nil {
		return "", nil, err
	}
	changes := make([]*engine.Change, len(snap.Keys))
	for i, at := range positions {
		changes[at] = &plan.Changes[i]
	}
	created := newRows(len(plan.Changes))
	compared := make([]int, 0, 16) // positions of what is not created
	for at, c := range changes {
		if snap.Items[at] == nil && c != nil && c.Item != nil {
			created.add(c)
		} else {
			compared = append(compared, at)
		}
	}
	slices.SortFunc(compared, func(a, b int) int { return snap.Keys[a].Compare(snap.Keys[b]) })

	n := len(compared)
	read, seen, written := newKeys(n), make(blobs, n), make([]bool, n)
	changed, deleted := newRows(n), newKeys(0)
	for i, at := range compared {
		item, c := snap.Items[at], changes[at]
		read.add(snap.Keys[at])
		written[i] = c != nil
		if item == nil {
			continue // and if it is to be deleted: it is not there
		}
		seen[i] = item.Version[:]
		switch {
		case c == nil:
		case c.Item == nil:
			deleted.add(c.Key)
		default:
			changed.add(c)
		}
	}
	hashes, alone := locksOf(snap, changes)
	var now any
	if e.options.Clock != nil {
		now = e.options.now()
	}
	return swapSQL, []any{
		[]byte(snap.Keys[0].Scope), read.kinds, read.ids, seen, written, hashes, alone,
		created.kinds, created.ids, created.versions, created.expiries, created.leases, created.datas,
		changed.kinds, changed.ids, changed.versions, changed.expiries, changed.leases, changed.datas,
		deleted.kinds, deleted.ids, snap.Lineage.ID, plan.NotAfter, now, turnOf(snap.Keys[0].Scope),
	}, nil
}

// maxLocks bounds the advisory locks of a transaction. With the few on tables it
// stays below 64, the default of max_locks_per_transaction, so that the server
// has room for the locks of all its connections.
const maxLocks = 40

// lock is one lock on the absence of a key.
type lock struct {
	hash  int64
	alone bool
}

// locksOf lists the locks on the absence of keys in the order in which they are
// taken: that on the absence of every key of the scope, shared, and each key's by
// its hash, alone if the key is created. In place of too many of these the
// scope's is taken alone. changes are by the position of their key.
func locksOf(snap engine.Snapshot, changes []*engine.Change) (hashes []int64, alone []bool) {
	absent := 0
	for _, item := range snap.Items {
		if item == nil {
			absent++
		}
	}
	if absent == 0 {
		return []int64{}, []bool{}
	}
	hashes, alone = make([]int64, 1, maxLocks+1), make([]bool, 1, maxLocks+1)
	hashes[0], alone[0] = hashOf(state.Key{Scope: snap.Keys[0].Scope}), absent > maxLocks
	if absent > maxLocks {
		return hashes, alone
	}
	locks := make([]lock, 0, maxLocks)
	for at, item := range snap.Items {
		if item == nil {
			c := changes[at]
			locks = append(locks, lock{hashOf(snap.Keys[at]), c != nil && c.Item != nil})
		}
	}
	slices.SortFunc(locks, func(a, b lock) int {
		switch c := cmp.Compare(a.hash, b.hash); {
		case c != 0 || a.alone == b.alone:
			return c
		case a.alone: // of two on one hash the stronger counts
			return -1
		}
		return 1
	})
	for _, l := range slices.CompactFunc(locks, func(a, b lock) bool { return a.hash == b.hash }) {
		hashes, alone = append(hashes, l.hash), append(alone, l.alone)
	}
	return hashes, alone
}

// hashOf names the lock on a key's absence. Two keys of one hash only wait for
// each other. The key without kind and ID stands for all of its scope.
func hashOf(key state.Key) int64 {
	sum := sha256.Sum256(key.Append(make([]byte, 0, 128)))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // bits, not a number.
}
