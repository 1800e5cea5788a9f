package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/config"
	"github.com/counterfoil/counterfoil/internal/private"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/store"
)

// created is what init answers.
type created struct {
	Store     string `json:"store"`
	Keys      string `json:"keys,omitzero"`
	Witness   string `json:"witness,omitzero"`
	TokenFile string `json:"token_file,omitzero"`
	// Migrated: the store was there, in an older version. Nothing else was made.
	Migrated bool `json:"migrated,omitzero"`
}

func (a *app) initCommand() *cobra.Command {
	return a.command("init", "Create a store whose data, keys and witness are all absent", config.Place, cobra.NoArgs, func(ctx context.Context, c *call) error {
		if c.config.Server != "" {
			return badValue("init creates a store on this machine: give --data DIR, not --server")
		}
		p, err := placeOf(c.config)
		if err != nil {
			return err
		}
		if p.location.Forgets() {
			return badValue("memory: would forget the store at once; use 'counterfoil serve --store memory: --init'")
		}
		log := slog.New(slog.DiscardHandler)
		switch migrated, err := p.location.Migrate(ctx, p.engineOptions(c.config, log, nil)); {
		case err != nil:
			return err
		case migrated:
			return c.answer(&created{Store: p.shown, Migrated: true}, "brought the store's schema up to date; its records are as they were")
		}
		s, err := create(ctx, p, c.config, log, nil)
		if err != nil {
			return err
		}
		if err := s.close(); err != nil {
			return err
		}
		return c.answer(&created{Store: p.shown, Keys: p.keys, Witness: p.witness, TokenFile: p.token}, "created the store; the admin's token is in %s", p.token)
	})
}

// tokenName is the name of the first token of a store.
const tokenName = "admin.token"

// create makes a store whose data, keys and witness are all absent, and leaves it open. It can be cut off at any point:
// then some of them are there, and what is to be done is said when they are found.
func create(ctx context.Context, p place, c *config.Config, log *slog.Logger, exit func(int)) (*stack, error) {
	if p.dir == "" {
		return nil, badValue("--data DIR is missing: the admin's token is written to DIR/%s", tokenName)
	}
	if err := p.vacant(); err != nil {
		return nil, err
	}
	dir, err := private.Make(p.dir)
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	defer dir.Close()
	// Keys come after the place: a store that is there without its keys must not get others.
	if err := p.location.Provision(ctx, p.engineOptions(c, log, exit)); err != nil {
		return nil, err
	}
	keys, err := p.createKeys(ctx)
	if err != nil {
		return nil, err
	}
	e, err := p.location.Open(ctx, p.engineOptions(c, log, exit))
	if err != nil {
		return nil, err
	}
	o := p.options(c, keys, log)
	if err := store.Create(ctx, e, o); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	s, err := store.Open(ctx, e, o)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	whole, err := assemble(p, c, e, s, keys, log)
	if err != nil {
		return nil, err
	}
	if err := whole.writeToken(ctx, dir); err != nil {
		return nil, errors.Join(err, whole.close())
	}
	return whole, nil
}

// vacant refuses a place where any part of a store is: what is left of another one must be looked at by a person.
func (p place) vacant() error {
	if p.location.Forgets() {
		return nil
	}
	for _, part := range []struct{ name, path string }{{"keys", p.keys}, {"a witness", p.witness}} {
		if part.path == "" {
			continue
		}
		if _, err := os.Lstat(part.path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: there are %s at %s; a store is created only where data, keys and witness are all absent; "+
				"open it without init, or, if creating it was cut off, move %s away and try again", engine.ErrStoreExists, part.name, part.path, p.dir)
		}
	}
	return nil
}

func (p place) createKeys(ctx context.Context) (*keyring.Keyring, error) {
	if p.location.Forgets() {
		return keyring.NewMemory(keyring.Options{}, access.DefaultScope)
	}
	return keyring.Create(ctx, p.keys, keyring.Options{}, access.DefaultScope)
}

// writeToken creates the admin's token and keeps it in its file.
func (s *stack) writeToken(ctx context.Context, dir *private.Dir) error {
	operator, err := access.Operator(access.DefaultScope, access.DefaultOwner)
	if err != nil {
		return err
	}
	_, token, err := s.access.Create(ctx, operator, access.AdminGrant())
	if err != nil {
		return err
	}
	if err := dir.Replace(tokenName, []byte(token.Reveal()+"\n")); err != nil {
		return fmt.Errorf("the store was created, but the admin's token could not be kept: %w; create another one with 'counterfoil token create'", err)
	}
	return nil
}
