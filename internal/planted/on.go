//go:build planted

package planted

import "os"

var planted = Bug(os.Getenv("COUNTERFOIL_PLANTED"))

// On reports whether the bug is planted.
func On(bug Bug) bool { return bug == planted }
