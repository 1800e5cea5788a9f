// Package permit answers whether an exact call is authorised, now, and for the first time.
//
// A permit is an execution nonce in the wire format chio.execution_nonce.v1: a nonce that an issuer bound to one call
// (who, with which capability, which tool on which server, which request, which arguments) and signed with Ed25519 over
// the canonical JSON (RFC 8785) of the nonce object. It lives at most an hour and is good for one use.
//
// A received permit is read strictly. Refused as [ErrMalformed] before anything else: more than 16 KiB; anything that is
// not one JSON document of exactly the known members; duplicate or unknown members at any depth, null, a sign, a
// fraction or an exponent where an integer belongs, invalid UTF-8, a lone surrogate, data after the document; a
// signature that is not 128 lower-case hex digits; a window that is empty or longer than 3601 s. Then come the schema,
// the time window, the binding field by field, and the signature, in this order; the first fault is the answer. An empty
// field never matches, and nothing is used up by a permit that is refused.
//
// [Verify] does all of this offline. That a permit is used once only the store can tell: [Permits] mints permits under the
// keys of a scope, and uses each up in one durable step, which claims a marker under the issuer's public key and the nonce
// id, compares four floors and looks at the expiry once more.
//
//	          ┌─check──► could be used now
//	mint ──► permit ──consume──► granted, once; its marker lives until the permit expires, and some minutes on
//	          └─revoke──► refused, for every permit issued at or before a floor
//
// A marker that the store has no room for is a permit that is refused: nothing live is ever given up for it.
//
// Using a permit together with what it allows, claiming an operation or fencing the hold that it carries, is done by the
// root package: it puts the [Part] of [Permits.Use] into a batch with the others'.
package permit
