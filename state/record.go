package state

import (
	"crypto/sha256"

	"github.com/counterfoil/counterfoil/internal/planted"
)

// MaxAmount is the largest amount, limit or counter: 2^53 − 1, the largest
// integer that JSON numbers carry exactly.
const MaxAmount = 1<<53 - 1

// MaxBodyBytes bounds a record's body, far above any receipt that policy
// allows; a larger one is refused before anything is read.
const MaxBodyBytes = 16 << 20

// Version identifies the commit that wrote a record: 16 random bytes drawn
// per commit, the same on every record of that commit, never reused.
type Version [16]byte

// Token proves that a caller holds a record: 16 random bytes, drawn before the
// first send so that a repetition is recognised.
type Token [16]byte

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// IsZero reports whether v is the zero version, which no commit carries.
func (v Version) IsZero() bool { return v == Version{} }

// IsZero reports whether t is the zero token, which nobody holds.
func (t Token) IsZero() bool { return t == Token{} }

// State is where a record is in its life.
type State uint8

// The states of a record.
const (
	Pending State = 1 // claimed, not finished
	Settled State = 2 // finished for good
	Void    State = 3 // dropped: absent to Claim and to quotas
)

func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Settled:
		return "settled"
	case Void:
		return "void"
	}
	return "state(?)"
}

// Record is one stored fact. Records are immutable once they are in a [View]:
// a change makes a new one.
type Record struct {
	Version Version // the commit that wrote it
	State   State
	Tomb    bool   // a settled record swept down to a tombstone
	Shard   uint16 // the quota shard that counts it
	Token   Token  // of the present holder, or of who settled or dropped it
	Owner   string // "" for records that belong to the scope as a whole, and in tombstones
	// OwnerTag is [TagOwner] of the owner; it stands in for Owner in tombstones
	// and is zero without an owner.
	OwnerTag OwnerTag
	Digest   Digest // what the claim was for (an operation's fingerprint)
	Given    Digest // what the last Settle, Drop or Update was given
	Created  int64
	Updated  int64
	Expires  int64  // from then on it is absent to Claim; 0: never by itself
	Retain   int64  // settled: from then on its body is no longer given (0: until Expires)
	Lease    int64  // pending: until then the holder is taken to be alive
	Fence    uint64 // operation: rises with every claim of this key
	Epoch    uint64 // challenge: the scope's epoch at the claim
	// Generation is the scope's generation at the claim (challenge).
	Generation uint64
	Value      uint64 // counter, floor (ms)
	Body       []byte // the capability's own
	Result     []byte // the kept outcome of the batch that claimed, updated or settled it

	// The decoded body of the store's own kinds; set by the decoder and by
	// Decide, encoded into Body when the record is sealed.
	scope  *Scope
	budget *Budget
	quota  *quota
	writer *Writer
}

// OwnerTag stands for an owner in quota keys and tombstones: the first 16
// bytes of a hash.
type OwnerTag [16]byte

// TagOwner hashes an owner: the first 16 bytes of SHA-256 over an ASCII tag
// and the owner. The empty owner has the zero tag.
func TagOwner(owner string) OwnerTag {
	if owner == "" {
		return OwnerTag{}
	}
	var room [21 + MaxScopeBytes]byte // of the tag and the longest owner
	sum := sha256.Sum256(append(append(room[:0], "counterfoil.owner.v1\x00"...), owner...))
	return OwnerTag(sum[:16])
}

// Scope gives the decoded body of a scope record, nil for other kinds. It must
// not be changed.
func (r *Record) Scope() *Scope { return r.scope }

// Budget gives the decoded body of a budget record, nil for other kinds. It
// must not be changed.
func (r *Record) Budget() *Budget { return r.budget }

// Writer gives the decoded body of a writer record, nil for other kinds. It
// must not be changed.
func (r *Record) Writer() *Writer { return r.writer }

// KeepPast is how long, in ms, every record is kept past its end, so that it
// is answered by its name and never becomes free by a small step of the clock:
// the skew between clocks plus the clock's tolerance plus three minutes.
const KeepPast = Skew + Tolerance + 3*60_000

// HoldKeep is how long, in ms, a hold that ended by itself is remembered, so
// that it is answered as expired.
const HoldKeep = 24 * 3_600_000

// Skew is how far, in ms, the clocks of two honest parties may differ.
const Skew = 5_000

// Tolerance is the largest step back of a clock, in ms, that is absorbed.
const Tolerance = 2 * 60_000

// expired reports whether the record's time is over at now. Challenges of an
// older epoch or generation are over too.
func (r *Record) expired(kind Kind, now int64, s *Scope) bool {
	if planted.On(planted.SecondClock) {
		now -= Skew
	}
	if r.Over(now) {
		return true
	}
	if kind == KindChallenge && r.State == Pending {
		return r.Epoch != s.Epoch || r.Generation != s.Generation
	}
	return false
}

// live reports whether the record stands in the way of a Claim at now.
func (r *Record) live(kind Kind, now int64, s *Scope) bool {
	return r.State != Void && !r.expired(kind, now, s)
}

// Over reports whether the record's own time is over at now. A challenge of an
// older epoch or generation counts as expired besides.
func (r *Record) Over(now int64) bool { return r.Expires != 0 && now >= r.Expires }

// Retained reports whether the body of a settled record may still be given at
// now. It is the one test of the end of a receipt's retention.
func (r *Record) Retained(now int64) bool {
	return !r.Tomb && (r.Retain == 0 || now < r.Retain) && !r.Over(now)
}

// seen is the record as a batch meets it at now: once its retention is over, a
// settled record is the tombstone that a sweeper would leave, swept or not.
func (r *Record) seen(now int64) *Record {
	if r.State != Settled || r.Tomb || r.Retained(now) {
		return r
	}
	return r.tombstone()
}

// tombstone is what is left of a settled record: enough to stand in the way,
// to be counted and to let fences rise.
func (r *Record) tombstone() *Record {
	return &Record{
		Version: r.Version, State: Settled, Tomb: true, Shard: r.Shard, OwnerTag: r.OwnerTag,
		Created: r.Created, Updated: r.Updated, Expires: r.Expires, Fence: r.Fence,
	}
}

// shrinks reports whether the record becomes a tombstone before it goes.
func (r *Record) shrinks() bool {
	return r.State == Settled && !r.Tomb && r.Retain != 0 && (r.Expires == 0 || r.Retain < r.Expires)
}

// ExpiryIndex gives the time at which a sweeper has something to do with the
// record: shrink it to a tombstone, or delete it. 0: never.
func (r *Record) ExpiryIndex(kind Kind) int64 {
	switch {
	case r.shrinks():
		return r.Retain
	case r.Expires == 0:
		return 0
	case kind == KindHold && r.State == Pending:
		return r.Expires + HoldKeep
	}
	return r.Expires + KeepPast
}

// LeaseIndex gives the end of the lease of a pending record, 0 without one.
func (r *Record) LeaseIndex() int64 {
	if r.State != Pending {
		return 0
	}
	return r.Lease
}
