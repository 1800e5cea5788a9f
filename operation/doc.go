// Package operation answers whether an operation has happened already, or may have.
//
// An operation is one effect in the world that must not happen twice, named by its owner and a key. Before the effect its
// caller claims an intent; after it the caller settles the intent into a receipt, which every later request with the same
// key and fingerprint gets instead of a second run. In between stands the only case that no protocol can decide: an
// intent whose holder is gone. It is answered as [ErrOutcomeUnknown] and never run again until an operator, who has
// looked at the world, resolves it.
//
//	absent ──claim──► intent ──complete──► receipt ──retention over──► tombstone ──► absent
//	                  │    └───resolve───► receipt
//	                  └─abort, resolve───► void (as if absent)
//
// The words used throughout:
//
//   - fingerprint: what tells one request from another under the same key. Another fingerprint is [ErrMismatch], and
//     nothing that is stored is revealed.
//   - token: 16 random bytes that prove that a caller holds the intent. Drawn before the first send, so that a request
//     sent again is recognised.
//   - lease: until then the holder is taken to be alive. It guards nothing but the answer: an intent whose lease is over
//     stays claimed.
//   - fence: a number that only rises for one key, to hand to what performs the effect, so that it can refuse an older
//     holder.
//   - tombstone: what is left of a receipt past its retention: the key is refused with [ErrKeyExpired], not run again.
//
// This package builds the parts of batches that concern operations and reads their outcomes. What is done together with
// a permit and budgets, in one batch, is done by the root package.
package operation
