//go:build race

package crash

// pointsToTry is smaller under the race detector, which slows everything down.
const pointsToTry = 1_000
