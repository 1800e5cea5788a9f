package mcpguard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil"
)

// judging makes a guard that is only asked for its judgement.
func judging(t testing.TB, o Options) *Guard {
	t.Helper()
	o.As, o.Owner = func(string) counterfoil.Caller { return nil }, "ann"
	take(&o.Server, "bank")
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func judged(t testing.TB, g *Guard, params string) (*claim, *Refusal) {
	t.Helper()
	c, refused := decodeCall([]byte(params))
	if refused != nil {
		t.Fatalf("%s: %v", params, refused)
	}
	if err := g.identify(c, nil); err != nil {
		t.Fatal(err)
	}
	return g.judge(c)
}

func TestWhatIsNoPartOfACall(t *testing.T) {
	t.Parallel()
	g := judging(t, Options{Run: "r", Default: Policy{Keys: Derived}})
	first, refused := judged(t, g, `{"name":"pay","arguments":{"a":1,"b":[1.0,"é"]}}`)
	if refused != nil {
		t.Fatal(refused)
	}
	for _, same := range []string{
		`{"arguments":{"b":[1,"\u00e9"],"a":1e0},"name":"pay"}`,
		`{"name":"pay","arguments":{"a":1,"b":[1,"é"]},"_meta":{"progressToken":7}}`,
		`{"name":"pay","arguments":{"a":1,"b":[1,"é"]},"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"x"}}}`,
	} {
		if got, refused := judged(t, g, same); refused != nil || got.begin.Key != first.begin.Key || got.begin.Fingerprint != first.begin.Fingerprint {
			t.Errorf("%s is another call: %v", same, refused)
		}
	}
	for name, other := range map[string]func() (*claim, *Refusal){
		"another argument": func() (*claim, *Refusal) { return judged(t, g, `{"name":"pay","arguments":{"a":1,"b":[2,"é"]}}`) },
		"another tool":     func() (*claim, *Refusal) { return judged(t, g, `{"name":"Pay","arguments":{"a":1,"b":[1,"é"]}}`) },
		"no arguments":     func() (*claim, *Refusal) { return judged(t, g, `{"name":"pay"}`) },
		"another server": func() (*claim, *Refusal) {
			return judged(t, judging(t, Options{Server: "bank2", Run: "r", Default: Policy{Keys: Derived}}), `{"name":"pay","arguments":{"a":1,"b":[1,"é"]}}`)
		},
	} {
		if got, refused := other(); refused != nil || got.begin.Key == first.begin.Key || got.begin.Fingerprint == first.begin.Fingerprint {
			t.Errorf("%s is the same call: %v", name, refused)
		}
	}
	again, _ := judged(t, judging(t, Options{Run: "r2", Default: Policy{Keys: Derived}}), `{"name":"pay","arguments":{"a":1,"b":[1,"é"]}}`)
	if again.begin.Key == first.begin.Key || again.begin.Fingerprint != first.begin.Fingerprint {
		t.Error("another run has the same key, or another fingerprint")
	}
}

// TestFingerprintsAreInjective: parts that are cut elsewhere are other parts.
func TestFingerprintsAreInjective(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab{}"]{0,4}`)
		of := func() (*Guard, *toolCall) {
			g := &Guard{options: Options{Server: word.Draw(t, "server")}}
			return g, &toolCall{tool: word.Draw(t, "tool"), arguments: []byte(word.Draw(t, "arguments")), run: word.Draw(t, "run")}
		}
		g1, c1 := of()
		g2, c2 := of()
		same := g1.options.Server == g2.options.Server && c1.tool == c2.tool && string(c1.arguments) == string(c2.arguments)
		if (g1.fingerprint(c1) == g2.fingerprint(c2)) != same {
			t.Fatalf("%+v and %+v", c1, c2)
		}
		if c1.run == "" || c2.run == "" {
			return
		}
		k1, _ := g1.derive(c1)
		k2, _ := g2.derive(c2)
		if (k1 == k2) != (same && c1.run == c2.run) {
			t.Fatalf("%+v and %+v", c1, c2)
		}
	})
}

func TestKeysThatCannotBe(t *testing.T) {
	t.Parallel()
	g := judging(t, Options{Default: Policy{KeyArgument: "order"}})
	for name, params := range map[string]string{
		"too long":                   `{"name":"pay","_meta":{"io.counterfoil/idempotency-key":"` + strings.Repeat("k", 257) + `"}}`,
		"control character":          `{"name":"pay","_meta":{"io.counterfoil/idempotency-key":"a\u0000"}}`,
		"number":                     `{"name":"pay","_meta":{"io.counterfoil/idempotency-key":7}}`,
		"empty":                      `{"name":"pay","_meta":{"io.counterfoil/idempotency-key":""}}`,
		"null":                       `{"name":"pay","_meta":{"io.counterfoil/idempotency-key":null}}`,
		"argument that is a number":  `{"name":"pay","arguments":{"order":7}}`,
		"argument that is empty":     `{"name":"pay","arguments":{"order":""}}`,
		"argument and _meta differ":  `{"name":"pay","arguments":{"order":"a"},"_meta":{"io.counterfoil/idempotency-key":"b"}}`,
		"neither argument nor _meta": `{"name":"pay","arguments":{}}`,
	} {
		if got, refused := judged(t, g, params); refused == nil || refused.Code != "invalid" || refused.Retryable {
			t.Errorf("%s: got %+v, %+v", name, got, refused)
		}
	}
	if got, refused := judged(t, g, `{"name":"pay","arguments":{"order":"a"},"_meta":{"io.counterfoil/idempotency-key":"a"}}`); refused != nil || got.begin.Key != "a" {
		t.Errorf("two names of one key: %+v", refused)
	}
}

func TestBudgetsAreNamedByWhoTheCallIsOf(t *testing.T) {
	t.Parallel()
	g := judging(t, Options{Default: Policy{Spend: []counterfoil.Entry{{Budget: "a/{agent}/{tool}/x-{session}", Amount: 3}}}})
	of := func(c *toolCall) string {
		entries, refused := g.base.spend(c)
		if refused != nil {
			return "refused"
		}
		return fmt.Sprint(entries)
	}
	for _, c := range []struct {
		call toolCall
		want string
	}{
		{toolCall{owner: "ann", run: "r1", tool: "pay"}, "[{a/ann/pay/x-r1 3}]"},
		{toolCall{owner: "ann", tool: "pay"}, "refused"},
		{toolCall{owner: "header:4a5b", run: "r1", tool: "pay"}, "refused"},
		{toolCall{owner: "a/b", run: "r1", tool: "pay"}, "refused"},
		{toolCall{owner: "{tool}", run: "r1", tool: "pay"}, "refused"},
		{toolCall{owner: "ann", run: strings.Repeat("r", 63), tool: "pay"}, "refused"},
		{toolCall{owner: "ann", run: "r1", tool: "files/read"}, "refused"},
	} {
		if got := of(&c.call); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.call, got, c.want)
		}
	}
}

func TestHeaderOfTheRunIsReadOnce(t *testing.T) {
	t.Parallel()
	g := judging(t, Options{RunHeader: "X-Run", Run: "configured"})
	for _, c := range []struct {
		runs []string
		want string
	}{{nil, "configured"}, {[]string{"r1"}, "r1"}, {[]string{"r1", "r2"}, ""}, {[]string{""}, ""}, {[]string{strings.Repeat("r", 257)}, ""}} {
		call := &toolCall{}
		err := g.identify(call, &http.Request{Header: http.Header{"X-Run": c.runs}})
		if (err != nil) != (c.want == "") || err == nil && call.run != c.want {
			t.Errorf("%v: got %q, %v", c.runs, call.run, err)
		}
	}
}

func TestRefusalIsReadByModelsAndPrograms(t *testing.T) {
	t.Parallel()
	r := &Refusal{Code: "in_flight", Retryable: true, RetryAfter: 3}
	var got struct {
		IsError    bool
		ResultType string
		Content    []textContent
		Meta       map[string]map[string]any `json:"_meta"`
	}
	if err := json.Unmarshal(r.result(), &got); err != nil {
		t.Fatal(err)
	}
	if !got.IsError || got.ResultType != "complete" || len(got.Content) != 1 || got.Content[0].Type != "text" ||
		!strings.HasPrefix(got.Content[0].Text, "Refused (in_flight): ") || !strings.HasSuffix(got.Content[0].Text, "Try again in 3 s.") {
		t.Errorf("got %+v", got)
	}
	if m := got.Meta[MetaRefusal]; m["code"] != "in_flight" || m["retryable"] != true || m["retry_after_seconds"] != 3.0 || len(m) != 3 {
		t.Errorf("got %v", m)
	}
}

func TestToolName(t *testing.T) {
	t.Parallel()
	a, err1 := ToolName("pay", []byte(`{"type":"object","required":["a"]}`))
	b, err2 := ToolName("pay", []byte(` { "required" : [ "a" ], "type":"\u006fbject" } `))
	if err1 != nil || err2 != nil || a != b || len(a) != len("pay@")+16 {
		t.Errorf("got %s, %v and %s, %v", a, err1, b, err2)
	}
	if c, err := ToolName("pay", []byte(`{"type":"object","required":["b"]}`)); err != nil || c == a {
		t.Errorf("another schema is %s, %v", c, err)
	}
	if _, err := ToolName("pay", []byte(`{"a":1,"a":2}`)); err == nil {
		t.Error("a schema with two readings has a name")
	}
}
