//go:build !linux

package private

import "golang.org/x/sys/unix"

const passThrough = unix.O_RDONLY
