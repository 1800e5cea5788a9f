package httpguard_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
)

// BenchmarkGuardedCall measures one call in memory, claim and receipt, with nothing behind the guard.
func BenchmarkGuardedCall(b *testing.B) {
	f := storetest.Memory(b)
	keys, err := keyring.NewMemory(keyring.Options{Clock: f.Clock, Entropy: f.Entropy}, storetest.Scope)
	if err != nil {
		b.Fatal(err)
	}
	core, err := counterfoil.New(f.Store, keys, counterfoil.Options{})
	if err != nil {
		b.Fatal(err)
	}
	guard, err := httpguard.New(httpguard.Options{
		As: func(owner string) counterfoil.Caller { return core.As(storetest.Scope, owner) }, Identify: httpguard.Header("X-Api-Key"),
	})
	if err != nil {
		b.Fatal(err)
	}
	body := []byte(`{"amount":1999}`)
	guarded := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{"application/json"}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	}))
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		r := httptest.NewRequest(http.MethodPost, "/v1/payments", bytes.NewReader(body))
		r.Header["Idempotency-Key"], r.Header["X-Api-Key"] = []string{strconv.Itoa(n)}, []string{"secret"}
		w := httptest.NewRecorder()
		if guarded.ServeHTTP(w, r); w.Code != http.StatusCreated {
			b.Fatal(w.Code, w.Body)
		}
	}
}
