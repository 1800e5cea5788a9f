// Package planted puts known bugs into test binaries, so that each suite can
// show that it catches the ones it claims to.
//
// Code under test asks [On] at the place where a bug would live:
//
//	if planted.On(planted.UnsyncedCommit) {
//		return nil
//	}
//
// In a normal build On is the constant false and the compiler drops the
// branch: no binary that is shipped can misbehave on demand. In a build with
// the tag "planted" the environment variable COUNTERFOIL_PLANTED names the one
// bug that is on. The test of this package runs, for every bug, the tests that
// must catch it, once without the bug (they pass) and once with it (they fail).
package planted

// Bug names a planted bug. Its string is the value of COUNTERFOIL_PLANTED.
type Bug string

// The planted bugs.
const (
	RefusalThatWrites Bug = "refusal-that-writes" // Decide returns the writes of a batch that it refuses
	OwnTokenAnywhere  Bug = "own-token-anywhere"  // a record of one's own token is taken for a repetition outside the anchor
	HoldFreedTwice    Bug = "hold-freed-twice"    // what a hold's bucket gives back is given back twice
	UncomparedCount   Bug = "uncompared-count"    // a count shard is used without being part of the read set
	SecondClock       Bug = "second-clock"        // expiry is judged by another clock than the batch's
	UnsyncedCommit    Bug = "unsynced-commit"     // a commit is answered before it is durable
	WrittenKeysOnly   Bug = "written-keys-only"   // only the keys that are written are compared
	RestartedVersions Bug = "restarted-versions"  // versions are counted from the start of the process
	CorruptIsAbsent   Bug = "corrupt-is-absent"   // a record that cannot be read is taken for absent
	FatalThatReturns  Bug = "fatal-that-returns"  // a failed fsync is logged and the commit goes on
)
