package state

// Sealed is a record as an engine keeps it. Version, Expiry and Lease are in
// the clear, so that an engine can compare and index without knowing any rule;
// all of them are covered by the seal in Data.
type Sealed struct {
	Version Version
	Expiry  int64 // 0: not in the expiry index
	Lease   int64 // 0: not in the lease index
	Data    []byte
}
