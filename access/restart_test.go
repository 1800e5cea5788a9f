package access_test

import (
	"testing"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
)

func TestTokensAndTheirRevocationsOutliveARestart(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) {
		keys, err := keyring.NewMemory(keyring.Options{Clock: f.Clock}, storetest.Scope)
		check(t, err)
		server := func() *access.Access {
			a, err := access.New(f.Store, keys, f.Clock)
			check(t, err)
			return a
		}
		ctx, admin, a := t.Context(), operator(t, storetest.Scope), server()
		_, kept, err := a.Create(ctx, admin, grant("kept", access.Read))
		check(t, err)
		_, revoked, err := a.Create(ctx, admin, grant("revoked", access.Read))
		check(t, err)
		check(t, a.Revoke(ctx, admin, "revoked"))

		f.Reopen()
		a = server()
		if p, err := a.Authenticate(ctx, kept); err != nil || p.Token != "kept" {
			t.Fatalf("%+v, %v", p, err)
		}
		_, err = a.Authenticate(ctx, revoked)
		wantErr(t, err, access.ErrUnauthenticated)
		list, next, err := a.List(ctx, admin, "", 0)
		check(t, err)
		if len(list) != 1 || list[0].Name != "kept" || next != "" {
			t.Fatalf("%+v, %q", list, next)
		}
	})
}
