package enginetest

import (
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
)

func readClauses() []clause {
	return []clause{
		{"ReadGivesPresentAndAbsentKeysInTheirOrder", nil, readInOrder},
		{"NowFollowsTheClock", hasClock, nowFollows},
		{"GuaranteeIsComplete", nil, guaranteeComplete},
	}
}

func readInOrder(t *testing.T, f Fixture) {
	a, c := item("a"), item("c")
	mustWrite(t, f.Engine, set(key("a"), a), set(key("c"), c))
	got := read(t, f.Engine, key("c"), key("b"), key("a"), key("c"))
	if !same(got[0], c) || got[1] != nil || !same(got[2], a) || !same(got[3], c) {
		t.Fatalf("read %v", got)
	}
	read(t, f.Engine)
}

func nowFollows(t *testing.T, f Fixture) {
	for _, step := range []time.Duration{0, time.Second, -time.Hour, 24 * time.Hour} {
		f.Clock.Step(step)
		wanted := f.Clock.Now().UnixMilli()
		now, err := f.Engine.Now(t.Context())
		if err != nil || now != wanted {
			t.Errorf("Now: %d (%v), want %d", now, err, wanted)
		}
		snap, err := f.Engine.Read(t.Context(), keys(1))
		if err != nil || snap.Now != wanted {
			t.Errorf("Read at %d (%v), want %d", snap.Now, err, wanted)
		}
	}
}

func guaranteeComplete(t *testing.T, f Fixture) {
	g := f.Engine.Guarantee()
	if g.Engine == "" || g.Pipeline < 1 {
		t.Errorf("guarantee %+v lacks a name or a pipeline", g)
	}
	if g.Level != engine.Process && g.Level != engine.Node && g.Level != engine.Replicated {
		t.Errorf("guarantee has level %q", g.Level)
	}
}
