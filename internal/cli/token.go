package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/client"
)

func (a *app) tokenCommand() *cobra.Command {
	return group("token", "Credentials: who may do what", a.tokenCreate(), a.tokenList(), a.tokenRevoke())
}

func (a *app) tokenCreate() *cobra.Command {
	var roles, budgets []string
	var always amounts
	var require, to, owner string
	c := a.asking("create NAME", "Create a credential of the scope and print its token, which nothing shows again", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		req, err := tokenRequest(c.args[0], cmp.Or(owner, c.config.Owner, access.DefaultOwner), roles, budgets)
		if err != nil {
			return err
		}
		req.Always, req.Require = always.list, require
		// The file is made first: a token that could not be kept would be one that nobody has.
		file, err := secretFile(to)
		if err != nil {
			return err
		}
		var ans api.CreateTokenAnswer
		if err := at.once(ctx, "/v1/tokens", req, &ans); err != nil {
			return errors.Join(err, file.discard())
		}
		if to == "" {
			return c.answer(&ans, "%s", ans.Secret)
		}
		if err := file.write(ans.Secret); err != nil {
			return fmt.Errorf("the token was created but could not be kept; revoke it: %w", err)
		}
		ans.Secret = ""
		return c.answer(&ans.Credential, "the token is in %s", to)
	})
	f := c.Flags()
	f.StringVar(&owner, "for", "", "the `owner` that it acts as; without it that of --owner, or default")
	f.StringSliceVar(&roles, "role", nil, "what it may do: "+roleNames()+"; several with commas")
	f.StringSliceVar(&budgets, "budget", nil, "a `prefix` of budgets that it may use; without any all")
	f.Var(&always, "always", "what each of its begins and spends is charged besides, again for each budget")
	f.StringVar(&require, "require", "", "what each of its begins must carry: permit or budget")
	f.StringVar(&to, "out", "", "new `file` for the token, closed to others, instead of stdout")
	return c
}

func roleNames() string {
	var names []string
	for _, r := range access.Roles() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

func tokenRequest(called, owner string, roles, budgets []string) (*api.CreateTokenRequest, error) {
	req := new(api.CreateTokenRequest)
	var err error
	if req.Name, err = name("NAME", called); err != nil {
		return nil, err
	}
	if req.Owner, err = name("--for", owner); err != nil {
		return nil, err
	}
	if len(roles) == 0 {
		return nil, badValue("--role is missing: one or more of %s", roleNames())
	}
	for _, r := range roles {
		req.Roles = append(req.Roles, api.Name(r))
	}
	for _, text := range budgets {
		var p api.BudgetPrefix
		if err := p.UnmarshalText([]byte(text)); err != nil {
			return nil, badValue("--budget: %w", err)
		}
		req.Budgets = append(req.Budgets, p)
	}
	return req, nil
}

// newFile is a file for a secret, open to nobody else.
type newFile struct{ f *os.File }

// secretFile makes the file at path, which must not exist; none if path is empty.
func secretFile(path string) (newFile, error) {
	if path == "" {
		return newFile{}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the user names it
	if errors.Is(err, fs.ErrExist) {
		return newFile{}, badValue("--out: %s exists already; name a new file", path)
	}
	if err != nil {
		return newFile{}, badValue("--out: %w", err)
	}
	return newFile{f}, nil
}

func (n newFile) write(secret string) error {
	_, err := n.f.WriteString(secret + "\n")
	return errors.Join(err, n.f.Sync(), n.f.Close())
}

func (n newFile) discard() error {
	if n.f == nil {
		return nil
	}
	return errors.Join(n.f.Close(), os.Remove(n.f.Name()))
}

func (a *app) tokenList() *cobra.Command {
	var list listFlags
	c := a.asking("list", "List the credentials of the scope, without their tokens", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) error {
		var ans api.List[api.Credential]
		if err := at.get(ctx, "/v1/tokens", list.query(), &ans); err != nil {
			return err
		}
		if c.json {
			return c.printJSON(&ans)
		}
		c.more(ans.NextCursor)
		return c.table("NAME\tSCOPE\tOWNER\tROLES\tCREATED", func(w *tabwriter.Writer) {
			for i := range ans.Items {
				t := &ans.Items[i]
				roles := make([]string, len(t.Roles))
				for j, r := range t.Roles {
					roles[j] = string(r)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.Name, t.Scope, t.Owner, strings.Join(roles, ","), t.CreatedAt)
			}
		})
	})
	list.bind(c.Flags())
	return c
}

func (a *app) tokenRevoke() *cobra.Command {
	return a.asking("revoke NAME", "Revoke a credential: every server refuses its token within 5 s", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		if _, err := name("NAME", c.args[0]); err != nil {
			return err
		}
		var ans api.RevokeTokenAnswer
		if err := at.Do(ctx, client.Request{Method: http.MethodDelete, Path: "/v1/tokens/" + segment(c.args[0]), Again: true}, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "revoked")
	})
}
