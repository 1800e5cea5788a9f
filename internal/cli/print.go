package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
)

// answer prints what a command answers: the value with --json, else the text.
func (a *app) answer(value any, format string, args ...any) error {
	if a.json {
		return a.printJSON(value)
	}
	_, err := fmt.Fprintf(a.Out, format+"\n", args...)
	return err
}

// printJSON prints a value as one line of JSON, in which nothing but a blank is there without being seen.
func (a *app) printJSON(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Out, escaped(string(line), func(rune, rune) bool { return false }))
	return err
}

// table prints rows in columns.
func (a *app) table(header string, rows func(*tabwriter.Writer)) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	rows(w)
	return w.Flush()
}
