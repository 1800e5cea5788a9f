package mcpguard_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/mcpguard"
)

func TestOptionsOfAFile(t *testing.T) {
	t.Parallel()
	c, err := mcpguard.ParseConfig([]byte(`
server: files
owner: {name: ann}
run: r1
run_header: X-Run
key_header: Idempotency-Key
origins: ["https://agents.example"]
max_frame: 1000
in_progress: 3
default: {keys: derived, wait: 5s, not_performed: {errors: [-32602], statuses: [404]}}
tools:
  look: {read_only: true}
  pay:
    keys: required
    key_argument: order
    record: success-only
    spend: {"agents/{agent}": 2, "a": 1}
    approval: required
    capability: pay
    approval_ttl: 10m
    lease: 10s
    timeout: 1m
`))
	if err != nil {
		t.Fatal(err)
	}
	want := mcpguard.Options{
		Server: "files", Owner: "ann", Run: "r1", RunHeader: "X-Run", KeyHeader: "Idempotency-Key", Origins: []string{"https://agents.example"},
		MaxFrame: 1000, InProgress: 3,
		Default: mcpguard.Policy{Keys: mcpguard.Derived, Wait: 5 * time.Second, NotPerformed: []int{-32602}, NotPerformedStatuses: []int{404}},
		Tools: map[string]mcpguard.Policy{
			"look": {ReadOnly: true},
			"pay": {
				Keys: mcpguard.Required, KeyArgument: "order", Record: mcpguard.SuccessOnly, Capability: "pay", ApprovalTTL: 10 * time.Minute,
				Spend: []counterfoil.Entry{{Budget: "a", Amount: 1}, {Budget: "agents/{agent}", Amount: 2}}, Lease: 10 * time.Second, Timeout: time.Minute,
			},
		},
	}
	if got := c.Options(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestFilesThatMayMeanSomethingElseAreRefused(t *testing.T) {
	t.Parallel()
	const good = "server: s\nowner: {name: ann}\n"
	if _, err := mcpguard.ParseConfig([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, says string }{
		"nothing":                     {"", "server is missing"},
		"no server":                   {"owner: {name: ann}\n", "server is missing"},
		"no owner":                    {"server: s\n", "owner"},
		"two owners":                  {"server: s\nowner: {name: ann, bearer: true}\n", "either one name"},
		"unknown option":              {good + "tool: {}\n", "tool"},
		"option twice":                {good + "run: a\nrun: b\n", "run"},
		"empty option":                {good + "run:\n", "empty"},
		"two documents":               {good + "---\n" + good, "one YAML document"},
		"no YAML":                     {"{", "yaml"},
		"approval of something else":  {good + "default: {approval: maybe, capability: c}\n", "approval is required"},
		"approval without capability": {good + "default: {approval: required}\n", "needs the capability"},
		"capability without approval": {good + "tools: {pay: {capability: c}}\n", "approval: required only"},
		"too large":                   {good + "#" + strings.Repeat("x", mcpguard.MaxConfig), "more than"},
	} {
		if _, err := mcpguard.ParseConfig([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q in it", name, err, c.says)
		}
	}
}
