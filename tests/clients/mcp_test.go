package clients_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// object is any JSON object.
type object = map[string]any

// plan is what mcp.mjs does.
type plan struct {
	URL     string            `json:"url,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Steps   []object          `json:"steps"`
}

// said is what it prints.
type said struct {
	Server       object
	Capabilities object
	Instructions string
	Answers      []answered
}

type answered struct {
	Method   string
	Result   object
	Progress int
	Error    object
}

// text is the text of a tool's result.
func (a answered) text() string {
	var b strings.Builder
	contents, _ := a.Result["content"].([]any)
	for _, c := range contents {
		if part, ok := c.(object); ok {
			fmt.Fprint(&b, part["text"], "\n")
		}
	}
	return b.String()
}

func (a answered) replayed() bool {
	meta, _ := a.Result["_meta"].(object)
	return meta["io.counterfoil/replayed"] == true
}

// shown is what matters of an answer. Of an error that is its code: the guard refuses a method that it does not know in
// its own words. The client may take up a last notification of progress only after the answer.
func (a answered) shown() string {
	return fmt.Sprint(a.Result, a.Error["code"], min(a.Progress, 1))
}

func speak(t *testing.T, p *plan) said {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var s said
	if err := json.Unmarshal(script(t, "mcp.mjs", string(text)), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Answers) != len(p.Steps) {
		t.Fatalf("%d answers to %d requests", len(s.Answers), len(p.Steps))
	}
	return s
}

// server is the command of an npm package's server.
func server(name string, args ...string) []string {
	return append([]string{"node", filepath.Join(modules, "node_modules", ".bin", name)}, args...)
}

// direct speaks with a server over stdin and stdout, and guarded with one behind the guard.
func direct(command []string, env map[string]string, steps ...object) *plan {
	return &plan{Command: command[0], Args: command[1:], Env: env, Steps: steps}
}

const mcpOptions = "server: tested\nowner: {name: me}\nrun: run-1\ndefault: {keys: derived}\n"

func guarded(t *testing.T, dir string, command []string, env map[string]string, steps ...object) *plan {
	t.Helper()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "guard.yaml")
	if _, err := os.Stat(data); err != nil {
		initialise(t, data)
		if err := os.WriteFile(file, []byte(mcpOptions), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return direct(append([]string{program, "mcp", "--data", data, "--config", file, "--log-level", "error", "--"}, command...), env, steps...)
}

func call(tool string, arguments object, key ...string) object {
	params := object{"name": tool, "arguments": arguments}
	if len(key) > 0 {
		params["_meta"] = object{"io.counterfoil/idempotency-key": key[0]}
	}
	return object{"method": "tools/call", "params": params}
}

func ask(method string, params object) object { return object{"method": method, "params": params} }

// everything are requests of each kind that server-everything answers alike each time.
var everything = []object{
	ask("ping", object{}),
	ask("tools/list", object{}),
	ask("resources/list", object{}),
	ask("resources/templates/list", object{}),
	ask("prompts/list", object{}),
	ask("prompts/get", object{"name": "simple-prompt"}),
	ask("prompts/get", object{"name": "args-prompt", "arguments": object{"city": "Bern"}}),
	ask("prompts/get", object{"name": "no such prompt"}),
	ask("logging/setLevel", object{"level": "debug"}),
	ask("completion/complete", object{"ref": object{"type": "ref/prompt", "name": "completable-prompt"}, "argument": object{"name": "department", "value": ""}}),
	ask("no/such/method", object{}),
	call("echo", object{"message": "hello"}),
	call("get-sum", object{"a": 2, "b": 3}),
	call("get-sum", object{"a": "two"}),
	call("get-tiny-image", object{}),
	call("get-annotated-message", object{"messageType": "error", "includeImage": true}),
	call("get-structured-content", object{"location": "New York"}),
	call("get-resource-links", object{"count": 2}),
	call("get-roots-list", object{}),
	call("trigger-long-running-operation", object{"duration": 0.3, "steps": 3}),
	call("trigger-sampling-request", object{"prompt": "hello", "maxTokens": 10}),
	call("trigger-elicitation-request", object{}),
	call("no-such-tool", object{}),
}

// TestServerEverythingAnswersThroughTheGuardAsWithoutIt compares all that the official client gets from the server, over
// stdin and stdout and over HTTP.
func TestServerEverythingAnswersThroughTheGuardAsWithoutIt(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME")}
	command := server("mcp-server-everything")
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		alike(t, speak(t, direct(command, env, everything...)), speak(t, guarded(t, t.TempDir(), command, env, everything...)))
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		url := everythingOverHTTP(t)
		to := guarding(t, "mcp", url, mcpOptions)
		alike(t, speak(t, &plan{URL: url, Steps: everything}), speak(t, &plan{URL: "http://" + to, Steps: everything}))
	})
}

// alike compares what a client got without the guard and with it.
func alike(t *testing.T, without, with said) {
	t.Helper()
	if fmt.Sprint(without.Server, without.Capabilities, without.Instructions) != fmt.Sprint(with.Server, with.Capabilities, with.Instructions) {
		t.Errorf("the server introduces itself as %v %v, without the guard as %v %v", with.Server, with.Capabilities, without.Server, without.Capabilities)
	}
	worked := 0
	for i, w := range without.Answers {
		if got := with.Answers[i]; got.shown() != w.shown() {
			t.Errorf("request %d, %s:\nwithout %.600s\nwith    %.600s", i, w.Method, w.shown(), got.shown())
		}
		if w.Error == nil {
			worked++
		}
	}
	if worked < len(without.Answers)-5 {
		t.Errorf("only %d of %d requests worked without the guard: %.2000v", worked, len(without.Answers), without.Answers)
	}
}

// everythingOverHTTP starts server-everything over streamable HTTP, and returns its URL.
func everythingOverHTTP(t *testing.T) string {
	t.Helper()
	port := freePort(t)
	command := server("mcp-server-everything", "streamableHttp")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(environ(), "PORT="+port)
	launch(t, func(line string) bool { return strings.Contains(line, "listening on port "+port) }, cmd)
	return "http://127.0.0.1:" + port + "/mcp"
}

// freePort finds a port that nobody has, for a server that cannot be told to take any.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestServerFilesystemMovesAndWritesOnce repeats calls that would fail, or undo what others did, if they happened twice.
func TestServerFilesystemMovesAndWritesOnce(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(root, name) }
	command := server("mcp-server-filesystem", root)
	write := call("write_file", object{"path": in("a"), "content": "first"}, "write-1")
	move := call("move_file", object{"source": in("a"), "destination": in("b")}, "move-1")
	edit := call("edit_file", object{"path": in("b"), "edits": []object{{"oldText": "first", "newText": "first first"}}})

	first := speak(t, guarded(t, dir, command, environment(), write, move, edit, edit))
	again := speak(t, guarded(t, dir, command, environment(), write, move, edit, // another process, for another client
		call("write_file", object{"path": in("a"), "content": "other"}, "write-1"), call("read_text_file", object{"path": in("b")})))
	for i, a := range append(first.Answers[:3:3], again.Answers[4]) {
		if a.Result["isError"] == true || a.replayed() || a.Error != nil {
			t.Errorf("call %d: %+v", i, a)
		}
	}
	for i, a := range append(first.Answers[3:4:4], again.Answers[:3]...) {
		if a.Result["isError"] == true || !a.replayed() || a.Error != nil {
			t.Errorf("repeated call %d: %+v", i, a)
		}
	}
	if refused := again.Answers[3]; refused.Result["isError"] != true || !strings.Contains(refused.text(), "key_reused") && !strings.Contains(fmt.Sprint(refused.Result["_meta"]), "key_reused") {
		t.Errorf("other arguments under the same key: %+v", refused)
	}
	content, err := os.ReadFile(in("b"))
	if err != nil || string(content) != "first first" {
		t.Errorf("the file has %q, %v", content, err)
	}
	if _, err := os.Stat(in("a")); err == nil {
		t.Error("the file was written again after it was moved")
	}
	if without := speak(t, direct(command, environment(), move)); without.Answers[0].Result["isError"] != true {
		t.Errorf("without the guard the same move works again, so that this test proves nothing: %+v", without.Answers[0])
	}
}

func environment() map[string]string {
	return map[string]string{"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME"), "TMPDIR": os.TempDir()}
}

// TestServerMemoryRemembersOnce repeats a creation after the entity was deleted: it is not created again.
func TestServerMemoryRemembersOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := environment()
	env["MEMORY_FILE_PATH"] = filepath.Join(dir, "memory.jsonl")
	command := server("mcp-server-memory")
	create := call("create_entities", object{"entities": []object{{"name": "ann", "entityType": "person", "observations": []string{"pays"}}}}, "create-1")
	remove := call("delete_entities", object{"entityNames": []string{"ann"}}, "delete-1")
	s := speak(t, guarded(t, dir, command, env, create, create, remove, create, remove, call("read_graph", object{})))
	for i, want := range []bool{false, true, false, true, true, false} {
		if a := s.Answers[i]; a.replayed() != want || a.Result["isError"] == true || a.Error != nil {
			t.Errorf("call %d: replayed is %v: %+v", i, a.replayed(), a)
		}
	}
	if fmt.Sprint(s.Answers[0].Result["structuredContent"]) != fmt.Sprint(s.Answers[3].Result["structuredContent"]) {
		t.Errorf("the replay says %v, the first answer %v", s.Answers[3].Result, s.Answers[0].Result)
	}
	if content, err := os.ReadFile(env["MEMORY_FILE_PATH"]); err != nil || bytes.Contains(content, []byte("ann")) {
		t.Errorf("it remembers %s, %v", content, err)
	}
}

// conformance runs the official suite against a server, and gives the results of each scenario as it prints them.
func conformance(t *testing.T, url string) map[string][2]int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(modules, "node_modules", ".bin", "conformance"), "server", "--suite", "all", "--url", url)
	cmd.Env = environ()
	cmd.Dir = t.TempDir()
	out, _ := cmd.CombinedOutput() // it fails if a scenario fails; that is compared below
	results := map[string][2]int{}
	for line := range strings.Lines(string(out)) {
		var name string
		var passed, failed int
		_, scenario, found := strings.Cut(line, " ")
		if n, err := fmt.Sscanf(scenario, "%s %d passed, %d failed", &name, &passed, &failed); found && err == nil && n == 3 {
			results[strings.TrimSuffix(name, ":")] = [2]int{passed, failed}
		}
	}
	if len(results) < 25 {
		t.Fatalf("only %d scenarios ran:\n%.4000s", len(results), out)
	}
	return results
}

// cannotPass are scenarios that fail behind a guard although nothing in them passes without it, and why.
var cannotPass = map[string]string{
	"server-sse-polling": "its server ends a call's stream without an answer and without an id to ask for the rest by: the outcome is unknown",
}

// TestConformanceIsTheSameThroughTheGuard runs the official conformance suite with and without the guard: what passes
// without it passes with it.
func TestConformanceIsTheSameThroughTheGuard(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "everything")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, start := range map[string]func(t *testing.T) string{
		"go-sdk": func(t *testing.T) string {
			port := freePort(t)
			cmd := exec.Command(binary, "-http", "127.0.0.1:"+port, "-stateless=false")
			launch(t, func(line string) bool { return strings.Contains(line, "listening at") }, cmd)
			return "http://127.0.0.1:" + port + "/"
		},
		"server-everything": everythingOverHTTP,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t)
			without, with := conformance(t, url), conformance(t, "http://"+guarding(t, "mcp", url, mcpOptions))
			passed := 0
			for scenario, w := range without {
				passed += w[0]
				got, ran := with[scenario]
				if ran && got[0] >= w[0] && got[1] <= w[1] {
					continue // the guard adds the protection against DNS rebinding where a server has none
				}
				if why := cannotPass[scenario]; why != "" && got[0] >= w[0] {
					t.Logf("%s: %s", scenario, why)
					continue
				}
				t.Errorf("%s %d passed and %d failed, without the guard %d and %d", scenario, got[0], got[1], w[0], w[1])
			}
			if len(with) != len(without) || passed < 8 {
				t.Errorf("%d scenarios with the guard, %d without; %d checks passed without", len(with), len(without), passed)
			}
		})
	}
}
