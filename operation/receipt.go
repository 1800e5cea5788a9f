package operation

import (
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// Receipt is the result of an operation as its caller gave it. A replay returns it byte for byte.
type Receipt struct {
	Status      int                 // of an HTTP answer or an exit code, whatever the caller means by it; 0 to 999
	Headers     map[string][]string // as given, at most 64 names and 16 KiB together
	ContentType string              // at most 256 bytes
	Body        []byte
	// JSON says that Body is one JSON value, given as such, and not arbitrary bytes.
	JSON bool
}

// State is where an operation stands. The set is closed.
type State string

// The states of an operation.
const (
	InFlight       State = "in_flight"       // an intent whose holder is taken to be alive
	OutcomeUnknown State = "outcome_unknown" // an intent whose lease is over: it may have happened
	Settled        State = "settled"         // there is a receipt
	Expired        State = "expired"         // the receipt's retention is over, the key is still taken
	Aborted        State = "aborted"         // proven not to have happened; the key is free
)

// Outcome is what an operator found out about an operation.
type Outcome string

// The outcomes.
const (
	Happened     Outcome = "happened"
	DidNotHappen Outcome = "did_not_happen"
)

// Resolution says who resolved an operation, how, and why.
type Resolution struct {
	By      string // the name under which the operator acted
	Outcome Outcome
	Note    string
	At      time.Time
}

// Operation is what is known about an operation.
type Operation struct {
	ID          string // 64 lower-case hex digits: the length-prefixed hash of owner and key
	Key         string // "" once only a tombstone is left
	Owner       string // "" once only a tombstone is left
	State       State
	Fence       uint64
	CreatedAt   time.Time
	LeaseUntil  time.Time // of an intent
	CompletedAt time.Time // of a receipt
	RetainUntil time.Time // of a receipt: until then it is replayed
	Metadata    []byte    // the JSON object that the intent was given, or nil
	HoldID      string    // of the hold that the intent fenced, or ""
	// Receipt is nil unless State is Settled and the receipt was retained; lists leave it out.
	Receipt *Receipt
	// NotRetained stands for a receipt that was above the size limit.
	NotRetained *NotRetained
	// Resolved is nil unless an operator resolved the operation.
	Resolved *Resolution
	// Unsettled says that the receipt was recorded without its hold, which could not be settled.
	Unsettled bool
}

// NotRetained describes a receipt of which only digest and length are kept.
type NotRetained struct {
	Digest [32]byte // SHA-256 of the receipt's body
	Length int      // of the receipt's body in bytes
}

// Amount is an amount in a budget's unit.
type Amount struct {
	Budget string
	Amount uint64
}

// Hold names the hold that an intent fenced, and the token that settles it.
type Hold struct {
	ID    string
	Token state.Token
}
