package main

import (
	"context"
	"testing"
	"time"
)

// TestEveryOrderIsChargedAtMostOnceThroughKillsAndRetries runs the demo and
// holds its balance against what is promised.
func TestEveryOrderIsChargedAtMostOnceThroughKillsAndRetries(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute; make test runs it")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r, err := run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
	if r.once+r.refused+r.didNot != orders {
		t.Fatalf("%d charged, %d refused and %d that did not happen are not %d orders", r.once, r.refused, r.didNot, orders)
	}
}
