package httpguard_test

import (
	"net/http"
	"testing"

	"github.com/counterfoil/counterfoil/guard/httpguard"
)

func TestAReplayHasTheTypeThatTheFirstAnswerHad(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    []string
	}{
		"a type that is said": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "a/b")
			_, _ = w.Write([]byte("x"))
		}, []string{"a/b"}},
		"none, with a status": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("x"))
		}, []string{"text/plain; charset=utf-8"}},
		"none, without a status": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, []string{"text/html; charset=utf-8"}},
		"none on purpose": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = w.Write([]byte("x"))
		}, nil},
		"none, of a body that is encoded already": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = w.Write([]byte("x"))
		}, nil},
		"none, and no body": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := inMemory(t, httpguard.Options{}, c.handler)
			for _, which := range []string{"first", "replay"} {
				a := r.post("k", "{}")
				if got := a.Header["Content-Type"]; len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
					t.Errorf("the %s answer has the type %q, want %q", which, got, c.want)
				}
			}
		})
	}
}
