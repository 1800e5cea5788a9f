package api

import (
	"net/http"
	"slices"
	"time"
)

// Code names a refusal. The set is closed: [Codes] lists it.
type Code string

// The codes, in the order of [Codes].
const (
	Malformed               Code = "malformed"
	Invalid                 Code = "invalid"
	PermitMalformed         Code = "permit_malformed"
	PermitUnsupportedSchema Code = "permit_unsupported_schema"

	Unauthenticated        Code = "unauthenticated"
	Forbidden              Code = "forbidden"
	PermitBindingMismatch  Code = "permit_binding_mismatch"
	PermitSignatureInvalid Code = "permit_signature_invalid"
	PermitRevoked          Code = "permit_revoked"
	PermitNotYetValid      Code = "permit_not_yet_valid"
	ChallengeMismatch      Code = "challenge_mismatch"

	BudgetExceeded Code = "budget_exceeded"

	NotFound         Code = "not_found"
	ChallengeUnknown Code = "challenge_unknown"
	BudgetUnknown    Code = "budget_unknown"

	PermitReplayed    Code = "permit_replayed"
	InFlight          Code = "in_flight"
	OutcomeUnknown    Code = "outcome_unknown"
	NotPending        Code = "not_pending"
	NotHolder         Code = "not_holder"
	Aborted           Code = "aborted"
	Stale             Code = "stale"
	ChallengePending  Code = "challenge_pending"
	ChallengeConsumed Code = "challenge_consumed"
	EpochStale        Code = "epoch_stale"
	EpochConflict     Code = "epoch_conflict"
	RequestIDReused   Code = "request_id_reused"
	HoldSettled       Code = "hold_settled"
	HoldFenced        Code = "hold_fenced"
	BudgetDiffers     Code = "budget_differs"

	PermitExpired      Code = "permit_expired"
	KeyExpired         Code = "key_expired"
	ReceiptNotRetained Code = "receipt_not_retained"
	ChallengeExpired   Code = "challenge_expired"
	HoldExpired        Code = "hold_expired"

	MethodNotAllowed     Code = "method_not_allowed"
	RequestTimeout       Code = "request_timeout"
	TooLarge             Code = "too_large"
	UnsupportedMediaType Code = "unsupported_media_type"

	KeyReused  Code = "key_reused"
	OwnerQuota Code = "owner_quota"

	Internal         Code = "internal"
	RecordCorrupt    Code = "record_corrupt"
	StoreFull        Code = "store_full"
	StoreUnavailable Code = "store_unavailable"
	CommitUnknown    Code = "commit_unknown"
	ClockRefused     Code = "clock_refused"
	Latched          Code = "latched"
	Recovering       Code = "recovering"
	KeyUnknown       Code = "key_unknown"
	Overloaded       Code = "overloaded"
	Draining         Code = "draining"
)

// Retry says whether the same request may be sent again with a hope of another answer.
type Retry uint8

// The kinds of retry.
const (
	RetryNever   Retry = iota
	RetryAlways        // after a while
	RetryDepends       // on the answer: the row's When says on what
)

// CodeInfo is a row of the table of codes.
type CodeInfo struct {
	Code     Code
	Statuses []int  // HTTP statuses, the usual one first
	Title    string // the problem's title, the same in every answer
	Meaning  string // what happened, for whoever reads /problems/<code>
	Do       string // what to do about it
	Retry    Retry
	When     string        // RetryDepends: when it may be sent again
	Wait     time.Duration // the Retry-After of an answer that knows nothing better; 0: none
	Members  []string      // members that the problem has besides those that all have
}

// Status returns the usual HTTP status of the code.
func (i CodeInfo) Status() int { return i.Statuses[0] }

// Codes returns the table of all codes. The caller may keep and change it.
func Codes() []CodeInfo { return slices.Clone(codes) }

// Info returns the row of a code, false for one that is not in the table.
func (c Code) Info() (CodeInfo, bool) {
	i, ok := rows[c]
	if !ok {
		return CodeInfo{}, false
	}
	return codes[i], true
}

var rows = func() map[Code]int {
	m := make(map[Code]int, len(codes))
	for i, row := range codes {
		m[row.Code] = i
	}
	return m
}()

var codes = []CodeInfo{
	{
		Code: Malformed, Statuses: []int{http.StatusBadRequest}, Title: "The request is not of the form that the route takes",
		Meaning: "The body is not strict JSON in UTF-8, has unknown, duplicate or missing members, null or a value of another type; or the query or a header is badly written.",
		Do:      "Correct the request. `pointer` names the place in the body.", Members: []string{"pointer"},
	},
	{
		Code: Invalid, Statuses: []int{http.StatusBadRequest}, Title: "A value of the request is out of its range or form",
		Meaning: "The request has the right members, but one has a value that is never accepted.",
		Do:      "Correct the value that `detail` and `pointer` name.", Members: []string{"pointer"},
	},
	{
		Code: PermitMalformed, Statuses: []int{http.StatusBadRequest}, Title: "The permit is not a permit",
		Meaning: "What was sent as a permit is JSON, but not an execution nonce with its signature. Nothing was used up.",
		Do:      "Send the permit as it was issued, byte for byte.",
	},
	{
		Code: PermitUnsupportedSchema, Statuses: []int{http.StatusBadRequest}, Title: "The permit has another schema",
		Meaning: "The permit's schema is not chio.execution_nonce.v1.",
		Do:      "Ask an issuer of that schema for a permit.",
	},
	{
		Code: Unauthenticated, Statuses: []int{http.StatusUnauthorized}, Title: "No valid token",
		Meaning: "The header Authorization is missing, not of the form `Bearer cf_…`, or its token is unknown or revoked.",
		Do:      "Send a valid token.",
	},
	{
		Code: Forbidden, Statuses: []int{http.StatusForbidden}, Title: "The token does not allow this",
		Meaning: "The token lacks the role, or is not for that owner, scope or budget.",
		Do:      "Use a token that has what `detail` names.",
	},
	{
		Code: PermitBindingMismatch, Statuses: []int{http.StatusForbidden}, Title: "The permit is bound to another call",
		Meaning: "The field that `field` names differs between the permit and the call. Nothing was used up.",
		Do:      "Use the permit for the call that it was issued for.", Members: []string{"field"},
	},
	{
		Code: PermitSignatureInvalid, Statuses: []int{http.StatusForbidden}, Title: "No accepted key signed the permit",
		Meaning: "The permit was changed, or was signed by an issuer that this scope does not trust. Nothing was used up.",
		Do:      "Use the permit as issued, or trust the issuer's public key.",
	},
	{
		Code: PermitRevoked, Statuses: []int{http.StatusForbidden}, Title: "The permit was revoked",
		Meaning: "Permits issued up to a later time than this one are refused for its scope, subject or capability.",
		Do:      "Ask for a new permit, if that is still allowed.",
		Retry:   RetryDepends, When: "with Retry-After: a permit issued after that time is accepted",
	},
	{
		Code: PermitNotYetValid, Statuses: []int{http.StatusForbidden}, Title: "The permit is not valid yet",
		Meaning: "The permit was issued further in the future than clocks may differ.",
		Do:      "Compare the clocks of issuer and server.",
	},
	{
		Code: ChallengeMismatch, Statuses: []int{http.StatusForbidden}, Title: "Not the nonce that was issued",
		Meaning: "The nonce is not the one issued for the job. The challenge stays as it was.",
		Do:      "Send the nonce that the issue answered.",
	},
	{
		Code: BudgetExceeded, Statuses: []int{http.StatusPaymentRequired, http.StatusTooManyRequests}, Title: "It does not fit the budget",
		Meaning: "Every budget that would be exceeded is listed in `refused`. Nothing was taken from any.",
		Do:      "With 402 waiting cannot help: ask for less or raise the limit. With 429 send it again after Retry-After.",
		Retry:   RetryDepends, When: "with status 429", Members: []string{"refused"},
	},
	{
		Code: NotFound, Statuses: []int{http.StatusNotFound}, Title: "There is no such thing",
		Meaning: "Neither this path nor, for the scope and owner of this token, what it names exists.",
		Do:      "Check the path, the id and the token.",
	},
	{
		Code: ChallengeUnknown, Statuses: []int{http.StatusNotFound}, Title: "There is no challenge for this job",
		Meaning: "Nothing was issued for the job, or it is forgotten.",
		Do:      "Issue a challenge first.",
	},
	{
		Code: BudgetUnknown, Statuses: []int{http.StatusNotFound}, Title: "There is no such budget",
		Meaning: "A budget that is named was never defined in this scope, or was closed. Nothing was taken from any.",
		Do:      "Define the budget first. `pointer` names the place in the body, if it is there.", Members: []string{"pointer"},
	},
	{
		Code: PermitReplayed, Statuses: []int{http.StatusConflict}, Title: "The permit was used before",
		Meaning: "A permit is good for one use, and it has been used.",
		Do:      "Do not act on it. Ask for a new permit for a new call.",
	},
	{
		Code: InFlight, Statuses: []int{http.StatusConflict}, Title: "The operation is being executed",
		Meaning: "Another caller holds the operation, and its lease lives.",
		Do:      "Send it again after Retry-After: it is either replayed, or its outcome is unknown.", Retry: RetryAlways,
	},
	{
		Code: OutcomeUnknown, Statuses: []int{http.StatusConflict}, Title: "Nobody knows whether the operation happened",
		Meaning: "Whoever held the operation did not report before its lease ended: the effect may have happened.",
		Do:      "Find out whether it happened, then resolve the operation. Sending it again does not help.",
	},
	{
		Code: NotPending, Statuses: []int{http.StatusConflict}, Title: "It is finished already",
		Meaning: "It was completed, resolved, returned or decided before, otherwise than this request says, or the time to decide it is over.",
		Do:      "Read it and go on from what is recorded.",
	},
	{
		Code: NotHolder, Statuses: []int{http.StatusConflict}, Title: "Another caller holds it",
		Meaning: "The token is not the one that holds it now, or its lease is over and may not be renewed.",
		Do:      "Stop acting on it.",
	},
	{
		Code: Aborted, Statuses: []int{http.StatusConflict}, Title: "It was aborted",
		Meaning: "What this token had begun was aborted; a repetition does not revive it.",
		Do:      "Begin anew with a new token, if the effect is still wanted.",
	},
	{
		Code: Stale, Statuses: []int{http.StatusConflict}, Title: "The request came too late",
		Meaning: "The time until which the request could be decided is over. Nothing was done.",
		Do:      "Send it as a new request with a new token.",
	},
	{
		Code: ChallengePending, Statuses: []int{http.StatusConflict}, Title: "A challenge for this job is pending",
		Meaning: "A nonce was issued for the job and is not used yet.",
		Do:      "Use that nonce, or let its issuer supersede it.",
	},
	{
		Code: ChallengeConsumed, Statuses: []int{http.StatusConflict}, Title: "The challenge was consumed before",
		Meaning: "The job's nonce has been used; the job stays refused while its marker lives.",
		Do:      "Do not release the key again.",
	},
	{
		Code: EpochStale, Statuses: []int{http.StatusConflict}, Title: "The epoch is over",
		Meaning: "The epoch given, or the one of the challenge, is not the present one.",
		Do:      "Issue a new challenge in the present epoch.",
	},
	{
		Code: EpochConflict, Statuses: []int{http.StatusConflict}, Title: "The epoch is another one already",
		Meaning: "The epoch was advanced from the one named by somebody else.",
		Do:      "Read the epoch and decide anew.",
	},
	{
		Code: RequestIDReused, Statuses: []int{http.StatusConflict}, Title: "The request id was used for something else",
		Meaning: "The same request id came before with other content. Nothing was done.",
		Do:      "Use a new request id for new content.",
	},
	{
		Code: HoldSettled, Statuses: []int{http.StatusConflict}, Title: "The hold is settled",
		Meaning: "The hold was captured, voided or used, or its budget is gone.",
		Do:      "Make a new hold under a new request id.",
	},
	{
		Code: HoldFenced, Statuses: []int{http.StatusConflict}, Title: "The hold belongs to an operation",
		Meaning: "The hold was taken over by an operation or by the use of its permit, which alone settles it.",
		Do:      "Complete, abort or resolve that operation; after a bare consume, capture with its token.",
	},
	{
		Code: BudgetDiffers, Statuses: []int{http.StatusConflict}, Title: "The budget is defined otherwise",
		Meaning: "Unit, window and parent are fixed when a budget is created, and one of them differs.",
		Do:      "Change only the limit, or close the budget and define it anew.",
	},
	{
		Code: PermitExpired, Statuses: []int{http.StatusGone}, Title: "The permit has expired",
		Meaning: "The permit's time is over. It was not used up by this.",
		Do:      "Ask for a new permit.",
	},
	{
		Code: KeyExpired, Statuses: []int{http.StatusGone}, Title: "The operation's receipt is no longer kept",
		Meaning: "The operation was finished, and its receipt is past its retention: it is neither replayed nor run again.",
		Do:      "Use a new key for a new effect.",
	},
	{
		Code: ReceiptNotRetained, Statuses: []int{http.StatusGone}, Title: "The receipt was too large to keep",
		Meaning: "The operation was finished; of its receipt only `digest` (SHA-256, hex) and `length` in bytes are kept.",
		Do:      "Ask the system that has the effect for the result.", Members: []string{"digest", "length"},
	},
	{
		Code: ChallengeExpired, Statuses: []int{http.StatusGone}, Title: "The challenge has expired",
		Meaning: "The nonce was not used in time.",
		Do:      "Issue a new challenge.",
	},
	{
		Code: HoldExpired, Statuses: []int{http.StatusGone}, Title: "The hold has expired",
		Meaning: "The hold's time is over, and its amounts are back in their budgets.",
		Do:      "Make a new hold.",
	},
	{
		Code: MethodNotAllowed, Statuses: []int{http.StatusMethodNotAllowed}, Title: "The path does not take this method",
		Meaning: "The header Allow lists the methods that it takes.",
		Do:      "Use one of those.",
	},
	{
		Code: RequestTimeout, Statuses: []int{http.StatusRequestTimeout}, Title: "The request took too long to arrive",
		Meaning: "The body was not complete in time. Nothing was done.",
		Do:      "Send it again over a faster connection.", Retry: RetryAlways,
	},
	{
		Code: TooLarge, Statuses: []int{http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge}, Title: "The request is too large",
		Meaning: "The body (413) or the headers (431) have more bytes than the route takes. Nothing was done.",
		Do:      "Send less, for instance a hash instead of the content.",
	},
	{
		Code: UnsupportedMediaType, Statuses: []int{http.StatusUnsupportedMediaType}, Title: "The body is not declared as JSON",
		Meaning: "The header Content-Type is missing or is not application/json in UTF-8, or the body is compressed.",
		Do:      "Send `Content-Type: application/json`.",
	},
	{
		Code: KeyReused, Statuses: []int{http.StatusUnprocessableEntity}, Title: "The key was used for another request",
		Meaning: "The operation's key came before with another fingerprint. Nothing of that operation is revealed.",
		Do:      "Use a new key for a new request.",
	},
	{
		Code: OwnerQuota, Statuses: []int{http.StatusTooManyRequests}, Title: "The owner's share of the store is used up",
		Meaning: "The owner has as many live records as one owner may have. Nothing was done.",
		Do:      "Finish what is open, wait for records to expire, or raise the cap.", Retry: RetryAlways,
	},
	{
		Code: Internal, Statuses: []int{http.StatusInternalServerError}, Title: "The server failed",
		Meaning: "A fault of the server. Whether anything was done is not known.",
		Do:      "Report it with `instance`; the server's log has the cause under that id.",
	},
	{
		Code: RecordCorrupt, Statuses: []int{http.StatusInternalServerError}, Title: "A stored record is damaged",
		Meaning: "A record that the request needs does not authenticate or decode. It counts neither as present nor as absent.",
		Do:      "Let an operator look at `counterfoil doctor`.",
	},
	{
		Code: StoreFull, Statuses: []int{http.StatusServiceUnavailable}, Title: "The store is full",
		Meaning: "The scope has as many live records as its cap allows; no live record is evicted. Nothing was done.",
		Do:      "Wait for records to expire, or raise the cap.", Retry: RetryAlways,
	},
	{
		Code: StoreUnavailable, Statuses: []int{http.StatusServiceUnavailable}, Title: "The store is unavailable",
		Meaning: "The store did not take the request. Nothing was done.",
		Do:      "Send it again after Retry-After.", Retry: RetryAlways, Wait: time.Second,
	},
	{
		Code: CommitUnknown, Statuses: []int{http.StatusServiceUnavailable}, Title: "Nobody knows whether it was done",
		Meaning: "The store failed while the request was being recorded: it may be recorded or not. It is neither a yes nor a no.",
		Do:      "Do not act on it. Send the same request again with the same token, key or request_id; without one, look first.",
		Retry:   RetryDepends, When: "if the request carried a token, key or request_id", Wait: time.Second,
	},
	{
		Code: ClockRefused, Statuses: []int{http.StatusServiceUnavailable}, Title: "The clock cannot be trusted",
		Meaning: "The clock went back, or moved against the machine's uptime, by more than is absorbed. Nothing was done.",
		Do:      "Let an operator mend the clock, or accept it by `counterfoil clock rebaseline`.", Retry: RetryAlways,
	},
	{
		Code: Latched, Statuses: []int{http.StatusServiceUnavailable}, Title: "The store has closed itself",
		Meaning: "A write failed, and until the store is opened again nothing is granted.",
		Do:      "Let an operator look at the disk and restart the server.", Retry: RetryAlways,
	},
	{
		Code: Recovering, Statuses: []int{http.StatusServiceUnavailable}, Title: "The scope is in quarantine",
		Meaning: "State may have been lost. What finishes earlier work goes on; nothing new is begun until an operator lifts the quarantine.",
		Do:      "Wait for the operator.", Retry: RetryAlways,
	},
	{
		Code: KeyUnknown, Statuses: []int{http.StatusServiceUnavailable}, Title: "A record is sealed by a key that this server lacks",
		Meaning: "The integrity keys of this server are not those of the store. Nothing was done.",
		Do:      "Let an operator give this server the keys of the store.",
	},
	{
		Code: Overloaded, Statuses: []int{http.StatusServiceUnavailable}, Title: "Too many requests at once",
		Meaning: "The server has as many requests in progress as it takes. Nothing was done.",
		Do:      "Send it again after Retry-After.", Retry: RetryAlways, Wait: time.Second,
	},
	{
		Code: Draining, Statuses: []int{http.StatusServiceUnavailable}, Title: "The server is stopping",
		Meaning: "The server finishes what it has begun and takes nothing new. Nothing was done.",
		Do:      "Send it again, to another server or after the restart.", Retry: RetryAlways, Wait: time.Second,
	},
}
