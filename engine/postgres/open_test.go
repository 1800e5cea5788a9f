package postgres_test

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/postgres"
	"github.com/counterfoil/counterfoil/internal/testserver"
	"github.com/counterfoil/counterfoil/state"
)

func keysOf(ids ...string) []state.Key {
	keys := make([]state.Key, len(ids))
	for i, id := range ids {
		keys[i] = key(id)
	}
	return keys
}

func TestOpenCreatesNothingAndOneOfManyCreates(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t, testserver.PostgresOptions{}).DSN()
	_, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	wantError(t, "opening nothing", err, engine.ErrNoStore)
	errs := make(chan error)
	const creators = 8
	for range creators {
		go func() { errs <- postgres.Create(t.Context(), dsn, postgres.Options{}) }()
	}
	created := 0
	for range creators {
		switch err := <-errs; {
		case err == nil:
			created++
		case !errors.Is(err, engine.ErrStoreExists):
			t.Error(err)
		}
	}
	if created != 1 {
		t.Errorf("%d have created it", created)
	}
	must(t, increment(t.Context(), open(t, dsn, postgres.Options{}), key("k")))
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{})
	server.Exec("UPDATE counterfoil.meta SET version = version + 1")
	_, err := postgres.Open(t.Context(), server.DSN(), postgres.Options{})
	wantError(t, "Open", err, engine.ErrForeign)
	wantError(t, "Create", postgres.Create(t.Context(), server.DSN(), postgres.Options{}), engine.ErrForeign)
}

func TestUnsafeSettingsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config, name string
		o            postgres.Options
	}{
		{"fsync = off", "fsync", postgres.Options{}},
		{"full_page_writes = off", "full_page_writes", postgres.Options{}},
		{"synchronous_commit = off", "synchronous_standby_names", postgres.Options{Replicated: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := newStore(t, testserver.PostgresOptions{Config: []string{c.config}})
			for _, attempt := range []func() error{
				func() error { _, err := postgres.Open(t.Context(), server.DSN(), c.o); return err },
				func() error { return postgres.Create(t.Context(), server.DSN(), c.o) },
			} {
				err := attempt()
				wantError(t, c.config, err, engine.ErrUnsafe)
				if text := err.Error(); !strings.Contains(text, c.name+" is") || !strings.Contains(text, "ALTER SYSTEM SET "+c.name) {
					t.Errorf("it says %s", text)
				}
			}
			found, err := postgres.Settings(t.Context(), server.DSN(), c.o)
			must(t, err)
			if !slices.ContainsFunc(found, func(s engine.Setting) bool { return s.Name == c.name && !s.Safe && s.Mend != "" }) {
				t.Errorf("the settings are %v", found)
			}
			o := c.o
			o.UnsafeDurability = true
			e := open(t, server.DSN(), o)
			if unsafe := e.Guarantee().Unsafe; len(unsafe) != 1 || !strings.Contains(unsafe[0], c.name) {
				t.Errorf("the guarantee lists %v", unsafe)
			}
			must(t, increment(t.Context(), e, key("k")))
		})
	}
}

// TestSettingsAreLookedAtAgainAfterARestart: they can be changed meanwhile.
func TestSettingsAreLookedAtAgainAfterARestart(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{})
	e := open(t, server.DSN(), quick)
	must(t, increment(t.Context(), e, key("k")))
	server.Exec("ALTER SYSTEM SET fsync = off")
	server.Restart()
	eventually(t, "the engine refuses the server", func() error {
		err := increment(t.Context(), e, key("k"))
		if !errors.Is(err, engine.ErrUnsafe) {
			return errors.Join(errors.New("not refused"), err)
		}
		wantError(t, "increment", err, engine.ErrUnavailable)
		return nil
	})
}

func TestServerThatTakesNoWritesIsRefused(t *testing.T) {
	t.Parallel()
	primary := newStore(t, testserver.PostgresOptions{})
	standby := testserver.PostgresStandby(t, primary, testserver.PostgresOptions{})
	_, err := postgres.Open(t.Context(), standby.DSN(), postgres.Options{})
	wantError(t, "a standby", err, engine.ErrUnavailable)
	if !strings.Contains(err.Error(), "takes no writes") {
		t.Errorf("it says %v", err)
	}
}

func TestErrorsShowNoPassword(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.PostgresOptions{SCRAM: true})
	u, err := url.Parse(server.DSN())
	must(t, err)
	u.User = url.UserPassword("postgres", "hidden-word")
	for _, dsn := range []string{u.String(), strings.Replace(u.String(), "@", "@%zz", 1), "postgres://u:hidden-word@127.0.0.1:1/x"} {
		_, err := postgres.Open(t.Context(), dsn, postgres.Options{})
		wantError(t, "Open", err, engine.ErrUnavailable)
		if strings.Contains(err.Error(), "hidden-word") {
			t.Errorf("it says %v", err)
		}
	}
}

// TestLeastPrivilegesAreEnough uses the statements of docs/engines.md.
func TestLeastPrivilegesAreEnough(t *testing.T) {
	t.Parallel()
	server := newStore(t, testserver.PostgresOptions{})
	server.Exec(`CREATE ROLE counterfoil_app LOGIN;
		GRANT USAGE ON SCHEMA counterfoil TO counterfoil_app;
		GRANT SELECT ON counterfoil.meta TO counterfoil_app;
		GRANT SELECT, INSERT, UPDATE, DELETE ON counterfoil.records TO counterfoil_app`)
	u, err := url.Parse(server.DSN())
	must(t, err)
	u.User = url.User("counterfoil_app")
	e := open(t, u.String(), postgres.Options{})
	must(t, increment(t.Context(), e, key("k")))
	must(t, increment(t.Context(), e, key("k")))
	must(t, e.Transact(t.Context(), keysOf("k"), func(s engine.Snapshot) (engine.Plan, error) {
		return engine.Plan{NotAfter: s.Now + minute, Changes: []engine.Change{{Key: key("k")}}}, nil
	}))
	_, _, err = e.Scopes(t.Context(), "", 10)
	must(t, err)
	_, _, err = e.Due(t.Context(), scope, engine.ByExpiry, state.KindMarker, 1, "", 10)
	must(t, err)
	_, _, err = e.Scan(t.Context(), scope, state.KindMarker, "", "", 10)
	must(t, err)
	wantError(t, "creating", postgres.Create(t.Context(), u.String(), postgres.Options{}), engine.ErrStoreExists)
}
