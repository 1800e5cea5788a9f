package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/counterfoil/counterfoil/internal/config"
)

const all = config.Place | config.Serve | config.Log

// load reads options as a command does. An empty file means none.
func load(t *testing.T, file string, environ, flags []string) (*config.Config, error) {
	t.Helper()
	c := config.New()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.Bind(set, all)
	if file != "" {
		path := filepath.Join(t.TempDir(), "counterfoil.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--config", path)
	}
	if err := set.Parse(flags); err != nil {
		return nil, err
	}
	return c, c.Load(environ)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := load(t, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:8420" || c.MaxRequests != 1024 || c.Scope != "" || c.Owner != "" ||
		c.MaxReceipt != 1<<20 || c.Retention != 24*time.Hour || c.Tombstones != 720*time.Hour || c.Init || c.LogLevel != "info" {
		t.Fatalf("defaults: %+v", c)
	}
}

func TestAFlagGoesBeforeAVariableBeforeTheFileBeforeTheDefault(t *testing.T) {
	t.Parallel()
	const file = "listen: file:1\nmax_requests: 7\nbody_time: 3s\nmax_receipt: 2MiB\ninit: true\n"
	environ := []string{"COUNTERFOIL_LISTEN=env:1", "COUNTERFOIL_MAX_REQUESTS=8", "COUNTERFOIL_BODY_TIME=4s", "PATH=/bin", "COUNTERFOILX=1"}
	c, err := load(t, file, environ, []string{"--listen", "flag:1"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "flag:1" || c.MaxRequests != 8 || c.BodyTime != 4*time.Second || c.MaxReceipt != 2<<20 || !c.Init || c.DrainTime != 30*time.Second {
		t.Fatalf("%+v", c)
	}
	// A flag counts also where it says the default.
	c, err = load(t, file, environ, []string{"--max-requests", "1024", "--init=false"})
	if err != nil || c.MaxRequests != 1024 || c.Init {
		t.Fatalf("%+v, %v", c, err)
	}
}

func TestTheFileCanBeNamedByAVariable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("listen: file:1"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := load(t, "", []string{"COUNTERFOIL_CONFIG=" + path}, nil)
	if err != nil || c.Listen != "file:1" {
		t.Fatalf("%+v, %v", c, err)
	}
}

func TestWhatTheTableDoesNotKnowIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file           string
		environ, flags []string
		want           string
	}{
		"unknown variable":            {environ: []string{"COUNTERFOIL_LISTN=x"}, want: "COUNTERFOIL_LISTN, which is no option; did you mean COUNTERFOIL_LISTEN?"},
		"empty variable":              {environ: []string{"COUNTERFOIL_DATA="}, want: "COUNTERFOIL_DATA is empty"},
		"unknown key":                 {file: "data: x\nlistn: y\n", want: "line 2: no option of that name; did you mean listen?"},
		"key spelt as a flag":         {file: "max-requests: 5\n", want: "did you mean max_requests?"},
		"key twice":                   {file: "data: x\ndata: y\n", want: "line 2"},
		"a file in a file":            {file: "config: x\n", want: "no option"},
		"a list":                      {file: "data: [x]\n", want: "data wants one value"},
		"null":                        {file: "data:\n", want: "data wants one value"},
		"an alias":                    {file: "data: &a x\nstore: *a\n", want: "store wants one value"},
		"no mapping":                  {file: "- data\n", want: "one a line"},
		"two documents":               {file: "data: x\n---\ndata: y\n", want: "one YAML document"},
		"no YAML":                     {file: "data: \"secret-value\n", want: "not valid YAML"},
		"too large":                   {file: "data: " + strings.Repeat("x", 70_000), want: "more than 65536 bytes"},
		"a number that is none":       {environ: []string{"COUNTERFOIL_MAX_REQUESTS=many"}, want: "the variable COUNTERFOIL_MAX_REQUESTS: want an integer"},
		"a number of 0":               {file: "max_requests: 0", want: "line 1: max_requests: want an integer from 1"},
		"a duration without unit":     {file: "body_time: 15", want: "want a duration"},
		"a duration of 0":             {file: "body_time: 0s", want: "want a duration"},
		"a negative duration":         {file: "tombstones: -1h", want: "want a duration"},
		"a truth that is none":        {file: "init: yes", want: "want true or false"},
		"a size that is none":         {file: "max_receipt: 4MB", want: "want a size"},
		"a size beyond":               {file: "max_receipt: 2000GiB", want: "want a size"},
		"a level that is none":        {file: "log_level: loud", want: "want one of debug, info, warn, error"},
		"a flag that is none":         {flags: []string{"--listn", "x"}, want: "unknown flag: --listn"},
		"a secret as a flag":          {flags: []string{"--token", "cf_secret-value"}, want: "unknown flag: --token"},
		"a certificate without a key": {flags: []string{"--tls-certificate", "x"}, want: "both --tls-certificate and --tls-key"},
		"a file that is not there":    {flags: []string{"--config", "/nonexistent/x.yaml"}, want: "no such file"},
		"a directory":                 {flags: []string{"--config", "/"}, want: "no regular file"},
		"two lines":                   {environ: []string{"COUNTERFOIL_DATA=a\nb"}, want: "want one line"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, c.file, c.environ, c.flags)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want an error with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "secret-value") {
				t.Fatalf("the error repeats the value: %v", err)
			}
		})
	}
}

func TestTombstonesMayBeNone(t *testing.T) {
	t.Parallel()
	c, err := load(t, "tombstones: 0s", nil, nil)
	if err != nil || c.Tombstones != 0 {
		t.Fatalf("%v, %v", c.Tombstones, err)
	}
}

func TestASecretComesFromAVariableOrAFileClosedToOthers(t *testing.T) {
	t.Parallel()
	c, err := load(t, "", []string{"COUNTERFOIL_TOKEN=cf_x"}, nil)
	if err != nil || c.Token != "cf_x" {
		t.Fatalf("%q, %v", c.Token, err)
	}
	for _, file := range []string{"token: cf_secret-value\n", "store: postgres://u:secret-value@h/db\n"} {
		if _, err := load(t, file, nil, nil); err != nil {
			t.Fatalf("closed file: %v", err)
		}
		path := filepath.Join(t.TempDir(), "open.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := load(t, "", nil, []string{"--config", path})
		if err == nil || !strings.Contains(err.Error(), "chmod 600") || strings.Contains(err.Error(), "secret-value") {
			t.Fatalf("open file: %v", err)
		}
	}
}

func TestAPasswordOnTheCommandLineIsWarnedOfAndNotShown(t *testing.T) {
	t.Parallel()
	const store = "postgres://u:secret-value@h/db" //nolint:gosec // no secret
	c, err := load(t, "", nil, []string{"--store", store})
	if err != nil || len(c.Warnings()) != 1 || c.Store != store {
		t.Fatalf("%v, %v", c.Warnings(), err)
	}
	if shown := c.ShownStore() + c.Warnings()[0]; strings.Contains(shown, "secret-value") {
		t.Fatalf("shown: %s", shown)
	}
	for _, quiet := range [][]string{{"--store", "postgres://u@h/db"}, {"--store", "memory:"}, nil} {
		c, err := load(t, "", nil, quiet)
		if err != nil || len(c.Warnings()) != 0 {
			t.Fatalf("%v: %v, %v", quiet, c.Warnings(), err)
		}
	}
	c, err = load(t, "", []string{"COUNTERFOIL_STORE=" + store}, nil)
	if err != nil || len(c.Warnings()) != 0 {
		t.Fatalf("variable: %v, %v", c.Warnings(), err)
	}
}

func TestEveryFlagNamesItsVariable(t *testing.T) {
	t.Parallel()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.New().Bind(set, all)
	n := 0
	set.VisitAll(func(f *pflag.Flag) {
		n++
		want := "COUNTERFOIL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if !strings.Contains(f.Usage, want) {
			t.Errorf("--%s: usage %q does not name %s", f.Name, f.Usage, want)
		}
	})
	if n < 25 {
		t.Fatalf("only %d flags", n)
	}
	if set.Lookup("token") != nil {
		t.Fatal("the token has a flag")
	}
}

func TestSizesAreWrittenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1", "1023", "1KiB", "1500", "64KiB", "4MiB", "3GiB", "1024GiB"} {
		var s config.Size
		if err := s.Set(text); err != nil || s.String() != text {
			t.Errorf("%s: %s, %v", text, s.String(), err)
		}
	}
}
