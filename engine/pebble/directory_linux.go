package pebble

import (
	"fmt"
	"os"
)

// path names the open directory itself, wherever it is renamed to.
func (d *directory) path() string {
	pinned := fmt.Sprintf("/proc/self/fd/%d", d.root.Fd())
	if _, err := os.Stat(pinned); err != nil { //nolint:gosec // a file descriptor of our own
		return d.name // without /proc: by name, as on other systems
	}
	return pinned
}
