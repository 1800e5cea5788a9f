// Package challenge answers whether a request to release a key is fresh and belongs to the current epoch.
//
// A job that wants a key is issued a challenge: 32 random bytes, its nonce, bound to the epoch of the scope at that
// moment. The job attests with the nonce; whoever releases the key consumes the challenge first, and only then releases.
// A nonce is consumed once, whatever the number of callers, processes, retries and crashes.
//
//	absent ──issue──► pending ──consume──► consumed ──marker over──► absent
//	                   │   └─time over, epoch advanced─► expired ──issue──► pending, with another nonce
//	                   └─issue with supersede─► pending, with another nonce
//
// The words used throughout:
//
//   - job: the 32 bytes that name what wants the key. A job belongs to the scope: while one owner's challenge for it is
//     pending or consumed, nobody can be issued another.
//   - epoch: a number of the scope that only rises. Advancing it ends every challenge that is pending.
//   - marker: what is left of a consumed challenge. While it lives, [DefaultKeep] unless said otherwise and never shorter
//     than the nonce could have been valid, the job is refused as [ErrAlreadyConsumed].
//   - AAD: the bytes to bind a sealed key to, so that it opens for this epoch, job and nonce alone.
//
// No lock is held while a caller attests or seals: what is remembered lies in the store.
package challenge
