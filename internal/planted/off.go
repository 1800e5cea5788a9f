//go:build !planted

package planted

// On reports whether the bug is planted: never, in this build.
func On(Bug) bool { return false }
