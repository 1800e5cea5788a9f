package open_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/open"
	"github.com/counterfoil/counterfoil/internal/testserver"
)

func TestURLThatNamesNoEngineIsRefusedWithoutBeingRepeated(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "hidden-word", "ftp://hidden-word", "memory:hidden-word", "file:", "file://hidden-word/x",
		"redis:hidden-word", "postgres:hidden-word",
		"redis://u:hidden-word@h?guarantee=most",
		"postgres://u:hidden-word@h/d?guarantee=replicated&guarantee=node", "postgres://u:hidden-word@h/d?guarantee=replicated&replicas=1",
		"redis://u:hidden-word@h?replicas=1", "redis://u:hidden-word@h?guarantee=replicated&replicas=0",
		"redis://u:hidden-word@h?guarantee=replicated&replicas=17", "postgres://u:hidden-word@h/d?a=%zz",
		"redis://u:hidden-word@h?config=hidden-word", "postgres://u:hidden-word@h/d?config=hidden",
	} {
		_, err := open.Parse(url)
		if !errors.Is(err, open.ErrURL) {
			t.Errorf("%q: %v", url, err)
		} else if strings.Contains(err.Error(), "hidden-word") {
			t.Errorf("%q is repeated: %v", url, err)
		}
	}
}

func TestURLSaysWhatIsThere(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]struct{ forgets, shared bool }{
		"memory:":                         {true, false},
		"file:/somewhere":                 {false, false},
		"redis://a:1,b:2":                 {false, true},
		"rediss://a?guarantee=replicated": {false, true},
		"redis://a?guarantee=replicated&replicas=2": {false, true},
		"redis://a?config=hidden":                   {false, true},
		"postgres://a/b?sslmode=disable":            {false, true},
		"postgresql://a/b?guarantee=node":           {false, true},
	} {
		l, err := open.Parse(url)
		if err != nil || l.Forgets() != want.forgets || l.Shared() != want.shared {
			t.Errorf("%s: forgets %v, shared %v, %v", url, l.Forgets(), l.Shared(), err)
		}
	}
}

func TestServersAreProvisionedOpenedAndLookedAtByURL(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"redis":    testserver.Redis(t, testserver.RedisOptions{}).URL(),
		"postgres": testserver.Postgres(t, testserver.PostgresOptions{}).DSN(),
	} {
		l, err := open.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Open(t.Context(), open.Options{}); !errors.Is(err, engine.ErrNoStore) {
			t.Errorf("%s: opened before it was made: %v", name, err)
		}
		if err := l.Provision(t.Context(), open.Options{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := l.Provision(t.Context(), open.Options{}); !errors.Is(err, engine.ErrStoreExists) {
			t.Errorf("%s: made twice: %v", name, err)
		}
		if migrated, err := l.Migrate(t.Context(), open.Options{}); migrated || err != nil {
			t.Errorf("%s: the newest was migrated: %v, %v", name, migrated, err)
		}
		e, err := l.Open(t.Context(), open.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if g := e.Guarantee(); g.Engine != name || g.Level != engine.Node || !g.Shared {
			t.Errorf("%s: %v", name, g)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		found, err := l.Settings(t.Context(), open.Options{})
		if err != nil || len(found) < 3 {
			t.Errorf("%s: settings %v, %v", name, found, err)
		}
	}
	// The guarantee of several machines needs standbys, which this server has not.
	l, err := open.Parse(testserver.Postgres(t, testserver.PostgresOptions{}).DSN() + "&guarantee=replicated")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Provision(t.Context(), open.Options{}); !errors.Is(err, engine.ErrUnsafe) {
		t.Errorf("replicated without standbys: %v", err)
	}
}

// TestURLOfSeveralServersFindsTheOneThatTakesWrites: after a failover it is another one than the first.
func TestURLOfSeveralServersFindsTheOneThatTakesWrites(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t, testserver.PostgresOptions{})
	standby := testserver.PostgresStandby(t, primary, testserver.PostgresOptions{})
	l, err := open.Parse(strings.Replace(primary.DSN(), primary.Addr(), standby.Addr()+","+primary.Addr(), 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Provision(t.Context(), open.Options{}); err != nil {
		t.Fatal(err)
	}
	before, err := l.Open(t.Context(), open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Error(err)
	}
	primary.Kill()
	standby.Exec("ALTER SYSTEM SET synchronous_standby_names = ''")
	standby.Promote()
	after, err := l.Open(t.Context(), open.Options{})
	if err != nil {
		t.Fatalf("after the failover: %v", err)
	}
	if err := after.Close(); err != nil {
		t.Error(err)
	}
}
