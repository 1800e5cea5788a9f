package process_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

func TestKilledUnderLoadNothingIsGrantedTwiceAndWhatWasAcknowledgedIsKept(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p := m.start(nil)
	l := newLoad(t, m.caller(5*time.Second))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); l.run(8, stop) }()
	for range 5 {
		l.after(40)
		p.kill()
		p = m.start(nil)
	}
	l.after(40)
	close(stop)
	<-done
	l.check(m.caller(0))
}

func TestToldToStopUnderLoadItLosesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p := m.start(nil)
	l := newLoad(t, m.caller(10*time.Second))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); l.run(8, stop) }()
	for range 3 {
		l.after(40)
		if code := p.terminate(); code != 0 {
			t.Fatalf("exit code %d\n%s", code, p.errors)
		}
		p = m.start(nil)
	}
	l.after(40)
	close(stop)
	<-done
	l.check(m.caller(0))
	// Whoever sends again until the server is back has an answer to everything.
	for key := range l.granted {
		if l.recorded[key] == "" {
			t.Errorf("%s was granted, and its receipt never acknowledged", key)
		}
	}
}

func TestASecondServerOnADirectoryNamesTheFirst(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	first := m.start(nil)
	second, _ := m.launch(nil, "--listen", "127.0.0.1:0")
	if code := second.wait(); code != 69 {
		t.Fatalf("exit code %d\n%s", code, second.errors)
	}
	said := second.errors.String()
	if !strings.Contains(said, first.url) || strings.Count(said, "\n") != 1 {
		t.Fatalf("it does not name %s in one line:\n%s", first.url, said)
	}
	if _, err := m.caller(0).Ready(t.Context()); err != nil {
		t.Fatalf("the first one: %v", err)
	}
	code, _, errs := m.run("operation", "list")
	if code != 69 || !strings.Contains(errs, first.url) {
		t.Fatalf("a command on the directory: exit code %d: %s", code, errs)
	}
	first.kill()
	if code, _, errs := m.run("operation", "list"); code != 0 {
		t.Fatalf("once the first one is gone: exit code %d: %s", code, errs)
	}
}

func TestWithoutAServerNothingIsGranted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p := m.start(nil)
	c := m.caller(-1)
	p.kill()
	if _, err := c.Epoch(t.Context()); !errors.Is(err, state.ErrUnavailable) {
		t.Fatalf("epoch: %v", err)
	}
}
