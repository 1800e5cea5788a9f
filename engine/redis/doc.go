// Package redis keeps records in Redis 7 or newer or in Valkey, for any number
// of processes, in one server or spread by scope over a cluster.
//
// A transaction is two round trips: one script reads its keys with the
// server's clock, and one compares everything that was read and writes. Its
// answer is as durable as the server's own answers are, which is why [Open]
// checks the settings of every node ([Settings]) and refuses weaker ones.
//
// # Layout
//
// All keys of a scope begin with a hash tag of its name, so that they are in
// one hash slot. A record is a field, named by its ID, of a hash: the bucket.
// Kinds whose IDs are hashes themselves have 4,096 buckets in the order of the
// IDs; the buckets so are the index by which they are listed, and a record
// costs no entry in a sorted set of names, which would take 130 bytes and, with
// a million of them, longer than everything else that a claim does. The other
// kinds (budgets, credentials, counters, …) are few and long-lived: they have a
// sorted set of their names. Records that expire or have a lease have one entry
// in a sorted set by time. A claim with a body of 150 bytes takes about 600
// bytes of the server's memory in all.
//
// A scope moves between the nodes of a cluster as a whole. While its slot is
// moved key by key (before Redis 8.4 and Valkey 9), transactions of the scope
// are refused, since no node has all of its records.
package redis
