// Package imports_test keeps the shape of the module: who may import whom, who may read the clock and draw randomness, and
// what no file may name.
package imports_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/counterfoil/counterfoil"

// layers lists the module's packages from the bottom up; a name stands for the package and those below its folder that no other
// name stands for. A package imports from the layers under its own, and from its own name; "." is the root package.
//
// Imports go one way: cmd, internal/cli, server and client, the root package, capabilities, store, engine, state.
var layers = [][]string{
	{"internal"},
	{"state"},
	{"engine", "keyring"},
	{"engine/memory", "engine/pebble", "engine/redis", "engine/postgres"},
	{"engine/open"},
	{"store"},
	{"permit", "operation", "challenge", "budget", "counter", "approval", "access"},
	{"."},
	{"api"},
	{"guard"},
	{"client", "server", "guard/httpguard"},
	{"guard/mcpguard"},
	{"internal/config"},
	{"internal/cli"},
	{"cmd"},
}

// engines are the packages of which a library user links just one.
var engines = layers[3]

// drivers are the modules that engines stand on.
var drivers = map[string]string{
	"github.com/cockroachdb/pebble/v2": "engine/pebble",
	"github.com/redis/rueidis":         "engine/redis",
	"github.com/jackc/pgx/v5":          "engine/postgres",
}

// library is what a Go program links that uses Counterfoil without a server, beside one engine.
var library = []string{"state", "engine", "keyring", "store", "permit", "operation", "challenge", "budget", "counter", "approval", "."}

// libraryModules are all that the library may need, beside the standard library.
var libraryModules = []string{
	module,
	"filippo.io/edwards25519",            // to refuse public keys that verify forged signatures
	"github.com/go-json-experiment/json", // strict decoding
	"github.com/google/uuid",             // time-ordered ids
	"golang.org/x/sync",                  // several transactions of a scope at once, or one alone
	"golang.org/x/sys",                   // clock that counts through suspension, file locks
}

// libraryForbids are standard packages that have no place in the library.
var libraryForbids = []string{"net/http", "net/rpc", "database/sql", "html/template", "testing"}

// stateForbids keeps the rules a pure function: nothing that reads a clock is caught here (TestOnlyTheClockReadsTheTime does),
// nothing that does I/O or draws is let in.
var stateForbids = []string{"os", "net", "io/fs", "syscall", "log", "log/slog", "crypto/rand", "math/rand", "math/rand/v2", "os/exec"}

// listed is one package as `go list -json` describes it.
type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
	Module     *struct{ Path string }
}

// packages lists the module's packages and everything that they depend on, by import path.
var packages = sync.OnceValues(func() (map[string]listed, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Imports,Deps,Standard,Module", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	found := map[string]listed{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		found[p.ImportPath] = p
	}
})

// ours calls each for every package of the module, by its path inside it; the root package is ".".
func ours(t *testing.T, each func(name string, p listed)) {
	t.Helper()
	all, err := packages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for path, p := range all {
		if name, ok := inside(path); ok {
			each(name, p)
			seen++
		}
	}
	if seen == 0 {
		t.Fatal("go list found no package of the module")
	}
}

func inside(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// layerOf returns the layer of a package and the name that stands for it there; -1 if there is none.
func layerOf(name string) (layer int, stands string) {
	layer = -1
	for i, names := range layers {
		for _, n := range names {
			if (name == n || strings.HasPrefix(name, n+"/")) && len(n) > len(stands) {
				layer, stands = i, n
			}
		}
	}
	return layer, stands
}

// supportsTests reports whether a package is part of no program: suites, test servers, measurements, examples. It may import
// whatever it tests, and only tests and its like import it.
func supportsTests(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{"tests", "bench", "examples"}, top) || isSuite(name)
}

func isSuite(name string) bool {
	return strings.HasSuffix(name, "test") || name == "internal/testserver"
}

func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()
	ours(t, func(name string, p listed) {
		if supportsTests(name) {
			return
		}
		layer, stands := layerOf(name)
		if layer < 0 {
			t.Errorf("package %s has no layer: add it to the list in this file", name)
			return
		}
		for _, path := range p.Imports {
			imported, ok := inside(path)
			if !ok {
				continue
			}
			if supportsTests(imported) {
				t.Errorf("%s imports %s, which is for tests only", name, imported)
				continue
			}
			below, standsBelow := layerOf(imported)
			if below >= layer && standsBelow != stands {
				t.Errorf("%s (layer %d) imports %s (layer %d): imports go one way, down", name, layer, imported, below)
			}
		}
	})
}

func TestOnlyOpenImportsEngines(t *testing.T) {
	t.Parallel()
	ours(t, func(name string, p listed) {
		if name == "engine/open" || supportsTests(name) {
			return
		}
		for _, path := range p.Imports {
			imported, _ := inside(path)
			if _, stands := layerOf(imported); slices.Contains(engines, stands) && !strings.HasPrefix(name, stands) {
				t.Errorf("%s imports %s: only engine/open may", name, imported)
			}
			if imported == "engine/open" && !underAny(name, "internal/cli", "cmd") {
				t.Errorf("%s imports engine/open, and all engines with it: only the command line may", name)
			}
		}
	})
}

func TestGuardsKnowOnlyTheCaller(t *testing.T) {
	t.Parallel()
	ours(t, func(name string, p listed) {
		if !underAny(name, "guard") {
			return
		}
		for _, path := range p.Imports {
			if imported, ok := inside(path); ok && underAny(imported, "store", "engine", "state", "keyring", "server", "client") {
				t.Errorf("%s imports %s: a guard works over counterfoil.Caller", name, imported)
			}
		}
	})
}

func TestEnginesAreApart(t *testing.T) {
	t.Parallel()
	ours(t, func(name string, p listed) {
		_, stands := layerOf(name)
		if !slices.Contains(engines, stands) {
			return
		}
		all, _ := packages()
		for _, path := range p.Deps {
			if other, ok := inside(path); ok {
				if _, o := layerOf(other); o != stands && slices.Contains(engines, o) {
					t.Errorf("%s depends on %s", name, other)
				}
			}
			if m := all[path].Module; m != nil && drivers[m.Path] != "" && drivers[m.Path] != stands {
				t.Errorf("%s depends on %s, which belongs to %s", name, path, drivers[m.Path])
			}
		}
	})
}

func TestLibraryStaysSmall(t *testing.T) {
	t.Parallel()
	ours(t, func(name string, p listed) {
		if _, stands := layerOf(name); !slices.Contains(library, stands) || supportsTests(name) {
			return
		}
		all, _ := packages()
		for _, path := range p.Deps {
			dependency := all[path]
			switch {
			case slices.Contains(libraryForbids, path):
				t.Errorf("%s depends on %s: the library has no place for it", name, path)
			case dependency.Module != nil && !slices.Contains(libraryModules, dependency.Module.Path):
				t.Errorf("%s depends on module %s (%s): the library stands on few modules, listed in this file", name, dependency.Module.Path, path)
			}
		}
	})
}

func TestRulesDoNoIO(t *testing.T) {
	t.Parallel()
	ours(t, func(name string, p listed) {
		if !underAny(name, "state") {
			return
		}
		for _, path := range p.Imports {
			if slices.Contains(stateForbids, path) || strings.HasPrefix(path, "net/") {
				t.Errorf("%s imports %s: Decide is a pure function", name, path)
			}
		}
	})
}

func underAny(name string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return name == folder || strings.HasPrefix(name, folder+"/")
	})
}
