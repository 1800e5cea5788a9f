package state

// Usage is one shard of one count of what a scope holds, as operators see it.
type Usage struct {
	Kind      Kind
	What      string // live, tombstones, bytes
	OfOwner   bool   // the count is one owner's
	Used      uint64
	Allowance uint64 // of the shard: it grows up to it without looking at the others
	Cap       uint64 // that the allowance was granted under
}

// UsageOf reads a quota record, false for a record of another kind.
func UsageOf(key Key, r *Record) (Usage, bool) {
	if key.Kind != KindQuota || r == nil || len(key.ID) < 4 {
		return Usage{}, false
	}
	what, ok := map[meterWhat]string{meterLive: "live", meterTombs: "tombstones", meterBytes: "bytes"}[meterWhat(key.ID[1])]
	return Usage{
		Kind: Kind(key.ID[0]), What: what, OfOwner: len(key.ID) > 4,
		Used: r.quota.Used, Allowance: r.quota.Allowance, Cap: r.quota.Cap,
	}, ok
}
