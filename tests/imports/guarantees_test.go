package imports_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryGuaranteeNamesATestThatExists keeps docs/guarantees.md true.
func TestEveryGuaranteeNamesATestThatExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "git", "grep", "-h", "--untracked", "^func Test", "--", "*_test.go")
	list.Dir = filepath.Join("..", "..")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllSubmatch(text, -1)
	if len(named) < 40 {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, n := range named {
		if !strings.Contains(string(out), "func "+string(n[1])+"(") {
			t.Errorf("%s is named as a proof, and does not exist", n[1])
		}
	}
}
