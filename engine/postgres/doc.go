// Package postgres is the engine for many processes on one PostgreSQL cluster
// of record, 14 or newer.
//
// A transaction reads its keys in one statement, is decided in Go, and is
// applied by one call of the function counterfoil.swap, in one round trip
// together with BEGIN and COMMIT: it locks every key in one order, compares
// every version that was read, checks the clock and writes. The isolation is
// READ COMMITTED; safety comes from the locks and the comparison alone. Reads
// never go to a standby.
//
// A COMMIT is never cancelled, whatever the caller's context says: with a
// synchronous standby away a cancelled commit is reported as done although the
// standby may lose it. Only the engine's own bound ends the wait, and then the
// outcome is ambiguous; so it is if the server sends any notice while it
// commits, or the connection breaks.
package postgres
