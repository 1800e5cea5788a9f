package httpguard

import (
	"context"
	"net/http"
	"sync/atomic"
)

// word is what a handler says about its effect.
type word struct{ none, unknown, reached atomic.Bool }

type wordKey struct{}

// NotPerformed says that the request of ctx has had no effect and never will, so that its key can be used again: the
// answer of the handler is given, but not recorded. Say it only with proof, for instance when the request is refused before
// anything is done. Middleware between the guard and the handler that answers by itself (401, 403, 429) should say it too.
// Outside of a guarded request it does nothing.
func NotPerformed(ctx context.Context) {
	if w, ok := ctx.Value(wordKey{}).(*word); ok {
		w.none.Store(true)
	}
}

// OutcomeUnknown says that the request of ctx may have had its effect or not. Whatever the handler answers is dropped, and
// the client gets outcome_unknown. It counts more than [NotPerformed]. Outside of a guarded request it does nothing.
func OutcomeUnknown(ctx context.Context) {
	if w, ok := ctx.Value(wordKey{}).(*word); ok {
		w.unknown.Store(true)
	}
}

// Reached says that the request of ctx has come to the handler that has the effect: from now on no status is a proof that
// nothing was done. See [Options.Effects]. Outside of a guarded request it does nothing.
func Reached(ctx context.Context) {
	if w, ok := ctx.Value(wordKey{}).(*word); ok {
		w.reached.Store(true)
	}
}

// Effects wraps a handler that has effects, so that a request that comes to it is [Reached].
func Effects(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Reached(r.Context())
		handler.ServeHTTP(w, r)
	})
}
