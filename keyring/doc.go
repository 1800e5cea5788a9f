// Package keyring keeps the keys of a store: the integrity keys that seal its records, and for each scope the Ed25519 key
// that signs its permits and the public keys whose permits it accepts.
//
// # Files
//
// All keys stand in one file, keys/keyring.json, which only the account of this process may read. Opening never creates
// it: [Create] does, and only where there is none. A file that is missing, damaged, of another format or open to others
// is an error that names what mends it. Several processes may share the directory: changes are made one at a time under
// a lock, each durable before it is answered, and every process takes them up by [Keyring.Reload], which [Keyring.Watch]
// calls every [ReloadEvery].
//
// # Rotation
//
// What one process writes or signs, every other must be able to read. So a new key is accepted everywhere first and used
// after [Propagation], when every process has taken it up:
//
//	integrity keys    AddIntegrity, wait Propagation, WriteIntegrity; RetireIntegrity once no record is sealed under the old one
//	signing keys      RotateSigning: the new key signs Propagation later by itself; Retire the old one when its permits are over
//
// The first signing key of a scope signs at once. When a signing key has leaked: RotateSigning, then Retire the leaked
// one, which makes its successor sign at once; permits that it signed are refused from the next reload on.
//
// # What is refused
//
// A public key is accepted in at most one scope, or a permit could be used once in each; after it is retired, other
// scopes stay closed to it for [RetiredKept], longer than any permit lives. Keys under which a signature proves nothing
// (small order, not canonical) are refused when they are added and when a file with one is read.
//
// No secret appears in errors, in logs or in anything that this package formats. Who can read keys/ can forge permits
// and records; who can write it can also make the servers accept theirs. The file's checksum finds damage and edits by
// hand, not forgery, and an older copy of the whole file is not noticed by a process that starts on it.
package keyring
