package state

// Reason says why an op does not hold.
type Reason string

// The reasons of refusals.
const (
	Exists      Reason = "exists"       // Claim, PutKeyCheck: a live record has the key
	Aborted     Reason = "aborted"      // Claim: its own earlier claim was dropped
	Expired     Reason = "expired"      // its time is over
	Absent      Reason = "absent"       // nothing there
	NotPending  Reason = "not_pending"  // finished already
	NotHolder   Reason = "not_holder"   // another token holds it
	LeaseOver   Reason = "lease_over"   // asked for a lease that is alive
	LeaseAlive  Reason = "lease_alive"  // asked for a lease that is over
	Changed     Reason = "changed"      // not the version that the caller read
	Full        Reason = "full"         // the scope's quota is used up
	OwnerFull   Reason = "owner_full"   // the owner's quota is used up
	OverLimit   Reason = "over_limit"   // a budget or counter would grow above its limit
	BudgetGone  Reason = "budget_gone"  // the budget is missing or of another generation
	WindowOver  Reason = "window_over"  // the frozen window is closed
	Differs     Reason = "differs"      // a budget is defined otherwise
	CheckFailed Reason = "check_failed" // a floor or epoch stands against it
	Stale       Reason = "stale"        // NotAfter is past
	Recovering  Reason = "recovering"   // the scope is in quarantine
	Readable    Reason = "readable"     // Replace: the record is not damaged
)

// Refusal is one precondition that does not hold.
type Refusal struct {
	Op      int // index into Batch.Ops; −1 for the batch as a whole
	Reason  Reason
	Record  *Record  // the record in the way, if there is one; without a body that is past its retention
	Figures *Figures // OverLimit: what the budget or counter stands at
	Value   uint64   // CheckFailed: the floor or epoch in force
}

// Outcome is the answer to a batch. If Applied, all ops took effect. If
// Repeated, the same batch had been applied before and nothing was written; the
// answer is in Anchor. Otherwise Refusals lists every op that did not hold, and
// nothing was written.
type Outcome struct {
	Now      int64
	Applied  bool
	Repeated bool
	Refusals []Refusal
	Anchor   *Record    // the anchor's record after the batch, or as it is if Repeated
	Records  []*Record  // for each key of Batch.Read, as before the effects; nil if absent
	Figures  []*Figures // for each op: a Move's budget or a counter after the batch; nil for others
	Extra    bool       // the Extras of the Moves were spent
	Values   []uint64   // for each op: a floor, epoch or counter after it
	Skipped  []bool     // for each op: a Move or Remove whose budget or window was gone
}

// Refused finds the first refusal of the op with that index.
func (o *Outcome) Refused(op int) (Refusal, bool) {
	for _, r := range o.Refusals {
		if r.Op == op {
			return r, true
		}
	}
	return Refusal{}, false
}

// Because finds the first refusal with that reason.
func (o *Outcome) Because(reason Reason) (Refusal, bool) {
	for _, r := range o.Refusals {
		if r.Reason == reason {
			return r, true
		}
	}
	return Refusal{}, false
}

// Figures is where a budget or counter stands, taken from the committing step.
type Figures struct {
	Name       string // of the budget or counter
	Unit       string
	Limit      uint64
	Unlimited  bool
	Spent      uint64
	Held       uint64 // fenced included
	Remaining  uint64 // never below 0; of an unlimited budget, what MaxAmount leaves
	Amount     uint64 // what the op asked to add
	Lifetime   bool   // the window never ends
	WindowAt   int64  // start of the open window
	ResetsAt   int64  // its end; 0 for a lifetime
	HeldUntil  int64  // the earliest expiry among what is held; 0 if nothing is
	Generation Version
}
