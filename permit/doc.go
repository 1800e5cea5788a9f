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
// [Verify] does all of this offline. That a permit is used once only the store can tell.
package permit
