package counterfoil

import (
	"context"
	"time"

	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// Caller makes guarded calls for one owner in one scope. [Counterfoil.As] gives one that works on a store in this
// process; the HTTP client gives one that works on a server, with the same meaning, results and errors. It is safe for
// concurrent use.
//
// Every method answers in one of three ways: a result, when what it says is durable; a refusal, when nothing was
// written; or an error that wraps [state.ErrUnknown], when nobody can say. Only a result is a yes.
type Caller interface {
	// Authorize mints a permit for one exact call, and holds amounts for it if asked.
	Authorize(context.Context, AuthorizeParams) (Authorization, error)
	// Check verifies a permit without using it up.
	Check(context.Context, CheckParams) (Checked, error)
	// Consume uses a permit up without an operation. Exactly one caller ever gets the result of a permit.
	Consume(context.Context, ConsumeParams) (Consumed, error)

	// RequestApproval asks that an operator approves one exact call, and tells where that request stands. The same call of
	// the same owner again is the same request. Granted, it comes with a permit for that call, to be used in Begin.
	RequestApproval(context.Context, ApprovalParams) (Approval, error)

	// Hold reserves amounts in budgets.
	Hold(context.Context, HoldParams) (Held, error)
	// Void gives back what an open hold reserves.
	Void(context.Context, VoidParams) (Voided, error)

	// Begin claims an operation, together with its permit, hold and spends. Only [Execute] in its result allows the
	// effect.
	Begin(context.Context, BeginParams) (Begun, error)
	// Renew moves the end of the lease to now + Lease, while the lease is alive.
	Renew(context.Context, RenewParams) (Renewed, error)
	// Complete records the receipt and captures the hold.
	Complete(context.Context, CompleteParams) (Completed, error)
	// Abort takes back a claim whose effect is proven not to have happened, and its hold and spends. A crash, a timeout
	// or a panic is no proof.
	Abort(context.Context, AbortParams) (AbortResult, error)
	// Resolve settles an operation whose outcome was unknown, or whose record is damaged, by what an operator found out.
	// Make sure first that its holder is dead.
	Resolve(context.Context, ResolveParams) (ResolveResult, error)
	// Operation tells what is known about an operation of the owner, by its id.
	Operation(ctx context.Context, id string) (operation.Operation, error)
}

// Token proves that a caller holds something; see [state.Token]. Whoever has it can act as the holder: keep it out of
// logs and URLs.
type Token = state.Token

// Fingerprint is a SHA-256 over what makes a request the same request.
type Fingerprint = state.Digest

// Figures is where a budget stands, taken from the step that answered.
type Figures = state.Figures

// Entry is an amount in a budget's unit.
type Entry = budget.Entry

// Limits of a call's parameters.
const (
	MinLease     = time.Second
	MaxLease     = time.Hour
	DefaultLease = 30 * time.Second
	MaxEntries   = 16   // budgets that a caller names
	MaxBudgets   = 40   // with their ancestors
	MaxMetadata  = 4096 // bytes
)

// AuthorizeParams asks for a permit.
type AuthorizeParams struct {
	Call permit.Expected // the exact call; every field must be given
	TTL  time.Duration   // whole seconds, 1 s to 1 h; 0: 30 s
	// Hold is held for the call until the permit expires. With a hold, the same Call.RequestID and parameters again give
	// the same permit while the hold is open.
	Hold []Entry
}

// Authorization is a permit and what is held for it.
type Authorization struct {
	Permit    []byte // the wire form, to be handed on as it is
	ExpiresAt time.Time
	HoldID    string    // "" without a hold
	Budgets   []Figures // of every budget held in, ancestors too
	Repeated  bool      // the same permit as before
}

// CheckParams names a permit and the call that it should allow.
type CheckParams struct {
	Permit   []byte // the wire form, as received
	Expected permit.Expected
}

// Checked is a permit that could be used now.
type Checked struct {
	NonceID   string
	ExpiresAt time.Time
	HoldID    string // "" without a hold
}

// ConsumeParams names a permit to use up.
type ConsumeParams struct {
	Permit   []byte // the wire form, as received
	Expected permit.Expected
	Token    Token // drawn before the first send; zero: drawn by the callee
}

// Consumed is the grant of a permit.
type Consumed struct {
	NonceID  string
	HoldID   string // "" without a hold
	Token    Token  // settles the hold
	Repeated bool   // this same token had consumed it before
}

// ApprovalParams asks for the approval of a call.
type ApprovalParams struct {
	Call      permit.Expected // the exact call; every field must be given
	Arguments []byte          // JSON, whose hash is Call.ParameterHash: what the operator is shown; at most 64 KiB
	TTL       time.Duration   // how long it waits for a decision: whole seconds, 1 min to 24 h; 0: 1 h
}

// Approval is where a request for an approval stands.
type Approval struct {
	ID    string
	State approval.State // Pending, Granted or Denied
	// Permit is that of a granted one: the wire form, for Begin.
	Permit []byte
	// ExpiresAt is until when it can be decided, its permit can be used, or it stays denied.
	ExpiresAt time.Time
	Note      string // what the operator said
	Fresh     bool   // it was not asked for before, or what was is over
}

// HoldParams asks for a hold. The same RequestID and entries again give the same hold.
type HoldParams struct {
	RequestID string
	Entries   []Entry
	TTL       time.Duration // 1 s to 7 days
}

// Held is an open hold.
type Held struct {
	ID        string
	ExpiresAt time.Time
	Budgets   []Figures
	Repeated  bool
}

// VoidParams names an open hold.
type VoidParams struct {
	ID string
}

// Voided is the answer that a hold is void.
type Voided struct {
	Budgets  []Figures
	Repeated bool
}

// State says what a [Begin] allows. The zero State allows nothing.
type State string

// The states of an answer that is no refusal.
const (
	// Execute: the caller holds the operation, and nobody ever did before: perform the effect, then Complete.
	Execute State = "execute"
	// Replay: it has happened; the receipt is the answer.
	Replay State = "replay"
)

// BeginParams claims an operation.
type BeginParams struct {
	Key         string // 1 to 256 bytes of UTF-8 without control characters
	Fingerprint Fingerprint
	Lease       time.Duration // whole milliseconds, 1 s to 1 h; 0: 30 s
	// Permit is the wire form of the permit of this call, as received; nil: none is needed.
	Permit   []byte
	Expected permit.Expected // asked if there is a Permit
	// HoldID is an open hold of the owner to settle with the operation, if the permit carries none.
	HoldID   string
	Spend    []Entry // taken at once
	Metadata []byte  // a JSON object, kept with the operation; nil: none
	Token    Token   // drawn before the first send; zero: drawn by the callee
}

// Begun is the answer to a [BeginParams] that is no refusal.
type Begun struct {
	State State
	ID    string // of the operation
	Key   string
	// Repeated says that this same token had claimed it before.
	Repeated bool

	// With Execute:
	Token      Token
	Fence      uint64 // rises with every claim of the key; for whatever performs the effect
	LeaseUntil time.Time
	CreatedAt  time.Time
	HoldID     string    // of the hold to be captured, "" without one
	Budgets    []Figures // of every budget spent from, ancestors too

	// With Replay:
	Receipt     *operation.Receipt
	CompletedAt time.Time
}

// RenewParams names a held operation.
type RenewParams struct {
	ID    string
	Token Token
	Lease time.Duration // whole milliseconds, 1 s to 1 h; 0: 30 s
}

// Renewed is a lease that goes on.
type Renewed struct {
	LeaseUntil time.Time
}

// CompleteParams is the result of a held operation.
type CompleteParams struct {
	ID      string
	Token   Token
	Receipt operation.Receipt
	// Capture is what to charge of the hold; nil charges it in full, an empty list nothing. A budget of the hold that is
	// not named is given back.
	Capture *[]Entry
}

// Completed says that a receipt is durable.
type Completed struct {
	ReceiptExpiresAt time.Time
	// Uncaptured is what was asked above the hold and did not fit the budgets.
	Uncaptured []Entry
	// Unsettled says that the receipt was recorded although its hold could not be settled: the amounts stay fenced.
	Unsettled bool
	// NotRetained stands for a receipt that was too large to keep: a replay will not give it.
	NotRetained *operation.NotRetained
	Repeated    bool
}

// AbortParams takes back a held operation.
type AbortParams struct {
	ID     string
	Token  Token
	Reason string // at most 1024 bytes
}

// AbortResult says that a claim is void.
type AbortResult struct {
	// Unsettled says that its hold or spends could not be given back.
	Unsettled bool
	Repeated  bool
}

// ResolveParams is what an operator found out.
type ResolveParams struct {
	ID string
	// Key shows that an operation whose record is damaged is the caller's own; who may resolve everybody's needs none, but
	// should act for its owner: from then on the operation is the owner's that the caller acts for.
	Key     string
	Outcome operation.Outcome
	Receipt operation.Receipt // with Happened
	Capture *[]Entry          // with Happened; see [CompleteParams]
	Note    string            // why; at most 1024 bytes, required
	// Fingerprint replaces that of a damaged record, so that its request is replayed; else it is a mismatch from then on.
	Fingerprint Fingerprint
}

// ResolveResult is where the operation stands from now on.
type ResolveResult struct {
	State      operation.State // Settled or Aborted
	Uncaptured []Entry
	Unsettled  bool
	Repeated   bool // it had been resolved like this before
}
