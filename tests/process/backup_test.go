package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

func TestAnOldBackupIsRefusedUntilItIsRecoveredAndReconciled(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p := m.start(nil)
	before := newLoad(t, m.caller(5*time.Second))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); before.run(4, stop) }()
	before.after(20)
	close(stop)
	<-done
	backup := filepath.Join(filepath.Dir(m.dir), "backup")
	c := m.caller(5 * time.Second)
	call := permit.Expected{Subject: "s", Capability: "c", Server: "s", Tool: "t", RequestID: "r", ParameterHash: strings.Repeat("0", 64)}
	issued, err := c.Authorize(t.Context(), counterfoil.AuthorizeParams{Call: call, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	// After the copy was made: an execution and the use of a permit that it does not know.
	lost, err := c.Begin(t.Context(), counterfoil.BeginParams{Key: "lost", Fingerprint: counterfoil.Fingerprint{1}})
	if err != nil || lost.State != counterfoil.Execute {
		t.Fatalf("%+v, %v", lost, err)
	}
	if _, err := c.Consume(t.Context(), counterfoil.ConsumeParams{Permit: issued.Permit, Expected: call}); err != nil {
		t.Fatal(err)
	}
	if code := p.terminate(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.errors)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(m.dir, "store")), os.Rename(backup, filepath.Join(m.dir, "store"))); err != nil {
		t.Fatal(err)
	}

	refused, _ := m.launch(nil)
	if code := refused.wait(); code != 69 || !strings.Contains(refused.errors.String(), "counterfoil recover") {
		t.Fatalf("exit code %d\n%s", code, refused.errors)
	}
	if code, out, errs := m.run("recover", "--why", "the backup was put back"); code != 0 {
		t.Fatalf("recover: %d %s %s", code, out, errs)
	}
	p = m.start(nil)
	if _, err := c.Begin(t.Context(), counterfoil.BeginParams{Key: "lost", Fingerprint: counterfoil.Fingerprint{1}}); !errors.Is(err, state.ErrRecovering) {
		t.Fatalf("a begin in quarantine: %v", err)
	}
	if _, err := c.Consume(t.Context(), counterfoil.ConsumeParams{Permit: issued.Permit, Expected: call}); !errors.Is(err, permit.ErrRevoked) {
		t.Fatalf("the permit whose use was lost: %v", err)
	}
	before.check(c)
	p.terminate()
	if code, out, errs := m.run("scope", "lift", "default", "--note", "the ledger was compared", "--epoch", "3"); code != 0 {
		t.Fatalf("lift: %d %s %s", code, out, errs)
	}
	m.start(nil)
	if b, err := c.Begin(t.Context(), counterfoil.BeginParams{Key: "new", Fingerprint: counterfoil.Fingerprint{1}}); err != nil || b.State != counterfoil.Execute {
		t.Fatalf("after the quarantine: %+v, %v", b, err)
	}
	if e, err := c.Epoch(t.Context()); err != nil || e.Epoch != 3 {
		t.Fatalf("epoch: %+v, %v", e, err)
	}
	if _, err := c.Consume(t.Context(), counterfoil.ConsumeParams{Permit: issued.Permit, Expected: call}); !errors.Is(err, permit.ErrRevoked) {
		t.Fatalf("the permit whose use was lost: %v", err)
	}
}
