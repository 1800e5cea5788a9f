// Package counter keeps plain counters for Go callers: named integers from 0 to 2^53 − 1 that are added to, raised, and
// spent up to a limit that the caller names.
//
// A spend of several counters takes all of them or none. A refusal leaves nothing behind, not even a counter at 0; what a
// step answers is what the step itself left, never a second read. Arithmetic never wraps: what would exceed 2^53 − 1 is
// refused.
//
// Unlike what package budget does, these calls carry no request id. One that ends with [state.ErrUnknown] may or may not
// have taken effect, and sent again it takes effect anew: for amounts that must count exactly once across retries, use
// budgets.
package counter
