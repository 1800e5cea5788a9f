package keyring_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// hold locks a keyring as another process that is changing it does.
func hold(t *testing.T, path string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	check(t, err)
	check(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	return func() { f.Close() }
}
