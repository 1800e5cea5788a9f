package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/internal/testserver"
)

// shared starts the servers under stores that several of ours can be on. Those that are unsafe may lose what they
// acknowledge.
var shared = map[string]func(t *testing.T, unsafe bool) (url string){
	"redis": func(t *testing.T, unsafe bool) string {
		var config []string
		if unsafe {
			config = []string{"appendfsync everysec"}
		}
		return testserver.Redis(t, testserver.RedisOptions{Config: config}).URL()
	},
	"postgres": func(t *testing.T, unsafe bool) string {
		var config []string
		if unsafe {
			config = []string{"fsync = off"}
		}
		return testserver.Postgres(t, testserver.PostgresOptions{Config: config}).DSN()
	},
}

func TestServersOnOneSharedStoreGrantOnceWhileTheyAreKilled(t *testing.T) {
	t.Parallel()
	for name, start := range shared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := newMachine(t)
			first.store = start(t, false)
			p := first.start(nil)
			// Another machine, with the same keys.
			second := newMachine(t)
			second.store = first.store
			copyKeys(t, first, second)
			q := second.start(nil)
			l := newLoad(t, first.caller(10*time.Second), second.caller(10*time.Second))
			stop, done := make(chan struct{}), make(chan struct{})
			go func() { defer close(done); l.run(8, stop) }()
			for range 2 {
				l.after(30)
				p.kill()
				p = first.start(nil)
				l.after(30)
				if code := q.terminate(); code != 0 {
					t.Errorf("exit code %d\n%s", code, q.errors)
				}
				q = second.start(nil)
			}
			l.after(30)
			close(stop)
			<-done
			l.check(first.caller(5 * time.Second))
			if code, out, errs := second.run("doctor"); code != 0 || !strings.Contains(out, "setting") {
				t.Fatalf("doctor: %d %s %s", code, out, errs)
			}
		})
	}
}

// copyKeys gives a machine the keys and the admin's token of another.
func copyKeys(t *testing.T, from, to *machine) {
	t.Helper()
	err := errors.Join(os.Mkdir(to.dir, 0o700), os.Mkdir(filepath.Join(to.dir, "keys"), 0o700))
	for _, name := range []string{"keys/keyring.json", "admin.token"} {
		content, reading := os.ReadFile(filepath.Join(from.dir, name))
		err = errors.Join(err, reading, os.WriteFile(filepath.Join(to.dir, name), content, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestASharedStoreWithUnsafeSettingsIsRefusedByName(t *testing.T) {
	t.Parallel()
	for name, start := range shared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.store = start(t, true)
			p, said := m.launch(nil)
			setting := map[string]string{"redis": "appendfsync", "postgres": "fsync"}[name]
			if said != "" || p.wait() != 69 || !strings.Contains(p.errors.String(), setting) || strings.Count(p.errors.String(), "\n") != 1 {
				t.Fatalf("it serves at %q: %s\n%s", said, p.cmd.ProcessState, p.errors)
			}
			m.start(nil, "--unsafe-durability")
			if code, out, errs := m.run("doctor"); code != 1 || !strings.Contains(out, "BAD") || !strings.Contains(out, setting) {
				t.Fatalf("doctor: %d %s %s", code, out, errs)
			}
			if code, out, errs := m.run("doctor", "--unsafe-durability"); code != 0 || strings.Contains(out, "BAD") || !strings.Contains(out, "look") {
				t.Fatalf("doctor that accepts it: %d %s %s", code, out, errs)
			}
		})
	}
}
