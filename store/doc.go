// Package store makes [state.Decide] durable. It gathers batches that wait at
// the same time into groups, decides a group on one snapshot of an engine, one
// batch on top of the other, and commits it as one transaction. Nothing is
// answered before its group is durable, refusals included.
//
// Every answer is one of three: an outcome that was applied (or had been
// before), an outcome that was refused and wrote nothing, or an error. Of the
// errors only [state.ErrUnknown] leaves open whether the batch took effect;
// whoever gets it must treat the effect as not theirs.
//
// The store also keeps what decisions rest on: the time, which never goes back
// for a record; this instance's slot in each scope, through which a commit of
// unknown outcome is settled; a witness file beside an embedded engine, which
// shows a rollback; and the sweeper, which no correctness waits for.
package store
