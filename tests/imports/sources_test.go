package imports_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// tracked lists the files of the tree, by their path from its root: what git follows, and what it would if it were added.
var tracked = sync.OnceValues(func() ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
})

func files(t *testing.T) []string {
	t.Helper()
	names, err := tracked()
	if err != nil || len(names) == 0 {
		t.Fatalf("git lists %d files: %v", len(names), err)
	}
	return names
}

// major matches the last element of a module path that is only its major version.
var major = regexp.MustCompile(`^v[0-9]+$`)

// source is one parsed Go file.
type source struct {
	name    string // from the root of the tree
	file    *ast.File
	set     *token.FileSet
	imports map[string]string // path by the name that the file uses
}

// sources calls each for every Go file of the tree, whatever its build tags.
func sources(t *testing.T, each func(source)) {
	t.Helper()
	for _, name := range files(t) {
		if path.Ext(name) != ".go" || strings.Contains(name, "/testdata/") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		s := source{name: name, file: file, set: set, imports: map[string]string{}}
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			local := path.Base(imported)
			if major.MatchString(local) {
				local = path.Base(path.Dir(imported))
			}
			if spec.Name != nil {
				local = spec.Name.Name
			}
			s.imports[local] = imported
		}
		each(s)
	}
}

// forTests reports whether the file is a test or part of a package that only tests use.
func (s source) forTests() bool {
	return strings.HasSuffix(s.name, "_test.go") || supportsTests(path.Dir(s.name))
}

// uses calls each for every use of a name of an imported package: "time.Now".
func (s source) uses(each func(use string, at token.Position)) {
	ast.Inspect(s.file, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if x, ok := selector.X.(*ast.Ident); ok && s.imports[x.Name] != "" {
				each(s.imports[x.Name]+"."+selector.Sel.Name, s.set.Position(selector.Pos()))
			}
		}
		return true
	})
}

func TestOnlyTheClockReadsTheTime(t *testing.T) {
	t.Parallel()
	reading := []string{"time.Now", "time.Since", "time.Until"}
	clockReads := false
	sources(t, func(s source) {
		s.uses(func(use string, at token.Position) {
			switch {
			case use == "time.Sleep":
				t.Errorf("%s: time.Sleep: wait for a signal, a timer with a context, or an injected clock", at)
			case !slices.Contains(reading, use) || s.forTests():
			case path.Dir(s.name) == "internal/clock":
				clockReads = true
			default:
				t.Errorf("%s: %s: only internal/clock reads the time", at, use)
			}
		})
	})
	if !clockReads {
		t.Error("internal/clock does not read the time: this test looks for the wrong thing")
	}
}

func TestOnlyEntropyDrawsRandomness(t *testing.T) {
	t.Parallel()
	generators := []string{"crypto/rand", "math/rand", "math/rand/v2"}
	// These draw by themselves; the same with a reader of internal/entropy are free.
	drawing := []string{"New", "NewString", "NewRandom", "NewUUID", "NewV6", "NewV7", "Must"}
	entropyDraws := false
	sources(t, func(s source) {
		if s.forTests() {
			return
		}
		for _, imported := range s.imports {
			switch {
			case !slices.Contains(generators, imported):
			case path.Dir(s.name) == "internal/entropy":
				entropyDraws = true
			default:
				t.Errorf("%s imports %s: only internal/entropy draws randomness", s.name, imported)
			}
		}
		s.uses(func(use string, at token.Position) {
			if name, ok := strings.CutPrefix(use, "github.com/google/uuid."); ok && slices.Contains(drawing, name) {
				t.Errorf("%s: uuid.%s draws by itself: give it a reader of internal/entropy", at, name)
			}
		})
		ast.Inspect(s.file, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok && generatesKeyFromNil(s, call) {
				t.Errorf("%s: GenerateKey(nil) draws by itself: give it a reader of internal/entropy", s.set.Position(call.Pos()))
			}
			return true
		})
	})
	if !entropyDraws {
		t.Error("internal/entropy draws nothing: this test looks for the wrong thing")
	}
}

// generatesKeyFromNil reports whether a call is ed25519.GenerateKey(nil), which reads crypto/rand.
func generatesKeyFromNil(s source, call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "GenerateKey" || len(call.Args) != 1 {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	argument, isName := call.Args[0].(*ast.Ident)
	return ok && isName && s.imports[x.Name] == "crypto/ed25519" && argument.Name == "nil"
}
