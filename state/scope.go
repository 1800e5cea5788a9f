package state

import "errors"

// Scope is the body of a scope record: what every batch of the scope asserts.
type Scope struct {
	Generation uint64 // of the store: rises when state was lost or taken back
	Floor      int64  // permits issued at or before it are refused, ms
	Epoch      uint64 // of challenges, from 1
	Writers    uint16 // how many writer slots were ever taken: quota shards 0…Writers−1
	Caps       Caps
	// Quarantine is why the scope is in quarantine, "" if it is not: state was
	// rolled back, and nothing new may begin until an operator has reconciled.
	Quarantine string
	// Note is what the operator wrote who lifted the last quarantine.
	Note string
	// Lineage identifies the copy of a replicated engine's data that the scope
	// was last used on; "" where the engine has none.
	Lineage string
}

// Caps bounds the live records of a scope.
type Caps struct {
	Live            uint64 // per kind
	OwnerLive       uint64 // per kind and owner
	Tombstones      uint64 // of operations
	OwnerTombstones uint64
	Bytes           uint64 // of receipts, together
	OwnerBytes      uint64
}

// DefaultCaps are the caps of a new scope: 10 M live records of each kind, 50 M
// tombstones, 10 GiB of receipts, and a quarter of each for one owner.
func DefaultCaps() Caps {
	return Caps{
		Live: 10_000_000, OwnerLive: 2_500_000,
		Tombstones: 50_000_000, OwnerTombstones: 12_500_000,
		Bytes: 10 << 30, OwnerBytes: 10 << 30 / 4,
	}
}

// NewScope is the body of a scope that is created in a store of that
// generation.
func NewScope(generation uint64) Scope {
	return Scope{Generation: generation, Epoch: 1, Caps: DefaultCaps()}
}

func (s *Scope) validate() error {
	switch {
	case s.Epoch == 0 || s.Epoch > MaxAmount:
		return errors.New("the epoch is out of range")
	case s.Generation == 0 || s.Generation > MaxAmount:
		return errors.New("the generation is out of range")
	case s.Floor < 0 || s.Floor > MaxAmount:
		return errors.New("the floor is out of range")
	case s.Writers > MaxWriters:
		return errors.New("there are too many writer slots")
	case len(s.Quarantine) > 4096 || len(s.Note) > 4096 || len(s.Lineage) > 256:
		return errors.New("a text is too long")
	}
	for _, c := range []uint64{s.Caps.Live, s.Caps.OwnerLive, s.Caps.Tombstones, s.Caps.OwnerTombstones, s.Caps.Bytes, s.Caps.OwnerBytes} {
		if c > MaxAmount {
			return errors.New("a cap is out of range")
		}
	}
	return nil
}

// MaxWriters bounds how many store instances can use one scope at a time.
const MaxWriters = 256

// Writer is the body of a writer record: one store instance's slot in a scope.
// The record's version is that of the instance's last commit in the scope.
type Writer struct {
	Instance [16]byte // drawn when the instance opened the store
	Mark     int64    // its last now, ms
	Lease    int64    // from then on another instance may take the slot, ms
}
