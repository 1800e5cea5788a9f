// Package budget answers whether an amount fits every budget that it touches, and takes it in the same step.
//
// A budget is a limit on the sum of what its callers use, in whole units that its definition names (money in micros,
// tokens, calls): for ever, or anew in each window. It may have a parent, and then everything that counts in it counts in
// the parent too. No sequence of calls, from any number of processes, ever makes the use exceed the limit that was in
// force when the last of it was granted.
//
//	used = spent + fenced + held by holds that are not over
//
// The words used throughout:
//
//   - entry: a budget and an amount, as a caller names them. What counts is the entries with all ancestors of theirs.
//   - spend: takes at once. A refund gives back exactly what one spend took, once.
//   - hold: reserves until a moment. While it is open its owner captures it (spends of it what is needed; the rest
//     returns), voids it (all returns) or extends it. When it ends by itself, everything returns in the same instant.
//   - fence: what the use of a permit does to the hold that was made for it: it no longer ends by itself, and only the
//     outcome of what was permitted settles it.
//   - extra: what a capture asks for above the hold. It is charged if it fits, as a whole, in every budget; else nothing
//     of it is, the capture is cut to the hold, and the rest is answered as uncaptured.
//   - window: the time over which a budget's amounts count. A hold or spend belongs, in each budget, to the window and the
//     definition of the budget that it was made in: settled or refunded later, it leaves other windows alone.
//
// # An example by hand
//
// The budget acme has a limit of 100, acme/search one of 60 and acme as its parent. A hold of 50 on acme/search leaves 10
// there and 50 in acme. It is captured with 55: 50 are spent, and the extra 5 fit both budgets (55 of 60, 55 of 100), so
// that they are spent too. Had acme been used up by somebody else meanwhile, 50 would have been captured and 5 answered as
// uncaptured, in both budgets.
//
// The first answer to a request id is kept with what it made. The same request again is answered with it, and with
// Repeated set; another request under the same id is [ErrRequestIDReused].
//
// A [Part] is what this package puts into a batch that other capabilities share: the use of a permit fences its hold in the
// step that consumes it.
package budget
