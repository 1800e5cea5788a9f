package imports_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// shared are directories that many machines have: naming one tells nothing about this machine.
var shared = []string{"/", "/bin", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/usr/local", "/usr/src", "/var", "/var/tmp"}

// elsewhere matches references to documents that are no part of this tree, so that a reader could not follow them.
var elsewhere = regexp.MustCompile(`\.\./` + `shared\b|\b(DESIGN|FACTS|STYLE|API)(\.md| [0-9])`)

func TestNoFileNamesThisMachine(t *testing.T) {
	t.Parallel()
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	for place := checkout; !slices.Contains(shared, place); place = filepath.Dir(place) {
		places = append(places, regexp.QuoteMeta(place+"/"))
	}
	machine := regexp.MustCompile(`(^|[^A-Za-z0-9._-])(` + strings.Join(places, "|") + `)`)
	for _, name := range files(t) {
		path := filepath.Join(root, name)
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue // Deleted, but not yet for git; or a link.
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if !utf8.Valid(content) {
			continue
		}
		if at := machine.FindSubmatchIndex(content); at != nil {
			t.Errorf("%s:%d names %s, a path of this machine", name, line(content, at[4]), content[at[4]:at[5]])
		}
		if at := elsewhere.FindIndex(content); at != nil {
			t.Errorf("%s:%d refers to %q, which is not in the tree", name, line(content, at[0]), content[at[0]:at[1]])
		}
	}
}

func line(content []byte, at int) int { return 1 + bytes.Count(content[:at], []byte("\n")) }
