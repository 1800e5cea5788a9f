// Package httpguard stands in front of HTTP handlers that must not act twice: as middleware for net/http, and as a reverse
// proxy in front of an API that knows nothing of it.
//
//	owner ──► key ──► fingerprint ──► claim ──► handler ──► durable receipt ──► first byte to the client
//
// A request is guarded if its method may have effects (POST and PATCH, if nothing else is said). Its Idempotency-Key names
// an operation of its owner: the handler is called if and only if [counterfoil.Caller] answers Execute, and what it answers
// is recorded before the client sees any of it. The same request again gets the recorded answer; another request under the
// same key is refused; and when nobody can know whether the handler had its effect, the answer is outcome_unknown.
//
// The package has no rule of its own about who may go on: that is what the Caller answers. Whatever is neither a yes of
// the Caller nor a receipt is a refusal, as problem+json with the codes of package api. Whatever leaves it open whether
// the effect has happened leaves the operation open: it becomes outcome unknown when its lease is over. A claim is taken
// back only if the handler says so ([NotPerformed]), or if the proxy could not connect to the upstream.
package httpguard
