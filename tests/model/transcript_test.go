package model

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/internal/testserver"
)

// TestTheSameSeedGivesTheSameTranscriptOnEveryEngine runs the same programs everywhere, and compares everything that was
// asked and answered byte for byte. What is asked depends on what was answered before.
func TestTheSameSeedGivesTheSameTranscriptOnEveryEngine(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it needs servers")
	}
	redis := testserver.Redis(t, testserver.RedisOptions{})
	postgres := testserver.Postgres(t, testserver.QuickPostgres)
	engines := []struct {
		name string
		made func() place
	}{
		{"memory", func() place { return &inMemory{} }},
		{"pebble", func() place { return &onDisk{} }},
		{"redis", func() place { return &onRedis{server: redis} }},
		{"postgres", func() place { return &onPostgres{server: postgres} }},
	}
	lines := 0
	for seed := range 5 {
		var first string
		for i, e := range engines {
			transcript := rapid.Custom(func(r *rapid.T) string { return run(r, e.made(), 0) }).Example(seed)
			switch {
			case i == 0:
				first = transcript
				lines += strings.Count(first, "\n")
			case transcript != first:
				t.Errorf("seed %d: %s differs from %s: %s", seed, e.name, engines[0].name, difference(first, transcript))
			}
		}
	}
	if lines < 60 {
		t.Errorf("the transcripts have %d lines together, which shows nothing", lines)
	}
}

// difference shows the first lines that differ.
func difference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return "\n" + as[i] + "\n" + bs[i]
		}
	}
	return "one is longer"
}
