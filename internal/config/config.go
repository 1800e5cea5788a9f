// Package config reads the options of the program from the command line, the environment and a file, all from one table
// ([Config.options]).
//
// An option `body-time` is the flag --body-time, the variable COUNTERFOIL_BODY_TIME and the key body_time of the YAML
// file that --config names. The flag goes before the variable, the variable before the file, the file before the
// default. Whatever is not in the table is an error: an unknown flag, key, or variable that begins with COUNTERFOIL_, a
// key that is there twice, a value of another form. Errors name the place and never the value.
//
// Secrets have no flag, since everybody on the machine can read the command lines of all processes; a file that holds one
// must be closed to others.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Group is a set of options that belong together: a command takes one group or more.
type Group uint8

// The groups.
const (
	Place Group = 1 << iota // where the state is: data, store, server, token, scope, owner
	Serve                   // the server
	Log                     // what is logged, and how
	Guard                   // how a guard listens
)

// Config is the value of every option. Fields of groups that a command did not bind keep what file and environment say.
type Config struct {
	Data  string // directory of the embedded store, keys and admin token
	Store string // URL of the engine; "" means the embedded one under Data

	Server string // URL of a server, instead of Data or Store
	Token  string // bearer token for Server. A secret
	Scope  string // "" if it was not said
	Owner  string // "" if it was not said

	Listen           string
	Witness          string
	Init             bool
	UnsafeDurability bool
	TLSCertificate   string
	TLSKey           string
	TLSClientCA      string

	MaxRequests    int
	MaxConnections int
	MaxHeader      Size
	MaxReceipt     Size
	MaxArguments   Size
	MaxBodies      Size
	HeaderTime     time.Duration
	BodyTime       time.Duration
	HandleTime     time.Duration
	DrainTime      time.Duration
	SweepEvery     time.Duration
	Retention      time.Duration
	Tombstones     time.Duration

	LogLevel  string
	LogFormat string

	file     string
	exposed  bool // a secret stands on the command line
	bound    Group
	bindings *pflag.FlagSet
}

// New returns the defaults.
func New() *Config {
	c := new(Config)
	for _, o := range c.options() {
		if o.fallback == "" {
			continue
		}
		if err := o.value.Set(o.fallback); err != nil {
			panic("config: default of " + o.name + ": " + err.Error())
		}
	}
	return c
}

// options is the table of all options.
func (c *Config) options() []option {
	return []option{
		{name: "config", group: Serve | Place, value: text(&c.file), usage: "YAML `file` with options; flags and COUNTERFOIL_… variables go before it"},

		{name: "data", group: Place, value: text(&c.Data), usage: "`directory` of the embedded store, the keys and the admin token"},
		{name: "store", group: Place, value: text(&c.Store), usage: "`URL` of the store: file:, redis://, rediss://, postgres://, memory:; without it the embedded store under --data"},
		{name: "server", group: Place, value: text(&c.Server), usage: "`URL` of a Counterfoil server to work on, instead of --data or --store"},
		{name: "token", group: Place, value: text(&c.Token), secret: true, usage: "bearer token for --server"},
		{name: "scope", group: Place, value: text(&c.Scope), usage: "`scope` to act in; without it default, or with --server the token's own"},
		{name: "owner", group: Place, value: text(&c.Owner), usage: "`owner` to act as; without it default, or with --server the token's own"},

		{name: "listen", group: Serve, value: text(&c.Listen), fallback: "127.0.0.1:8420", usage: "`address` to listen on"},
		{name: "init", group: Serve, value: truth(&c.Init), usage: "create the store if its data, keys and witness are all absent"},
		{name: "witness", group: Serve | Place, value: text(&c.Witness), usage: "`path` of the witness file, on another disk to notice that all of --data was put back; default DIR/witness"},
		{name: "unsafe-durability", group: Serve | Place, value: truth(&c.UnsafeDurability), usage: "run on an engine whose settings may lose acknowledged writes"},
		{name: "tls-certificate", group: Serve | Guard, value: text(&c.TLSCertificate), usage: "`file` with the certificate chain in PEM, to serve HTTPS"},
		{name: "tls-key", group: Serve | Guard, value: text(&c.TLSKey), usage: "`file` with the certificate's private key in PEM"},
		{name: "tls-client-ca", group: Serve | Guard, value: text(&c.TLSClientCA), usage: "`file` with the certificates in PEM of who may certify clients; a client without a certificate of theirs is refused"},

		{name: "max-requests", group: Serve, value: count(&c.MaxRequests), fallback: "1024", usage: "requests in progress; beyond it 503 overloaded"},
		{name: "max-connections", group: Serve | Guard, value: count(&c.MaxConnections), fallback: "4096", usage: "open connections; beyond it new ones wait"},
		{name: "max-header", group: Serve, value: &c.MaxHeader, fallback: "16KiB", usage: "`size` of the headers of a request; beyond it 431"},
		{name: "max-receipt", group: Serve | Place, value: &c.MaxReceipt, fallback: "1MiB", usage: "`size` of a receipt that is kept; of a larger one only digest and length"},
		{name: "max-arguments", group: Serve, value: &c.MaxArguments, fallback: "1MiB", usage: "`size` of a request body with a call's arguments; beyond it 413"},
		{name: "max-bodies", group: Serve, value: &c.MaxBodies, fallback: "256MiB", usage: "`size` of all large request bodies that are held at once; beyond it 503 overloaded"},
		{name: "header-time", group: Serve, value: span(&c.HeaderTime), fallback: "10s", usage: "until the headers of a request must be complete"},
		{name: "body-time", group: Serve, value: span(&c.BodyTime), fallback: "15s", usage: "until the body of a request must be complete; then 408"},
		{name: "handle-time", group: Serve, value: span(&c.HandleTime), fallback: "30s", usage: "until the store must have answered a request"},
		{name: "drain-time", group: Serve | Guard, value: span(&c.DrainTime), fallback: "30s", usage: "to finish what is in progress after SIGTERM"},
		{name: "sweep-every", group: Serve, value: span(&c.SweepEvery), fallback: "1m", usage: "between two passes that delete what has expired"},
		{name: "retention", group: Serve | Place, value: span(&c.Retention), fallback: "24h", usage: "how long a receipt is replayed"},
		{name: "tombstones", group: Serve | Place, value: spanOrNone(&c.Tombstones), fallback: "720h", usage: "how long a key stays taken after that; 0: it may be used anew at once"},

		{name: "log-level", group: Log, value: choice(&c.LogLevel, "debug", "info", "warn", "error"), fallback: "info", usage: "debug, info, warn or error"},
		{name: "log-format", group: Log, value: choice(&c.LogFormat, "text", "json"), fallback: "text", usage: "text or json"},
	}
}

// option is a row of the table.
type option struct {
	name     string // of the flag
	group    Group
	value    pflag.Value
	fallback string
	usage    string
	secret   bool // no flag
}

const prefix = "COUNTERFOIL_"

func (o *option) variable() string { return prefix + strings.ToUpper(o.key()) }

func (o *option) key() string { return strings.ReplaceAll(o.name, "-", "_") }

// Bind adds the flags of the groups to a command's.
func (c *Config) Bind(flags *pflag.FlagSet, groups Group) {
	c.bound, c.bindings = c.bound|groups, flags
	for _, o := range c.options() {
		if o.secret || o.group&groups == 0 || flags.Lookup(o.name) != nil {
			continue
		}
		flags.AddFlag(&pflag.Flag{Name: o.name, Usage: o.usage + "; also " + o.variable(), Value: o.value, DefValue: o.fallback, NoOptDefVal: bare(o.value)})
	}
}

// bare is the value of a flag without one.
func bare(v pflag.Value) string {
	if v.Type() == "bool" {
		return "true"
	}
	return ""
}

// Load puts what file and environment (as os.Environ gives it) say under the flags, which were parsed before. It refuses
// what the table does not know, and options that do not go together.
func (c *Config) Load(environ []string) error {
	options := c.options()
	variables, err := readEnvironment(options, environ)
	if err != nil {
		return err
	}
	path := c.file
	if !c.given("config") {
		path = variables["config"].text
	}
	file, err := readFile(options, path)
	if err != nil {
		return err
	}
	for _, o := range options {
		if c.given(o.name) {
			continue
		}
		from, ok := variables[o.name]
		if !ok {
			from, ok = file[o.name]
		}
		if !ok {
			continue
		}
		if err := o.value.Set(from.text); err != nil {
			return fmt.Errorf("%s: %w", from.place, err)
		}
	}
	c.exposed = c.given("store") && hasPassword(c.Store)
	return c.check()
}

func (c *Config) given(name string) bool { return c.bindings != nil && c.bindings.Changed(name) }

// check refuses options that do not go together.
func (c *Config) check() error {
	if c.bound&(Serve|Guard) != 0 && (c.TLSCertificate == "") != (c.TLSKey == "") {
		return errors.New("give both --tls-certificate and --tls-key, or neither")
	}
	if c.bound&(Serve|Guard) != 0 && c.TLSClientCA != "" && c.TLSCertificate == "" {
		return errors.New("--tls-client-ca needs --tls-certificate and --tls-key: clients show certificates over TLS alone")
	}
	return nil
}

// Warnings lists what an operator should know about how the options were given.
func (c *Config) Warnings() []string {
	if c.exposed {
		return []string{"the password in --store can be read in the list of processes; give the URL by COUNTERFOIL_STORE or the file of --config"}
	}
	return nil
}

// ShownStore is the URL of the store without its password, for logs and messages.
func (c *Config) ShownStore() string {
	u, err := url.Parse(c.Store)
	if err != nil {
		return "(a URL that cannot be read)"
	}
	return u.Redacted()
}

func hasPassword(store string) bool {
	u, err := url.Parse(store)
	if err != nil || u.User == nil {
		return false
	}
	_, has := u.User.Password()
	return has
}

// given is a value with where it stands.
type given struct{ text, place string }

// readEnvironment finds the options among the variables.
func readEnvironment(options []option, environ []string) (map[string]given, error) {
	out := map[string]given{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		at := slices.IndexFunc(options, func(o option) bool { return o.variable() == name })
		if at < 0 {
			return nil, fmt.Errorf("the environment has %s, which is no option; %s", name, nearest(options, name, (*option).variable))
		}
		if value == "" {
			return nil, fmt.Errorf("the variable %s is empty; unset it", name)
		}
		out[options[at].name] = given{value, "the variable " + name}
	}
	return out, nil
}

// nearest helps with a name that is misspelt.
func nearest(options []option, name string, form func(*option) string) string {
	names := make([]string, len(options))
	for i := range options {
		names[i] = form(&options[i])
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(distance(a, name), distance(b, name)) })
	return "did you mean " + names[0] + "?"
}

// distance counts the changes of one letter that make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
