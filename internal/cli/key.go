package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/config"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/state"
)

func (a *app) keyCommand() *cobra.Command {
	return group("key", "The keys that sign a scope's permits, and with --integrity those that seal the store's records",
		a.keyRotate(), a.keyList(), a.keyTrust(), a.keyRetire())
}

func (a *app) keyRotate() *cobra.Command {
	var integrity bool
	c := a.command("rotate", "Make a new key; it is used once every server knows it", config.Place, cobra.NoArgs, func(ctx context.Context, c *call) error {
		if integrity {
			return c.rotateIntegrity(ctx)
		}
		return c.with(ctx, func(at *reached) error {
			var ans api.KeyAnswer
			if err := at.once(ctx, "/v1/keys/rotate", struct{}{}, &ans); err != nil {
				return err
			}
			return c.answer(&ans, "%s", keyLine(&ans.Key))
		})
	})
	c.Flags().BoolVar(&integrity, "integrity", false, "the key that seals the store's records; needs --data")
	return c
}

// with reaches what the options name for as long as do runs.
func (c *call) with(ctx context.Context, do func(*reached) error) error {
	at, err := c.reach(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(at), at.close())
}

func keyLine(k *api.SigningKey) string {
	text := string(k.Public) + " " + k.State
	if k.SignsFrom != (api.Time{}) {
		text += ", signs from " + k.SignsFrom.String()
	}
	return text
}

func (a *app) keyList() *cobra.Command {
	var integrity bool
	c := a.command("list", "List the public keys whose permits the scope accepts", config.Place, cobra.NoArgs, func(ctx context.Context, c *call) error {
		if integrity {
			return c.listIntegrity()
		}
		return c.with(ctx, func(at *reached) error {
			var ans api.List[api.SigningKey]
			if err := at.get(ctx, "/v1/keys", nil, &ans); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(&ans)
			}
			return c.table("PUBLIC\tSTATE\tADDED", func(w *tabwriter.Writer) {
				for i := range ans.Items {
					fmt.Fprintf(w, "%s\t%s\t%s\n", ans.Items[i].Public, ans.Items[i].State, ans.Items[i].AddedAt)
				}
			})
		})
	})
	c.Flags().BoolVar(&integrity, "integrity", false, "the ids of the keys that seal the store's records; needs --data")
	return c
}

func (a *app) keyTrust() *cobra.Command {
	var public string
	c := a.asking("trust", "Accept permits that another issuer signed", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) error {
		key, err := digest("--public", public)
		if err != nil {
			return err
		}
		var ans api.KeyAnswer
		if err := at.once(ctx, "/v1/keys/trust", &api.KeyRequest{Public: key}, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "%s", keyLine(&ans.Key))
	})
	c.Flags().StringVar(&public, "public", "", "the issuer's Ed25519 public key in `hex`")
	return c
}

func (a *app) keyRetire() *cobra.Command {
	var public, integrity string
	c := a.command("retire", "Refuse permits that a key signed from now on", config.Place, cobra.NoArgs, func(ctx context.Context, c *call) error {
		if (public == "") == (integrity == "") {
			return badValue("say which key: --public HEX, or --integrity ID")
		}
		if integrity != "" {
			return c.retireIntegrity(ctx, integrity)
		}
		key, err := digest("--public", public)
		if err != nil {
			return err
		}
		return c.with(ctx, func(at *reached) error {
			var ans api.RetireAnswer
			if err := at.once(ctx, "/v1/keys/retire", &api.KeyRequest{Public: key}, &ans); err != nil {
				return err
			}
			return c.answer(&ans, "retired")
		})
	})
	c.Flags().StringVar(&public, "public", "", "a public key that the scope accepts, in `hex`")
	c.Flags().StringVar(&integrity, "integrity", "", "`id` of a key that no record is sealed under any more; needs --data")
	return c
}

// integrityKey is an integrity key as --json shows it, without the key.
type integrityKey struct {
	ID      string   `json:"id"`
	Writes  bool     `json:"writes"`
	AddedAt api.Time `json:"added_at"`
}

func integrityView(k *keyring.IntegrityKey) integrityKey {
	return integrityKey{hex.EncodeToString(k.ID[:]), k.Writes, api.TimeOf(k.Added.UnixMilli())}
}

func parseIntegrity(text string) (id state.KeyID, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, badValue("--integrity: want the id that 'counterfoil key list --integrity' shows")
	}
	return state.KeyID(b), nil
}

// openKeys opens the keys of the store, which a server may use meanwhile.
func (c *call) openKeys() (*keyring.Keyring, error) {
	if !c.direct() {
		return nil, badValue("integrity keys are changed on the machine that has them: give --data, not --server")
	}
	p, err := placeOf(c.config)
	if err != nil {
		return nil, err
	}
	return p.openKeys()
}

func (c *call) listIntegrity() error {
	keys, err := c.openKeys()
	if err != nil {
		return err
	}
	list := api.List[integrityKey]{Items: []integrityKey{}}
	for _, k := range keys.IntegrityKeys() {
		list.Items = append(list.Items, integrityView(&k))
	}
	if c.json {
		return c.printJSON(&list)
	}
	return c.table("ID\tWRITES\tADDED", func(w *tabwriter.Writer) {
		for _, k := range list.Items {
			fmt.Fprintf(w, "%s\t%t\t%s\n", k.ID, k.Writes, k.AddedAt)
		}
	})
}

// rotateIntegrity adds a key, and brings it to use: by itself if it can open the store, else by the server that has it open.
func (c *call) rotateIntegrity(ctx context.Context) error {
	keys, err := c.openKeys()
	if err != nil {
		return err
	}
	at, err := c.reach(ctx)
	if err != nil && !errors.Is(err, engine.ErrLocked) {
		return err
	}
	added, adding := keys.AddIntegrity(ctx)
	if at == nil || adding != nil {
		if adding != nil {
			return closing(at, adding)
		}
		shown := integrityView(&added)
		return c.answer(&shown, "added %s; the server that has the store open seals with it in %s", shown.ID, keyring.Propagation)
	}
	return closing(at, c.finishRotation(ctx, at.stack, added))
}

func closing(at *reached, err error) error {
	if at == nil {
		return err
	}
	return errors.Join(err, at.close())
}

// finishRotation waits until every server can read what is sealed with the new key, then seals with it.
func (c *call) finishRotation(ctx context.Context, s *stack, added keyring.IntegrityKey) error {
	r := &rotation{stack: s}
	if err := r.step(ctx); err != nil {
		return err
	}
	c.note("the new key is used in " + keyring.Propagation.String() + ", when every server has taken it up")
	if err := pause(ctx, keyring.Propagation+time.Second); err != nil {
		return instead(err, Refused, "interrupted; the key %x is known and not used yet: a server, or another rotation, goes on from there", added.ID)
	}
	for range 3 {
		if err := r.step(ctx); err != nil {
			return err
		}
	}
	n, err := s.store.Reseal(ctx)
	if err != nil {
		return err
	}
	for _, k := range s.keys.IntegrityKeys() {
		if k.ID == added.ID {
			shown := integrityView(&k)
			return c.answer(&shown, "records are sealed with %s; %d were sealed anew", shown.ID, n)
		}
	}
	return fmt.Errorf("%w: it was retired meanwhile", keyring.ErrNoKey)
}

func (c *call) retireIntegrity(ctx context.Context, text string) error {
	id, err := parseIntegrity(text)
	if err != nil {
		return err
	}
	if _, err := c.openKeys(); err != nil {
		return err
	}
	return c.with(ctx, func(at *reached) error {
		if err := at.stack.store.RetireKey(ctx, id); err != nil {
			return err
		}
		if err := at.stack.keys.RetireIntegrity(ctx, id); err != nil {
			return err
		}
		return c.answer(&api.RetireAnswer{Retired: true}, "retired")
	})
}
