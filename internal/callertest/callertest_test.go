package callertest_test

import (
	"net/http/httptest"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/internal/callertest"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/server"
)

func TestCaller(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]callertest.Connect{"library": library, "http": overHTTP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			callertest.Run(t, connect)
		})
	}
}

func library(w *callertest.World) (ann, bob, olga counterfoil.Caller) {
	observer := counterfoil.Identity{Scope: storetest.Scope, Owner: "olga", AnyOwner: true}
	return w.Core.As(storetest.Scope, "ann"), w.Core.As(storetest.Scope, "bob"), w.Core.Acting(observer)
}

// overHTTP puts a server on the world and gives each caller a token of its own.
func overHTTP(w *callertest.World) (ann, bob, olga counterfoil.Caller) {
	w.T.Helper()
	a, err := access.New(w.Store, w.Keys, w.Clock)
	if err != nil {
		w.T.Fatal(err)
	}
	h, err := server.New(server.Options{Access: a, Store: w.Store, Keys: w.Keys, Core: w.Core, Clock: w.Clock, Entropy: w.Entropy})
	if err != nil {
		w.T.Fatal(err)
	}
	listening := httptest.NewServer(h)
	w.T.Cleanup(listening.Close)
	operator, err := access.Operator(storetest.Scope, "operator")
	if err != nil {
		w.T.Fatal(err)
	}
	as := func(owner string, roles ...access.Role) counterfoil.Caller {
		_, token, err := a.Create(w.T.Context(), operator, access.Grant{Name: owner, Owner: owner, Roles: roles})
		if err != nil {
			w.T.Fatal(err)
		}
		c, err := client.New(client.Options{URL: listening.URL, Token: token.Reveal()})
		if err != nil {
			w.T.Fatal(err)
		}
		w.T.Cleanup(c.Close)
		return c.As("", "")
	}
	everything := []access.Role{access.Mint, access.Consume, access.Operate, access.Spend, access.Read}
	return as("ann", everything...), as("bob", everything...), as("olga", access.Resolve, access.Observe)
}
