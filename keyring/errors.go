package keyring

import "errors"

// Errors of opening and reloading.
var (
	// ErrMissing means: there is no keyring.
	ErrMissing = errors.New("keyring: there is none")
	// ErrExists means: there is a keyring already where one was to be created.
	ErrExists = errors.New("keyring: there is one already")
	// ErrUnsafe means: the directory or file could be read or changed by others.
	ErrUnsafe = errors.New("keyring: not private")
	// ErrCorrupt means: the file is damaged, cut off or edited.
	ErrCorrupt = errors.New("keyring: damaged")
	// ErrForeign means: what is there is no keyring, is of another format, or is not the one that was opened.
	ErrForeign = errors.New("keyring: foreign")
)

// Errors of changes. After all but [ErrUnknown] nothing was changed.
var (
	// ErrInvalid means: what was asked for is not well-formed.
	ErrInvalid = errors.New("keyring: invalid")
	// ErrNoKey means: the keyring has no such key.
	ErrNoKey = errors.New("keyring: no such key")
	// ErrNoSigningKey means: the scope has no key to sign with.
	ErrNoSigningKey = errors.New("keyring: the scope has no signing key")
	// ErrInUse means: the key is the one that is written or signed with.
	ErrInUse = errors.New("keyring: the key is in use")
	// ErrTaken means: the public key is accepted already, in this scope or another.
	ErrTaken = errors.New("keyring: the public key is taken")
	// ErrTooSoon means: other processes may not have taken up the key yet.
	ErrTooSoon = errors.New("keyring: too soon")
	// ErrFull means: a limit of the keyring is reached.
	ErrFull = errors.New("keyring: full")
	// ErrUnavailable means: the keys could not be read or written, or another process held the lock for too long.
	ErrUnavailable = errors.New("keyring: unavailable")
	// ErrUnknown means: the change may or may not last. List the keys to see, and ask for it again.
	ErrUnknown = errors.New("keyring: it is not known whether the change was kept")
)
