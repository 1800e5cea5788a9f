package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/counterfoil/counterfoil/api"
)

func TestWhatATerminalWouldActOnIsShownEscaped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"to":"Zoë 北京"}`:  `{"to":"Zoë 北京"}`,
		"a\x1b[2Jb":        `a\u001b[2Jb`,
		"a\x7f\u009bb":     `a\u007f\u009bb`,
		"pay\u202eecila":   `pay\u202eecila`,
		"a\u200bb\u2066c":  `a\u200bb\u2066c`,
		"a\u00a0b":         `a\u00a0b`,
		"tag \U000e0041":   `tag \udb40\udc41`,
		"line\nother\rend": `line\u000aother\u000dend`,
		"a\u3164b\u115fc":  `a\u3164b\u115fc`,
		"a\ufe0fb\u034fc":  `a\ufe0fb\u034fc`,
		"a\u2800b\uffa0":   `a\u2800b\uffa0`,
		"a b  c    d":      `a b \u0020c \u0020\u0020\u0020d`,
	} {
		if got := plainly(text); got != want {
			t.Errorf("%q is shown as %s, want %s", text, got, want)
		}
	}
}

func TestWhatATerminalWouldActOnIsEscapedInJSONToo(t *testing.T) {
	t.Parallel()
	const text = "b\u202eob \u009b2J \x7f  \U000e0041 Zoë"
	arguments, err := json.Marshal(map[string]string{"to": text})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&app{Process: Process{Out: &out}}).printJSON(&api.Approval{Arguments: arguments, Owner: api.Name(text)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range out.String() {
		if c > '~' && c != 'ë' {
			t.Errorf("%q reaches the terminal", c)
		}
	}
	var read struct {
		Owner     string
		Arguments map[string]string
	}
	if err := json.Unmarshal(out.Bytes(), &read); err != nil || read.Owner != text || read.Arguments["to"] != text {
		t.Errorf("read back: %+v, %v", read, err)
	}
}
