package pebble

import (
	"fmt"

	"github.com/counterfoil/counterfoil/engine"
)

// LockedError says who has a store open. It unwraps to [engine.ErrLocked].
type LockedError struct {
	Dir  string
	PID  int    // of the process that has it open; 0 if that is not known
	Addr string // where that process serves, if it said so with SetHolder
}

// Error names the directory and its holder, and what to do.
func (e *LockedError) Error() string {
	switch {
	case e.PID == 0:
		return fmt.Sprintf("the store in %s is in use by another process; only one can have it open", e.Dir)
	case e.Addr == "":
		return fmt.Sprintf("the store in %s is in use by process %d; stop it first: only one process can have a store open", e.Dir, e.PID)
	default:
		return fmt.Sprintf("the store in %s is in use by process %d, which serves at %s; ask it there, or stop it first", e.Dir, e.PID, e.Addr)
	}
}

// Unwrap gives the sentinel.
func (e *LockedError) Unwrap() error { return engine.ErrLocked }
