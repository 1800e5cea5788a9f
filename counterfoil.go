// Package counterfoil is the guarded call: it puts permit, operation and budgets of one side effect into one durable step
// each.
//
//	Authorize ──► Begin ──► the effect ──► Complete
//	(hold and    (claim the operation,    (record the receipt,
//	 permit)      consume the permit,      capture the hold)
//	              fence the hold, spend)
//
// The promise is: at most once, never over budget, and when the outcome cannot be known, it says so and refuses. Nothing
// outside Counterfoil is ever said to have happened exactly once.
package counterfoil
