package main

import (
	"strings"
	"testing"
)

const list = `
# comment
memory ./engine/memory ^TestEngine/ 2
`

const (
	ran = `{"Action":"pass","Package":"github.com/counterfoil/counterfoil/engine/memory","Test":"TestEngine/claim"}
{"Action":"pass","Package":"github.com/counterfoil/counterfoil/engine/memory","Test":"TestEngine/settle"}
{"Action":"pass","Package":"github.com/counterfoil/counterfoil/engine/memory"}
`
	oneSkipped = `{"Action":"pass","Package":"github.com/counterfoil/counterfoil/engine/memory","Test":"TestEngine/claim"}
{"Action":"output","Package":"github.com/counterfoil/counterfoil/engine/memory","Test":"TestEngine/settle","Output":"    x.go:1: it forgets\n"}
{"Action":"output","Package":"github.com/counterfoil/counterfoil/engine/memory","Test":"TestEngine/settle","Output":"--- SKIP: TestEngine/settle (0.00s)\n"}
{"Action":"skip","Package":"github.com/counterfoil/counterfoil/engine/memory","Test":"TestEngine/settle"}
{"Action":"pass","Package":"github.com/counterfoil/counterfoil/engine/memory"}
`
	elsewhere = `{"Action":"pass","Package":"github.com/counterfoil/counterfoil/engine/pebble","Test":"TestEngine/claim"}
{"Action":"pass","Package":"github.com/counterfoil/counterfoil/engine/pebble","Test":"TestEngine/settle"}
{"Action":"pass","Package":"github.com/counterfoil/counterfoil/engine/pebble"}
`
	crashed = `{"Action":"pass","Package":"github.com/counterfoil/counterfoil/engine/memory","Test":"TestEngine/claim"}
{"Action":"pass","Package":"github.com/counterfoil/counterfoil/engine/memory","Test":"TestEngine/settle"}
{"Action":"fail","Package":"github.com/counterfoil/counterfoil/engine/memory"}
`
	unbuilt = `{"ImportPath":"github.com/counterfoil/counterfoil/store","Action":"build-fail"}
`
)

func TestRequiredSuites(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, events, wantErr, wantOut string }{
		{"all passed", ran, "", "2 passed, 0 failed, 0 skipped\n"},
		{"suite absent", elsewhere, "suite memory did not run", "2 passed, 0 failed"},
		{"skipped tests do not count", oneSkipped, "suite memory did not run: 1 tests", "skipped: engine/memory TestEngine/settle: x.go:1: it forgets\n"},
		{"package crashed after its tests", crashed, "0 tests and 1 packages failed", "2 passed, 1 failed"},
		{"another package did not build", ran + unbuilt, "1 packages failed", "2 passed, 1 failed"},
		{"no events", "", "no test ran", "0 passed, 0 failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			suites, err := parseSuites(strings.NewReader(list))
			if err != nil {
				t.Fatal(err)
			}
			tally := newTally()
			if err := readEvents(strings.NewReader(c.events), tally.add, nil); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err = tally.summary(suites, &out)
			if c.wantErr == "" && err != nil {
				t.Errorf("summary failed: %v", err)
			}
			if c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("summary's error is %v, want one with %q", err, c.wantErr)
			}
			if !strings.Contains(out.String(), c.wantOut) {
				t.Errorf("printed %q, want %q in it", out.String(), c.wantOut)
			}
		})
	}
}

func TestMalformedListIsRefused(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"fields missing":     "memory ./engine/memory",
		"bad expression":     "memory ./engine/memory ( 2",
		"zero proves nought": "memory ./engine/memory . 0",
	} {
		if _, err := parseSuites(strings.NewReader(line)); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: error is %v, want one that names line 1", name, err)
		}
	}
}

func TestFollowShowsFailuresOnly(t *testing.T) {
	t.Parallel()
	events := `{"Action":"output","Package":"p","Test":"TestGood","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"loud\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestHung","Output":"panic: timed out\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t1s\n"}
{"Action":"fail","Package":"p"}
not json
`
	var out strings.Builder
	err := follow(strings.NewReader(events), &out)
	if err == nil {
		t.Error("a failed test is no error")
	}
	want := "loud\nFAIL\tp\t1s\npanic: timed out\nnot json\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
