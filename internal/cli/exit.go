package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/open"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// Code is an exit code. Those above 2 are the ones of sysexits.h.
type Code int

// The exit codes.
const (
	Done        Code = 0
	Refused     Code = 1  // and nothing was written
	Usage       Code = 2  // the command line, or a value on it, is not as it must be
	Unavailable Code = 69 // there is no store to ask: in use, missing, not reached, closed
	Internal    Code = 70 // a fault of the program, a damaged record, a disk that failed
	Unknown     Code = 75 // nobody can say whether it happened
)

// ranError is an error of a command that was called as it must be.
type ranError struct{ err error }

func (e *ranError) Error() string { return e.err.Error() }
func (e *ranError) Unwrap() error { return e.err }

// usageError is a command line that was not as it must be.
type usageError struct {
	err     error
	program string
}

func (e *usageError) Error() string { return e.err.Error() + "; see '" + e.program + " --help'" }
func (e *usageError) Unwrap() error { return e.err }

// exitError is an error that knows its exit code, and says itself what to do.
type exitError struct {
	code  Code
	err   error
	cause error // not shown, or nil
}

// Error says what is wrong, and what to do.
func (e *exitError) Error() string { return e.err.Error() }

// Unwrap gives what is beneath.
func (e *exitError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.err}
	}
	return []error{e.err, e.cause}
}

func exit(code Code, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// instead says an error in other words.
func instead(cause error, code Code, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...), cause: cause}
}

// badValue is a value on the command line that is never accepted.
func badValue(format string, args ...any) error { return exit(Usage, format, args...) }

// codes says with what the program exits for an error. The first that errors.Is finds counts.
var codes = []struct {
	err  error
	code Code
}{
	{state.ErrUnknown, Unknown},
	{operation.ErrOutcomeUnknown, Unknown},
	{keyring.ErrUnknown, Unknown},
	{state.ErrLatched, Unavailable},
	{state.ErrClock, Unavailable},
	{state.ErrUnavailable, Unavailable},
	{state.ErrKeyUnknown, Unavailable},
	{engine.ErrLocked, Unavailable},
	{engine.ErrNoStore, Unavailable},
	{engine.ErrForeign, Unavailable},
	{engine.ErrUnavailable, Unavailable},
	{engine.ErrClosed, Unavailable},
	{engine.ErrConflict, Unavailable},
	{engine.ErrUnsafe, Unavailable},
	{engine.ErrAmbiguous, Unknown},
	{store.ErrRolledBack, Unavailable},
	{store.ErrWitness, Unavailable},
	{keyring.ErrMissing, Unavailable},
	{keyring.ErrUnsafe, Unavailable},
	{keyring.ErrForeign, Unavailable},
	{keyring.ErrUnavailable, Unavailable},
	{keyring.ErrCorrupt, Internal},
	{state.ErrCorrupt, Internal},
	{engine.ErrBroken, Internal},
	{engine.ErrStoreExists, Refused},
	{keyring.ErrExists, Refused},
	{keyring.ErrNoKey, Refused},
	{keyring.ErrInUse, Refused},
	{keyring.ErrTaken, Refused},
	{keyring.ErrTooSoon, Refused},
	{keyring.ErrFull, Refused},
	{keyring.ErrInvalid, Usage},
	{store.ErrScopeExists, Refused},
	{state.ErrNoScope, Refused},
	{access.ErrForbidden, Refused},
	{access.ErrExists, Refused},
	{access.ErrInvalid, Usage},
	{open.ErrURL, Usage},
	{state.ErrInvalid, Usage},
	{fs.ErrPermission, Unavailable},
	{fs.ErrNotExist, Unavailable},
}

// codeOf says with what the program exits.
func codeOf(err error) Code {
	var known *exitError
	if errors.As(err, &known) {
		return known.code
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return Usage
	}
	var p *api.Problem
	if errors.As(err, &p) {
		return codeOfProblem(p)
	}
	for _, row := range codes {
		if errors.Is(err, row.err) {
			return row.code
		}
	}
	return Internal
}

// codeOfProblem sorts a server's refusals. What says that there is no store to ask is 69; a quota that is used up and a
// quarantine are refusals like any other.
func codeOfProblem(p *api.Problem) Code {
	switch p.Code {
	case api.CommitUnknown, api.OutcomeUnknown:
		return Unknown
	case api.Malformed, api.Invalid, api.TooLarge:
		return Usage
	case api.Internal, api.RecordCorrupt, api.MethodNotAllowed, api.UnsupportedMediaType:
		return Internal
	case api.StoreUnavailable, api.ClockRefused, api.Latched, api.KeyUnknown, api.Overloaded, api.Draining, api.RequestTimeout:
		return Unavailable
	}
	return Refused
}

// failure is an error as --json shows it.
type failure struct {
	Code   api.Code     `json:"code,omitzero"`
	Error  string       `json:"error"`
	Do     string       `json:"do,omitzero"`
	Exit   Code         `json:"exit"`
	Refuse *api.Problem `json:"problem,omitempty"`
}

// report says what went wrong, in one line, and returns the exit code.
func (a *app) report(err error) Code {
	f := failure{Error: oneLine(err.Error()), Exit: codeOf(err)}
	var quiet *quietError
	if errors.As(err, &quiet) {
		return Code(quiet.code)
	}
	var p *api.Problem
	if errors.As(err, &p) {
		row, _ := p.Code.Info()
		f.Code, f.Do, f.Refuse = p.Code, row.Do, p
		if f.Exit == Usage {
			f.Do = "" // which says where in a body to look
		}
	}
	var said *exitError
	var exceeded *budget.ExceededError
	switch {
	case errors.As(err, &said):
		f.Error, f.Do = oneLine(said.Error()), ""
	case errors.As(err, &exceeded):
		f.Error, f.Do = "budget_exceeded: "+strings.TrimPrefix(exceeded.Error(), "budget: "), "Ask for less, or raise the limit."
		if wait := client.RetryAfter(err); wait > 0 {
			f.Do = "Ask for less, raise the limit, or try again in " + wait.String() + "."
		}
	}
	if a.json {
		if line, err := json.Marshal(&f); err == nil {
			fmt.Fprintf(a.Err, "%s\n", line)
			return f.Exit
		}
	}
	line := "counterfoil: " + f.Error
	if f.Do != "" {
		line = strings.TrimSuffix(line, ".") + ". " + f.Do
	}
	fmt.Fprintln(a.Err, line)
	return f.Exit
}

// quietError ends the program with a code that is not Counterfoil's own, such as that of a command which it ran.
type quietError struct{ code int }

func (*quietError) Error() string { return "" }

// note tells something that is no error.
func (a *app) note(text string) { fmt.Fprintln(a.Err, "counterfoil: "+oneLine(text)) }

func oneLine(text string) string { return strings.Join(strings.FieldsFunc(text, isBreak), "; ") }

func isBreak(r rune) bool { return r == '\n' || r == '\r' }
