package state

import (
	"encoding/binary"
	"errors"
	"slices"
)

// The encoding of a record's fields, before the seal. Integers are unsigned
// varints; a bit in the flags says which optional fields follow, in this
// order. A field with its zero value is never written, so that there is one
// encoding for each record.
const (
	hasOwner = 1 << iota
	hasOwnerTag
	hasToken
	hasDigest
	hasGiven
	hasExpires
	hasRetain
	hasLease
	hasFence
	hasEpoch
	hasBody
	hasResult
	isTomb
)

// appendRecord encodes r without its version.
func appendRecord(dst []byte, kind Kind, r *Record) []byte {
	var room [256]byte
	body := r.body(kind, room[:0])
	flags := r.flags(len(body))
	dst = append(dst, byte(r.State))
	dst = binary.AppendUvarint(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(r.Shard))
	dst = appendTime(dst, r.Created)
	dst = appendTime(dst, r.Updated)
	if flags&hasOwner != 0 {
		dst = appendBytes(dst, r.Owner)
	}
	if flags&hasOwnerTag != 0 {
		dst = append(dst, r.OwnerTag[:]...)
	}
	if flags&hasToken != 0 {
		dst = append(dst, r.Token[:]...)
	}
	if flags&hasDigest != 0 {
		dst = append(dst, r.Digest[:]...)
	}
	if flags&hasGiven != 0 {
		dst = append(dst, r.Given[:]...)
	}
	if flags&hasExpires != 0 {
		dst = appendTime(dst, r.Expires)
	}
	if flags&hasRetain != 0 {
		dst = appendTime(dst, r.Retain)
	}
	if flags&hasLease != 0 {
		dst = appendTime(dst, r.Lease)
	}
	if flags&hasFence != 0 {
		dst = binary.AppendUvarint(dst, r.Fence)
	}
	if flags&hasEpoch != 0 {
		dst = binary.AppendUvarint(dst, r.Epoch)
		dst = binary.AppendUvarint(dst, r.Generation)
	}
	if flags&hasBody != 0 {
		dst = appendBytes(dst, body)
	}
	if flags&hasResult != 0 {
		dst = appendBytes(dst, r.Result)
	}
	return dst
}

// flags says which optional fields r has, with a body of that length.
func (r *Record) flags(body int) uint64 {
	return flag[uint64](r.Owner != "", hasOwner) |
		flag[uint64](r.Owner == "" && r.OwnerTag != OwnerTag{}, hasOwnerTag) |
		flag[uint64](r.Token != Token{}, hasToken) | flag[uint64](r.Digest != Digest{}, hasDigest) | flag[uint64](r.Given != Digest{}, hasGiven) |
		flag[uint64](r.Expires != 0, hasExpires) | flag[uint64](r.Retain != 0, hasRetain) | flag[uint64](r.Lease != 0, hasLease) |
		flag[uint64](r.Fence != 0, hasFence) | flag[uint64](r.Epoch != 0 || r.Generation != 0, hasEpoch) |
		flag[uint64](body > 0, hasBody) | flag[uint64](len(r.Result) > 0, hasResult) | flag[uint64](r.Tomb, isTomb)
}

// decodeRecord reads what appendRecord wrote, and fails on anything else.
func decodeRecord(b []byte, kind Kind) (*Record, error) {
	d := decoder{b: b}
	r := &Record{State: State(d.byte())}
	flags := d.uvarint()
	r.Shard = uint16(d.atMost(MaxWriters)) //nolint:gosec // bounded.
	r.Created, r.Updated = d.time(), d.time()
	if flags&hasOwner != 0 {
		r.Owner = string(d.bytes(MaxScopeBytes))
		r.OwnerTag = TagOwner(r.Owner)
	}
	if flags&hasOwnerTag != 0 {
		d.fixed(r.OwnerTag[:])
	}
	if flags&hasToken != 0 {
		d.fixed(r.Token[:])
	}
	if flags&hasDigest != 0 {
		d.fixed(r.Digest[:])
	}
	if flags&hasGiven != 0 {
		d.fixed(r.Given[:])
	}
	if flags&hasExpires != 0 {
		r.Expires = d.time()
	}
	if flags&hasRetain != 0 {
		r.Retain = d.time()
	}
	if flags&hasLease != 0 {
		r.Lease = d.time()
	}
	if flags&hasFence != 0 {
		r.Fence = d.uvarint()
	}
	if flags&hasEpoch != 0 {
		r.Epoch, r.Generation = d.uvarint(), d.uvarint()
	}
	if flags&hasBody != 0 {
		r.Body = d.bytes(MaxBodyBytes)
	}
	if flags&hasResult != 0 {
		r.Result = d.bytes(MaxBodyBytes)
	}
	r.Tomb = flags&isTomb != 0
	if err := d.end(); err != nil {
		return nil, err
	}
	if r.State < Pending || r.State > Void || r.Tomb && r.State != Settled {
		return nil, errors.New("the state is out of range")
	}
	if flags != r.flags(len(r.Body)) {
		return nil, errors.New("the flags do not fit the fields")
	}
	if err := r.decodeBody(kind); err != nil {
		return nil, err
	}
	return r, nil
}

// body is the encoded body: the capability's bytes, or what the store's own
// kinds hold, which it appends to room.
func (r *Record) body(kind Kind, room []byte) []byte {
	switch {
	case r.scope != nil:
		return appendScope(room, r.scope)
	case r.budget != nil:
		return appendBudget(slices.Grow(room, 128+20*len(r.budget.Held)), r.budget)
	case r.quota != nil:
		return appendQuota(room, r.quota)
	case r.writer != nil:
		room = append(room, r.writer.Instance[:]...)
		room = appendTime(room, r.writer.Mark)
		return appendTime(room, r.writer.Lease)
	case kind == KindCounter || kind == KindFloor:
		return binary.AppendUvarint(room, r.Value)
	}
	return r.Body
}

func (r *Record) decodeBody(kind Kind) (err error) {
	d := decoder{b: r.Body}
	switch kind {
	case KindScope:
		if r.scope, err = decodeScope(&d); err == nil {
			err = r.scope.validate()
		}
	case KindBudget:
		if r.budget, err = decodeBudget(&d); err == nil {
			err = r.budget.validate()
		}
	case KindQuota:
		r.quota = &quota{Used: d.atMost(MaxAmount), Allowance: d.atMost(MaxAmount), Cap: d.atMost(MaxAmount)}
		err = d.end()
	case KindWriter:
		r.writer = &Writer{}
		d.fixed(r.writer.Instance[:])
		r.writer.Mark, r.writer.Lease = d.time(), d.time()
		err = d.end()
	case KindCounter, KindFloor:
		r.Value = d.atMost(MaxAmount)
		err = d.end()
	default:
		return nil
	}
	r.Body = nil
	return err
}

func appendQuota(b []byte, q *quota) []byte {
	b = binary.AppendUvarint(b, q.Used)
	b = binary.AppendUvarint(b, q.Allowance)
	return binary.AppendUvarint(b, q.Cap)
}

func appendScope(b []byte, s *Scope) []byte {
	b = binary.AppendUvarint(b, s.Generation)
	b = appendTime(b, s.Floor)
	b = binary.AppendUvarint(b, s.Epoch)
	b = binary.AppendUvarint(b, uint64(s.Writers))
	for _, c := range []uint64{s.Caps.Live, s.Caps.OwnerLive, s.Caps.Tombstones, s.Caps.OwnerTombstones, s.Caps.Bytes, s.Caps.OwnerBytes} {
		b = binary.AppendUvarint(b, c)
	}
	b = appendBytes(b, s.Quarantine)
	b = appendBytes(b, s.Note)
	return appendBytes(b, s.Lineage)
}

func decodeScope(d *decoder) (*Scope, error) {
	s := &Scope{Generation: d.uvarint(), Floor: d.time(), Epoch: d.uvarint(), Writers: uint16(d.atMost(MaxWriters))} //nolint:gosec // bounded.
	for _, c := range []*uint64{&s.Caps.Live, &s.Caps.OwnerLive, &s.Caps.Tombstones, &s.Caps.OwnerTombstones, &s.Caps.Bytes, &s.Caps.OwnerBytes} {
		*c = d.uvarint()
	}
	s.Quarantine, s.Note, s.Lineage = string(d.bytes(4096)), string(d.bytes(4096)), string(d.bytes(256))
	return s, d.end()
}

func appendBudget(b []byte, g *Budget) []byte {
	b = appendBytes(b, g.Unit)
	b = binary.AppendUvarint(b, g.Limit)
	b = append(b, flag[byte](g.Unlimited, 1), byte(g.Window.Kind))
	b = binary.AppendUvarint(b, g.Window.Seconds)
	b = appendBytes(b, g.Window.Zone)
	b = appendBytes(b, g.Parent)
	b = append(b, g.ParentGen[:]...)
	b = append(b, g.Generation[:]...)
	b = appendTime(b, g.Start)
	b = binary.AppendUvarint(b, g.Spent)
	b = binary.AppendUvarint(b, g.Fenced)
	b = binary.AppendUvarint(b, uint64(len(g.Held)))
	for _, h := range g.Held {
		b = appendTime(b, h.Until)
		b = binary.AppendUvarint(b, h.Amount)
		b = appendTime(b, h.Since)
	}
	return b
}

func decodeBudget(d *decoder) (*Budget, error) {
	g := &Budget{Unit: string(d.bytes(MaxUnitBytes)), Limit: d.uvarint()}
	g.Unlimited = d.bool()
	g.Window = Window{Kind: WindowKind(d.byte()), Seconds: d.uvarint(), Zone: string(d.bytes(256))}
	g.Parent = string(d.bytes(MaxIDBytes))
	d.fixed(g.ParentGen[:])
	d.fixed(g.Generation[:])
	g.Start, g.Spent, g.Fenced = d.time(), d.uvarint(), d.uvarint()
	n := d.atMost(MaxHeld)
	if n > 0 && d.err == nil {
		g.Held = make([]Held, 0, min(n, uint64(len(d.b)/3))) // an entry has at least three bytes
	}
	for range n {
		if d.err != nil {
			break
		}
		g.Held = append(g.Held, Held{Until: d.time(), Amount: d.uvarint(), Since: d.time()})
	}
	return g, d.end()
}

// appendResult encodes the figures of a batch's Moves, as Batch.Keep stores
// them in the anchor's record.
func appendResult(b []byte, o *Outcome) []byte {
	b = append(b, flag[byte](o.Extra, 1))
	for i, f := range o.Figures {
		if f == nil {
			continue
		}
		b = binary.AppendUvarint(b, uint64(i))
		b = appendBytes(b, f.Name)
		b = appendBytes(b, f.Unit)
		b = append(b, flag[byte](f.Unlimited, 1)|flag[byte](f.Lifetime, 2)|flag[byte](o.Skipped[i], 4))
		for _, n := range []uint64{f.Limit, f.Spent, f.Held, f.Remaining, f.Amount} {
			b = binary.AppendUvarint(b, n)
		}
		b = appendTime(b, f.WindowAt)
		b = appendTime(b, f.ResetsAt)
		b = appendTime(b, f.HeldUntil)
		b = append(b, f.Generation[:]...)
	}
	return b
}

// Kept is the outcome of a batch as Batch.Keep stored it.
type Kept struct {
	Figures []Figures // of the batch's Moves, in their order
	Ops     []int     // index of each of them in the batch
	Skipped []bool
	Extra   bool
}

// DecodeResult reads a record's Result.
func DecodeResult(b []byte) (Kept, error) {
	d := decoder{b: b}
	k := Kept{Extra: d.bool()}
	for len(d.b) > 0 && d.err == nil {
		k.Ops = append(k.Ops, int(d.atMost(MaxKeys))) //nolint:gosec // bounded.
		f := Figures{Name: string(d.bytes(MaxIDBytes)), Unit: string(d.bytes(MaxUnitBytes))}
		bits := d.byte()
		if bits > 7 {
			d.err = errEncoding
		}
		f.Unlimited, f.Lifetime = bits&1 != 0, bits&2 != 0
		k.Skipped = append(k.Skipped, bits&4 != 0)
		for _, n := range []*uint64{&f.Limit, &f.Spent, &f.Held, &f.Remaining, &f.Amount} {
			*n = d.uvarint()
		}
		f.WindowAt, f.ResetsAt, f.HeldUntil = d.time(), d.time(), d.time()
		d.fixed(f.Generation[:])
		k.Figures = append(k.Figures, f)
	}
	return k, d.end()
}

func flag[T byte | uint64](set bool, bit T) T {
	if set {
		return bit
	}
	return 0
}

func appendTime(b []byte, t int64) []byte {
	return binary.AppendUvarint(b, uint64(t)) //nolint:gosec // times are never negative; the decoder checks.
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decoder reads an encoding from front to back; after the first error it gives
// zero values, and end tells.
type decoder struct {
	b   []byte
	err error
}

var errEncoding = errors.New("the encoding is cut off or out of range")

func (d *decoder) cut(n int) []byte {
	if d.err != nil || n < 0 || len(d.b) < n {
		d.err = errEncoding
		return nil
	}
	head := d.b[:n]
	d.b = d.b[n:]
	return head
}

func (d *decoder) byte() byte {
	if b := d.cut(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) bool() bool {
	b := d.byte()
	if b > 1 {
		d.err = errEncoding
	}
	return b == 1
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.err = errEncoding
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) atMost(limit uint64) uint64 {
	v := d.uvarint()
	if v > limit {
		d.err = errEncoding
		return 0
	}
	return v
}

func (d *decoder) time() int64 { return int64(d.atMost(MaxAmount)) } //nolint:gosec // bounded.

func (d *decoder) fixed(dst []byte) { copy(dst, d.cut(len(dst))) }

func (d *decoder) bytes(limit uint64) []byte {
	n := int(d.atMost(limit)) //nolint:gosec // bounded.
	if n == 0 {
		return nil
	}
	return append([]byte(nil), d.cut(n)...)
}

func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = errEncoding
	}
	return d.err
}
