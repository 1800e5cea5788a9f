//go:build !race

package crash

// pointsToTry is how many crash points a whole run tries at least.
const pointsToTry = 20_000
