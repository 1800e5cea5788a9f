package cli_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/counterfoil/counterfoil/internal/cli"
)

// TestMain makes the test binary the program too, so that scripts start it as processes of its own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"counterfoil": func() {
		os.Exit(cli.Main(os.Args[1:], cli.Process{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ()}))
	}, "mcp-bank": bank})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "serve": serve, "terminate": terminate, "word": word, "mode": mode, "await": await, "big": big,
		},
		Setup: func(env *testscript.Env) error {
			env.Values[serversKey{}] = map[string]*served{}
			return nil
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// exits CODE COMMAND… runs a command that must exit with the code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d; want %d", got, want)
	}
	if lines := strings.Count(ts.ReadFile("stderr"), "\n"); got != 0 && lines > 1 {
		ts.Fatalf("%d lines on stderr; an error is one", lines)
	}
}

// served is a server that a script has started.
type served struct {
	cmd  *exec.Cmd
	done chan error
}

var startsAt = regexp.MustCompile(`^\{"address":`)

// serve NAME DIR ARGUMENT… starts a server on DIR and sets NAME to its URL, NAME_LISTEN to its address, and COUNTERFOIL_TOKEN to the admin's token.
func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: serve NAME DIR ARGUMENT…")
	}
	path, err := exec.LookPath("counterfoil")
	ts.Check(err)
	s := &served{done: make(chan error, 1)}
	s.cmd = exec.Command(path, append([]string{"serve", "--json", "--data", args[1], "--listen", "127.0.0.1:0"}, args[2:]...)...)
	s.cmd.Dir = ts.Getenv("WORK")
	s.cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "TMPDIR=" + ts.Getenv("TMPDIR")}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	ts.Defer(func() { _ = s.cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !startsAt.MatchString(lines.Text()) {
		ts.Fatalf("the server said %q: %v", lines.Text(), s.cmd.Wait())
	}
	go func() { s.done <- s.cmd.Wait() }()
	var said struct {
		Address   string
		TokenFile string `json:"token_file"`
	}
	ts.Check(json.Unmarshal(lines.Bytes(), &said))
	ts.Setenv(args[0], said.Address)
	ts.Setenv(args[0]+"_LISTEN", strings.TrimPrefix(said.Address, "http://"))
	ts.Setenv("COUNTERFOIL_TOKEN", strings.TrimSpace(ts.ReadFile(said.TokenFile)))
	servers(ts)[args[0]] = s
}

// servers are those that a script has started.
func servers(ts *testscript.TestScript) map[string]*served {
	all, _ := ts.Value(serversKey{}).(map[string]*served)
	return all
}

type serversKey struct{}

// terminate NAME sends SIGTERM to a server, which must drain and exit with 0.
func terminate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: terminate NAME")
	}
	s := servers(ts)[args[0]]
	ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-s.done:
		ts.Check(err)
	case <-time.After(30 * time.Second):
		ts.Fatalf("the server does not stop")
	}
}

// word NAME PATTERN sets NAME to what the pattern's group finds in the last stdout.
func word(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: word NAME PATTERN")
	}
	found := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) != 2 {
		ts.Fatalf("no %s in %q", args[1], ts.ReadFile("stdout"))
	}
	ts.Setenv(args[0], found[1])
}

// mode MODE FILE… checks who may read files.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args[1:] {
		info, err := os.Stat(ts.MkAbs(name))
		ts.Check(err)
		if got := strconv.FormatUint(uint64(info.Mode().Perm()), 8); (got == args[0]) == neg {
			ts.Fatalf("%s has mode %s", name, got)
		}
	}
}

// await FILE waits until a file is there.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			ts.Fatalf("%s does not come", args[0])
		}
	}
}

// big FILE BYTES writes a file of that many bytes.
func big(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: big FILE BYTES")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), args[0]), []byte(strings.Repeat("x", n)), 0o600))
}
