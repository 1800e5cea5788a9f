// Package state holds every rule of Counterfoil as pure code: keys, records
// and their sealed encoding, the operations that a batch is made of, and
// [Decide], which alone says whether a batch takes effect.
//
// Nothing in this package does I/O, reads a clock, draws randomness or takes a
// lock. A caller reads the records that a batch names, hands them over in a
// [View] together with the batch and the time, and gets an [Outcome] and the
// records to write. Because all engines run the same Decide, two backends
// cannot drift apart.
//
// Times are integer Unix milliseconds, 0 meaning "none". Amounts, limits and
// counters are integers from 0 to [MaxAmount]; every sum is checked.
//
// The words used throughout:
//
//   - A record is live while it is neither void nor expired; only a live
//     record stands in the way of a Claim.
//   - pending: claimed, not finished. settled: finished for good. void:
//     dropped, absent to Claim and to quotas, kept a while to tell a retry.
//   - A tombstone is a settled record whose body is past its retention: it
//     still stands in the way, but has nothing to replay.
//   - The anchor is the first op of a mutating batch; it alone decides whether
//     the batch is a repetition of one that was applied before.
package state
