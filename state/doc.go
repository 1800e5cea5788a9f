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
// # Records
//
//   - A scope is the unit of isolation: a batch touches one. Its own record
//     holds what every batch of the scope asserts.
//   - The generation of a scope rises when state was lost or taken back; its
//     epoch rises when an operator or a caller wants every key-release
//     challenge before it dead; its floor, and the floors of subjects and
//     capabilities, are times: what was issued at or before one is refused.
//   - A scope in quarantine, after state was rolled back, finishes and replays
//     what was begun, and begins nothing new.
//   - pending: claimed, not finished. settled: finished for good. void:
//     dropped, absent to Claim and to counts, kept a day to tell a retry.
//   - A record is live while it is neither void nor expired; only a live
//     record stands in the way of a Claim. Expired is judged when it is read,
//     by the batch's one time; no rule waits for a sweeper.
//   - A record's token proves who holds it. Its digest says what it was claimed
//     for; given, what its last change was given. Its lease is until when its
//     holder is taken to be alive. A fence is a number that rises with every
//     claim of an operation.
//   - The retention of a settled record is how long its body is given. What is
//     left then is a tombstone: it still stands in the way, and has nothing to
//     replay.
//   - Every record carries the version of the commit that wrote it, and is
//     sealed: whatever is not as it was written is corrupt, an error on every
//     path, and never absent.
//
// # Batches
//
//   - An op is one step of a batch; each has preconditions. If all of all ops
//     hold, the batch is applied, all of it; else it is refused, every
//     precondition that failed is listed, and nothing is written.
//   - The anchor is the first op of a mutating batch. It alone decides whether
//     the batch is a repetition of one that was applied before. In every other
//     op a record of one's own is in the way like anybody's.
//   - A batch is stale after its NotAfter, so that a late copy does nothing.
//
// # Counts
//
// Live records, tombstones and bytes of receipts are counted, for the scope and
// for each owner, in the commit that changes them. Each store instance counts
// in a shard of its own and has an allowance there; within it, it looks at no
// other shard. When it is used up it looks at all of them and takes what nobody
// was allowed, then what others were allowed and do not use. So a cap is exact,
// and away from it a claim costs the same however many records there are.
//
// # Budgets
//
// A budget is one record: a limit, a window, and the amounts in its buckets:
// spent, fenced, and held until a moment. Its use is the sum of them; a held
// amount counts until its moment and not a millisecond longer. A [Move] takes
// an amount out of one bucket and gives one to another, if and only if the use
// does not grow above the limit. An amount counts in the budget's parent, and
// in that one's, in the same bucket.
//
// An example by hand. The budget "team" has a limit of 100 for each hour, and
// it is 10:20. All holds are for 30 minutes: 1,800,000 ms, of which 1/16 is
// 112,500 ms; the largest power of two up to that is 65,536 ms, about a minute.
// A hold's end is rounded up to a multiple of it, so that all holds of the next
// half hour end at one of some 30 moments, and the list stays short.
//
//	                          spent  fenced  held            use  left
//	spend 40                     40       0     0             40    60
//	hold 30                      40       0    30             70    30
//	hold 31: over_limit          40       0    30             70    30
//	the hold is fenced           40      30     0             70    30
//	of it 25 are captured        65       0     0             65    35
//	hold 20                      65       0    20             85    15
//	30 minutes (and a bit) on    65       0     0             65    35
//	at 11:00                      0       0     0              0   100
//
// The hold of 31 is refused with these figures and leaves no trace. Captured
// are 25 of 30; the other 5 are free at once. The hold of 20 is neither captured
// nor void: it just ends, in the same instant for the hold and for the budget.
// At 11:00 the next window begins, with nothing in it, whatever was fenced or
// held in the one before: a late capture of that finds its window closed, and
// changes nothing in the new one. The example of the package runs this.
package state
