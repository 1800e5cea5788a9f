package cli

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/entropy"
)

// maxInput is how many bytes are read from a file or stdin: more than the server takes.
const maxInput = 32 << 20

// content gives what a value says: @FILE is the content of the file, - that of stdin, anything else itself.
func (a *app) content(value string) ([]byte, error) {
	switch {
	case value == "-":
		return readAll(a.In, "stdin")
	case strings.HasPrefix(value, "@"):
		return readFile(value[1:])
	}
	return []byte(value), nil
}

// file gives the content of a file, - for stdin.
func (a *app) file(path string) ([]byte, error) {
	if path == "-" {
		return readAll(a.In, "stdin")
	}
	return readFile(path)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, badValue("%w", err)
	}
	defer f.Close()
	return readAll(f, path)
}

func readAll(from io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	if err == nil && len(b) > maxInput {
		err = fmt.Errorf("more than %d bytes", maxInput)
	}
	if err != nil {
		return nil, badValue("%s: %w", name, err)
	}
	return b, nil
}

// secret reads one word from a file, - for stdin: secrets stand on no command line.
func (a *app) secret(path string) (string, error) {
	b, err := a.file(path)
	return strings.TrimSpace(string(b)), err
}

// jsonValue reads a value that must be JSON.
func (a *app) jsonValue(flag, value string) (json.RawMessage, error) {
	if value == "" {
		return nil, nil
	}
	b, err := a.content(value)
	if err != nil {
		return nil, err
	}
	return checkedJSON(flag, b)
}

func checkedJSON(flag string, b []byte) (json.RawMessage, error) {
	if err := canonical.Check(b, maxInput); err != nil {
		return nil, badValue("%s: want JSON: %w", flag, err)
	}
	return b, nil
}

// amounts is a flag BUDGET=AMOUNT that can be given several times.
type amounts struct{ list []api.Entry }

func (v *amounts) String() string { return "" }
func (*amounts) Type() string     { return "budget=amount" }

// Set adds an entry.
func (v *amounts) Set(text string) error {
	e, err := parseEntry(text)
	if err == nil {
		v.list = append(v.list, e)
	}
	return err
}

func parseEntry(text string) (api.Entry, error) {
	name, digits, ok := strings.Cut(text, "=")
	amount, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || amount > api.MaxInteger {
		return api.Entry{}, errors.New("want BUDGET=AMOUNT, an integer from 0 to 9007199254740991")
	}
	var e api.Entry
	if err := e.Budget.UnmarshalText([]byte(name)); err != nil {
		return api.Entry{}, err
	}
	e.Amount = amount
	return e, nil
}

func parseEntries(args []string) ([]api.Entry, error) {
	out := make([]api.Entry, 0, len(args))
	for _, arg := range args {
		e, err := parseEntry(arg)
		if err != nil {
			return nil, badValue("%s: %w", arg, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// seconds is a flag that takes a duration of whole seconds.
type seconds struct{ to *api.Seconds }

func secondsFlag(flags *pflag.FlagSet, to *api.Seconds, name string, usage string) {
	flags.Var(seconds{to}, name, usage)
}

func (v seconds) String() string {
	if v.to == nil || *v.to == 0 {
		return ""
	}
	return v.to.Duration().String()
}

func (seconds) Type() string { return "duration" }

// Set reads a duration such as 30s, 10m or 24h.
func (v seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d%time.Second != 0 {
		return errors.New("want whole seconds, such as 30s, 10m or 24h")
	}
	*v.to = api.Seconds(d / time.Second)
	return nil
}

// digest reads 64 lower-case hex digits from the command line.
func digest(what, text string) (api.Digest, error) {
	var d api.Digest
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return "", badValue("%s: %w", what, err)
	}
	return d, nil
}

// name reads an id, key or name from the command line.
func name(what, text string) (api.Name, error) {
	var n api.Name
	if err := n.UnmarshalText([]byte(text)); err != nil {
		return "", badValue("%s: %w", what, err)
	}
	return n, nil
}

// receiptFlags are the flags that say what an operation came to.
type receiptFlags struct {
	status      int
	contentType string
	body        string
	bodyFile    string
	capture     amounts
	nothing     bool
	command     *pflag.FlagSet
}

func (r *receiptFlags) bind(flags *pflag.FlagSet) {
	r.command = flags
	flags.IntVar(&r.status, "status", 0, "HTTP status or exit `code` of the effect")
	flags.StringVar(&r.contentType, "content-type", "", "media `type` of the body")
	flags.StringVar(&r.body, "body", "", "`JSON` that a replay gives; @FILE reads it from a file, - from stdin")
	flags.StringVar(&r.bodyFile, "body-file", "", "`file` with the bytes that a replay gives, - for stdin")
	flags.Var(&r.capture, "capture", "what its hold is charged, again for each budget; without it all of it")
	flags.BoolVar(&r.nothing, "capture-nothing", false, "charge its hold nothing")
}

func (r *receiptFlags) given() bool {
	return slices.ContainsFunc([]string{"status", "content-type", "body", "body-file"}, r.command.Changed)
}

func (r *receiptFlags) receipt(a *app) (*api.Receipt, error) {
	out := &api.Receipt{Status: r.status, ContentType: r.contentType}
	var err error
	switch {
	case r.body != "" && r.bodyFile != "":
		return nil, badValue("give either --body or --body-file")
	case r.body != "":
		out.Body, err = a.jsonValue("--body", r.body)
	case r.bodyFile != "":
		var b []byte
		b, err = a.file(r.bodyFile)
		text := base64.StdEncoding.EncodeToString(b)
		out.Body64 = &text
	}
	return out, err
}

// captured is what the hold is charged; nil is all of it.
func (r *receiptFlags) captured() ([]api.Entry, error) {
	switch {
	case r.nothing && len(r.capture.list) > 0:
		return nil, badValue("give either --capture or --capture-nothing")
	case r.nothing:
		return []api.Entry{}, nil
	}
	return r.capture.list, nil
}

// segment writes a value as one segment of a path.
func segment(value string) string { return url.PathEscape(value) }

// listFlags are the flags of a command that lists.
type listFlags struct {
	limit  int
	cursor string
}

func (l *listFlags) bind(flags *pflag.FlagSet) {
	flags.IntVar(&l.limit, "limit", 50, "how many, 1 to 500")
	flags.StringVar(&l.cursor, "cursor", "", "where to go on, as the list before said")
}

func (l *listFlags) query() url.Values {
	q := url.Values{"limit": {strconv.Itoa(l.limit)}}
	if l.cursor != "" {
		q.Set("cursor", l.cursor)
	}
	return q
}

// more says how to see the rest of a list.
func (a *app) more(cursor string) {
	if cursor != "" && !a.json {
		a.note("there are more: add --cursor " + quote(cursor))
	}
}

// drawToken draws what makes a repetition of a request known.
func drawToken() (api.Token, error) {
	var t [16]byte
	if err := entropy.Fill(t[:]); err != nil {
		return "", err
	}
	return api.TokenFrom(t), nil
}
