package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/open"
	"github.com/counterfoil/counterfoil/internal/cli"
	"github.com/counterfoil/counterfoil/state"
)

// shell runs the program in this process on one store.
type shell struct {
	t   *testing.T
	dir string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{t, filepath.Join(t.TempDir(), "data")}
	s.ok("init")
	return s
}

func (s *shell) run(arguments ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	code = cli.Main(arguments, cli.Process{In: strings.NewReader(""), Out: &out, Err: &errs, Environ: []string{"COUNTERFOIL_DATA=" + s.dir}})
	return code, out.String(), errs.String()
}

func (s *shell) ok(arguments ...string) string {
	s.t.Helper()
	code, out, errs := s.run(arguments...)
	if code != 0 {
		s.t.Fatalf("%s: exit code %d: %s", arguments, code, errs)
	}
	return out
}

// fails runs a command that must exit with a code, and say something.
func (s *shell) fails(code int, says string, arguments ...string) {
	s.t.Helper()
	got, out, errs := s.run(arguments...)
	if got != code || !strings.Contains(errs, says) || strings.Count(errs, "\n") != 1 {
		s.t.Fatalf("%s: exit code %d, %q, %q; want %d and one line with %q", arguments, got, out, errs, code, says)
	}
}

// damage flips a bit in every record of a kind in the scope default, as a bad disk does.
func (s *shell) damage(kind state.Kind) {
	s.t.Helper()
	at, err := open.Parse(open.File(filepath.Join(s.dir, "store")))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx := context.Background()
	e, err := at.Open(ctx, open.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // read only.
	page, _, err := e.Scan(ctx, "default", kind, "", "", 100)
	if err != nil || len(page) == 0 {
		s.t.Fatalf("%d records of kind %s: %v", len(page), kind, err)
	}
	for _, f := range page {
		err := e.Transact(ctx, []state.Key{f.Key}, func(snap engine.Snapshot) (engine.Plan, error) {
			bad := *snap.Items[0]
			bad.Data = slices.Clone(bad.Data)
			bad.Data[len(bad.Data)/2] ^= 1
			return engine.Plan{Changes: []engine.Change{{Key: f.Key, Item: &bad}}, NotAfter: snap.Now + 1000}, nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// damaged is what the doctor lists.
type damaged struct {
	Damaged []struct{ Scope, Kind, ID, Version, Reason string }
}

func (s *shell) doctor() damaged {
	s.t.Helper()
	code, out, errs := s.run("doctor", "--json")
	if code != 1 || !strings.Contains(errs, "must be mended") {
		s.t.Fatalf("doctor: exit code %d: %s", code, errs)
	}
	var d damaged
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		s.t.Fatal(err)
	}
	return d
}

func TestADamagedOperationIsNeverRunAgainUntilItIsResolved(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.ok("run", "--key", "k", "--", "true")
	s.damage(state.KindOperation)
	s.fails(70, "record_corrupt", "run", "--key", "k", "--", "true")
	d := s.doctor()
	if len(d.Damaged) != 1 || d.Damaged[0].Kind != "operation" || d.Damaged[0].Scope != "default" {
		t.Fatalf("the doctor lists %+v", d)
	}
	id := d.Damaged[0].ID
	s.fails(2, "operation resolve", "doctor", "mend", "default", "operation", id, "--version", d.Damaged[0].Version, "--why", "x")
	s.ok("operation", "resolve", id, "--outcome", "happened", "--note", "the log has it")
	s.ok("doctor")
	s.fails(1, "key_reused", "run", "--key", "k", "--", "true")
}

func TestADamagedSpendIsMendedByNameAndVersion(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.ok("budget", "set", "b", "--unit", "cent", "--limit", "10")
	s.ok("budget", "spend", "r", "b=4")
	s.damage(state.KindSpend)
	s.fails(70, "record_corrupt", "budget", "spend", "r", "b=4")
	d := s.doctor()
	if len(d.Damaged) != 1 || d.Damaged[0].Kind != "spend" {
		t.Fatalf("the doctor lists %+v", d)
	}
	one := d.Damaged[0]
	s.fails(1, "look again", "doctor", "mend", "default", one.Kind, one.ID, "--version", strings.Repeat("0", 32), "--why", "x")
	s.ok("doctor", "mend", "default", one.Kind, one.ID, "--version", one.Version, "--why", "the ledger has it")
	s.fails(1, "look again", "doctor", "mend", "default", one.Kind, one.ID, "--version", one.Version, "--why", "x")
	s.ok("doctor")
	if out := s.ok("budget", "show", "b"); !strings.Contains(out, "spent 4") {
		t.Fatalf("what was spent stays spent: %s", out)
	}
}

func TestADamagedBudgetGrantsNothingAndIsNotForgotten(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.ok("budget", "set", "b", "--unit", "cent", "--limit", "10")
	s.damage(state.KindBudget)
	s.fails(70, "record_corrupt", "budget", "spend", "r", "b=4")
	d := s.doctor()
	if len(d.Damaged) != 1 {
		t.Fatalf("the doctor lists %+v", d)
	}
	s.fails(2, "restore a backup", "doctor", "mend", "default", "budget", d.Damaged[0].ID, "--version", d.Damaged[0].Version, "--why", "x")
}

func TestADamagedScopeGrantsNothing(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.damage(state.KindScope)
	s.fails(70, "record_corrupt", "run", "--key", "k", "--", "true")
	if d := s.doctor(); len(d.Damaged) != 1 || d.Damaged[0].Kind != "scope" {
		t.Fatalf("the doctor lists %+v", d)
	}
}
