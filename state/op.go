package state

// Op is one step of a batch. The types below are all there are; each names the
// record or records it is about, and which kinds allow it stands in kinds.go.
type Op interface {
	// target is the key that the op is about; no other op of the batch may have
	// it, but that one budget can be moved twice.
	target() Key
	code() opCode
}

// Claim creates a record if and only if no live record has its key (else
// exists, with the record), Expires is 0 or after now (else expired) and the
// quotas have room (else full or owner_full).
type Claim struct {
	Key     Key
	Owner   string // "" for a record of the scope as a whole
	Token   Token  // random, drawn before the first send
	Digest  Digest // what the claim is for
	State   State  // Pending, or Settled at once
	Body    []byte
	Expires int64 // 0: never by itself
	Lease   int64 // Pending only; 0: none
}

// Update keeps a live pending record of this Token pending and replaces its
// lease, expiry and body (else absent, not_holder, not_pending, expired).
type Update struct {
	Key          Key
	Token        Token
	NewToken     Token   // if not zero, it becomes the record's token
	IfVersion    Version // if not zero, the record must carry it, else changed
	IfLeaseAlive bool    // if set, the lease must not be over, else lease_over
	Given        Digest  // what the caller asked for; with NewToken it tells a repetition
	Lease        int64
	Expires      int64
	Body         []byte
}

// Settle finishes a live pending record of this Token for good.
type Settle struct {
	Key         Key
	Token       Token
	NewToken    Token
	IfVersion   Version
	IfLeaseOver bool   // if set, the lease must be over, else lease_alive
	Given       Digest // what the caller gave, retention and limits left out; it tells a repetition
	Body        []byte
	// Short replaces Body if the quota of receipt bytes has no room for Body:
	// recording a result is never refused.
	Short   []byte
	Retain  int64 // from then on the body is no longer given; 0: until Expires
	Expires int64 // from then on the key is free; 0: never
}

// Drop makes a pending record of this Token void: absent to Claim and quotas.
type Drop struct {
	Key         Key
	Token       Token
	NewToken    Token
	IfVersion   Version
	IfLeaseOver bool
	Given       Digest
	Why         []byte // who and why, kept with the void record for VoidKeep
}

// VoidKeep is how long a void record is kept, in ms.
const VoidKeep = 24 * 3_600_000

// Bucket names a place within a budget. The zero Bucket is none.
type Bucket struct {
	Kind  BucketKind
	Until int64 // BucketHeld: when the amount stops counting
}

// BucketKind is the sort of a [Bucket].
type BucketKind uint8

// The buckets of a budget.
const (
	BucketNone   BucketKind = 0
	BucketSpent  BucketKind = 1
	BucketFenced BucketKind = 2
	BucketHeld   BucketKind = 3
)

// CurrentWindow as a Move's Window means: whichever window is open now.
const CurrentWindow int64 = -1 << 62

// Move takes an amount out of one bucket of a budget and gives one to another,
// if and only if the budget's use does not grow above its limit (else
// over_limit). Moves of a window that is closed change nothing. What is taken
// is of a window that is named; what is given into a budget with a parent must
// be given to the same bucket there by the same batch, all that its children
// get together; a Move that adds, or holds, cannot be skipped.
type Move struct {
	Key        Key
	Generation Version // of the budget as the caller read it
	Window     int64   // CurrentWindow, or the start of the window that a hold or spend froze
	Take       Bucket
	TakeAmount uint64
	Give       Bucket
	GiveAmount uint64
	// Extra is spent too if the Extras of all Moves of the batch fit, else
	// none of them is.
	Extra    uint64
	IfGone   Gone // what to do if the budget is gone or of another generation
	IfClosed Gone // what to do if the frozen window is closed
}

// Gone says what a Move does when what it is about is no longer there.
type Gone uint8

// Refuse: the batch is refused. Skip: the Move does nothing.
const (
	GoneRefuse Gone = 0
	GoneSkip   Gone = 1
)

// Ancestor names a budget above another, as the caller read it.
type Ancestor struct {
	Key        Key
	Generation Version
}

// Remove deletes a counter or a key check, or a budget of that generation, and takes the
// budget's open holds out of its ancestors. What is missing, or of another
// generation, is skipped. A batch has at most one Remove.
type Remove struct {
	Key        Key
	Generation Version
	Ancestors  []Ancestor // to be read at once; one that is not named here is found all the same
}

// PutBudget defines a budget or changes its limit; unit, window and parent are
// fixed once defined (else differs). A parent must exist with the same unit
// (else absent), at a depth of at most MaxBudgetDepth.
type PutBudget struct {
	Key       Key
	Unit      string
	Limit     uint64
	Unlimited bool
	Window    Window
	Parent    string // "" for none
}

// PutScope replaces the body of a scope record that carries IfVersion; with a
// zero IfVersion it creates the scope if and only if it is absent (else
// changed).
type PutScope struct {
	Key       Key
	IfVersion Version
	Scope     Scope
}

// PutKeyCheck writes a key check if and only if none is there (else exists).
type PutKeyCheck struct {
	Key    Key
	Digest Digest
}

// Check holds if each asked condition does (else check_failed).
type Check struct {
	Key   Key
	After int64  // floor, scope: the floor must be below it; asked if not 0
	Epoch uint64 // scope: the epoch must be equal; asked if not 0
	// Digest must equal a key check's; asked of key checks always.
	Digest Digest
}

// Bump advances the scope's epoch from From to From+1 (else check_failed).
type Bump struct {
	Key   Key
	From  uint64
	Token Token
}

// Raise lifts a floor, the scope's floor or a counter to at least To; never
// lower. With Ahead > 0 a floor is lifted to now + Ahead, rounded up to the
// next full second, too.
type Raise struct {
	Key   Key
	To    uint64
	Ahead int64 // ms
}

// Add adds to a counter, creating it (else over_limit at MaxAmount).
type Add struct {
	Key    Key
	Amount uint64
}

// Spend adds to a counter if the sum stays within Limit (else over_limit). An
// amount of 0 is always allowed and writes nothing.
type Spend struct {
	Key    Key
	Amount uint64
	Limit  uint64
}

// Refund subtracts from a counter, stopping at 0; it never creates one.
type Refund struct {
	Key    Key
	Amount uint64
}

// Refuse never holds: it carries into a batch a refusal that was found before
// it, so that an existing record can answer first.
type Refuse struct {
	Reason Reason
}

// Replace overwrites a record that cannot be read, if it still carries
// Version (else changed), and which must be unreadable (else readable). For
// operator verbs only.
type Replace struct {
	Key     Key
	Version Version // as stored
	State   State   // Settled, or Void to release the key and its quota slot
	Owner   string
	Token   Token
	Digest  Digest
	Given   Digest
	Body    []byte
	Retain  int64
	Expires int64
}

// Sweep shrinks or deletes a record whose time has come, and skips any other.
// For the store's sweeper only.
type Sweep struct {
	Key Key
}

func (o Claim) target() Key       { return o.Key }
func (o Update) target() Key      { return o.Key }
func (o Settle) target() Key      { return o.Key }
func (o Drop) target() Key        { return o.Key }
func (o Move) target() Key        { return o.Key }
func (o Remove) target() Key      { return o.Key }
func (o PutBudget) target() Key   { return o.Key }
func (o PutScope) target() Key    { return o.Key }
func (o PutKeyCheck) target() Key { return o.Key }
func (o Check) target() Key       { return o.Key }
func (o Bump) target() Key        { return o.Key }
func (o Raise) target() Key       { return o.Key }
func (o Add) target() Key         { return o.Key }
func (o Spend) target() Key       { return o.Key }
func (o Refund) target() Key      { return o.Key }
func (o Refuse) target() Key      { return Key{} }
func (o Replace) target() Key     { return o.Key }
func (o Sweep) target() Key       { return o.Key }

func (Claim) code() opCode       { return opClaim }
func (Update) code() opCode      { return opUpdate }
func (Settle) code() opCode      { return opSettle }
func (Drop) code() opCode        { return opDrop }
func (Move) code() opCode        { return opMove }
func (Remove) code() opCode      { return opRemove }
func (PutBudget) code() opCode   { return opPutBudget }
func (PutScope) code() opCode    { return opPutScope }
func (PutKeyCheck) code() opCode { return opPutKeyCheck }
func (Check) code() opCode       { return opCheck }
func (Bump) code() opCode        { return opBump }
func (Raise) code() opCode       { return opRaise }
func (Add) code() opCode         { return opAdd }
func (Spend) code() opCode       { return opSpend }
func (Refund) code() opCode      { return opRefund }
func (Refuse) code() opCode      { return opRefuse }
func (Replace) code() opCode     { return opReplace }
func (Sweep) code() opCode       { return opSweep }
