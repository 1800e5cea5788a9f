package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// shown is a line of a document that shows a command, or such a command between backquotes.
var shown = regexp.MustCompile("(?m)(?:^(?:\\$ |go run \\./cmd/|exec )?|`)counterfoil ([a-z][^`\n#]*)")

var longFlag = regexp.MustCompile(`(?:^| )--([a-z][a-z-]*)`)

// TestEveryCommandThatTheDocumentsShowIsThere keeps what people paste working.
func TestEveryCommandThatTheDocumentsShowIsThere(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range append(names, "../../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range shown.FindAllStringSubmatch(string(text), -1) {
			line, _, _ := strings.Cut(match[1], " -- ")
			seen++
			if problem := judge(line); problem != "" {
				t.Errorf("%s: 'counterfoil %s': %s", filepath.Base(name), match[1], problem)
			}
		}
	}
	if seen < 10 {
		t.Fatalf("only %d commands were found: this test looks for the wrong thing", seen)
	}
}

// judge says what is wrong with a command line, as far as its words tell.
func judge(line string) string {
	var path []string
	for _, word := range strings.Fields(line) {
		if !regexp.MustCompile(`^[a-z]+$`).MatchString(word) {
			break
		}
		path = append(path, word)
	}
	root := newRoot()
	command, _, err := root.Find(path)
	if err != nil || command == root {
		return "there is no such command"
	}
	if command.HasSubCommands() && !command.Runnable() {
		return "it is no whole command"
	}
	for _, flag := range longFlag.FindAllStringSubmatch(line, -1) {
		if command.Flags().Lookup(flag[1]) == nil && command.InheritedFlags().Lookup(flag[1]) == nil && flag[1] != "help" {
			return "it has no flag --" + flag[1]
		}
	}
	return ""
}

func newRoot() *cobra.Command {
	return (&app{Process: Process{In: strings.NewReader(""), Out: new(bytes.Buffer), Err: new(bytes.Buffer)}}).root()
}

// TestEveryCommandIsDescribed keeps help useful: each command and flag says what it is for.
func TestEveryCommandIsDescribed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s says nothing about itself", c.CommandPath())
		}
		if c.Runnable() && !c.HasSubCommands() && !strings.Contains(string(page), "`"+strings.TrimPrefix(c.CommandPath(), "counterfoil ")) {
			t.Errorf("docs/command-line.md does not name %s", c.CommandPath())
		}
		for _, below := range c.Commands() {
			visit(below)
		}
	}
	visit(newRoot())
}

func TestTheProgramOfTheReadmeIsTheExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../examples/once/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := bytes.Cut(example, []byte("package main"))
	if !bytes.Contains(readme, append([]byte("```go\npackage main"), program...)) {
		t.Error("the program in README.md is another one than examples/once/main.go")
	}
}
