//go:build clockstep

package clock

import (
	"os"
	"strings"
	"time"
)

// stepFile names a file with a duration by which the wall clock of this process is off. It is read at every look at the
// clock, so that a test can step the clock of a process that runs. Only test binaries are built with this tag.
var stepFile = os.Getenv("CLOCK_STEP_FILE")

func step() time.Duration {
	text, err := os.ReadFile(stepFile)
	if err != nil {
		return 0
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		panic("CLOCK_STEP_FILE holds no duration")
	}
	return d
}
