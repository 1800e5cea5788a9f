package httpguard_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	labstack "github.com/labstack/echo/v5"

	"github.com/counterfoil/counterfoil/guard/httpguard"
)

// routed is a router with the guard in front of it or in its chain of middleware. Its handler of POST /v1/payments/{id}
// answers 201 with the id and the body, /v1/fails/{id} fails in the router's own way, and /v1/panics panics.
type routed func(r *rig, calls *atomic.Int64) http.Handler

var routers = map[string]routed{
	"ServeMux": func(r *rig, calls *atomic.Int64) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /v1/payments/{id}", func(w http.ResponseWriter, q *http.Request) { pay(w, q, calls, q.PathValue("id")) })
		mux.HandleFunc("POST /v1/fails/{id}", func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			http.Error(w, "no such", http.StatusNotFound)
		})
		mux.HandleFunc("POST /v1/panics", func(http.ResponseWriter, *http.Request) { calls.Add(1); panic(http.ErrAbortHandler) })
		return mux
	},
	"chi": func(r *rig, calls *atomic.Int64) http.Handler {
		m := chi.NewRouter()
		m.Use(middleware.Recoverer, r.guard(httpguard.Options{}).Handler)
		m.Post("/v1/payments/{id}", func(w http.ResponseWriter, q *http.Request) { pay(w, q, calls, chi.URLParam(q, "id")) })
		m.Post("/v1/fails/{id}", func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			http.Error(w, "no such", http.StatusNotFound)
		})
		m.Post("/v1/panics", func(http.ResponseWriter, *http.Request) { calls.Add(1); panic("chi") })
		return m
	},
	"chi on one route": func(r *rig, calls *atomic.Int64) http.Handler {
		m := chi.NewRouter()
		m.With(r.guard(httpguard.Options{}).Handler).Post("/v1/payments/{id}", func(w http.ResponseWriter, q *http.Request) { pay(w, q, calls, chi.URLParam(q, "id")) })
		return m
	},
	"gin": func(r *rig, calls *atomic.Int64) http.Handler {
		e := gin.New()
		e.Use(gin.RecoveryWithWriter(io.Discard))
		e.POST("/v1/payments/:id", func(c *gin.Context) { pay(c.Writer, c.Request, calls, c.Param("id")) })
		e.POST("/v1/fails/:id", func(c *gin.Context) { calls.Add(1); c.JSON(http.StatusNotFound, gin.H{"error": "no such"}) })
		e.POST("/v1/panics", func(*gin.Context) { calls.Add(1); panic("gin") })
		return r.guard(httpguard.Options{}).Handler(e)
	},
	"gin on one route": func(r *rig, calls *atomic.Int64) http.Handler {
		e := gin.New()
		e.POST("/v1/payments/:id", gin.WrapH(r.guard(httpguard.Options{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			pay(w, q, calls, strings.TrimPrefix(q.URL.Path, "/v1/payments/"))
		}))))
		return e
	},
	"echo": func(r *rig, calls *atomic.Int64) http.Handler {
		return r.guard(httpguard.Options{}).Handler(echoed(calls))
	},
	"echo with middleware": func(r *rig, calls *atomic.Int64) http.Handler {
		return echoed(calls, labstack.WrapMiddleware(r.guard(httpguard.Options{}).Handler), answerErrors)
	},
}

// answerErrors answers what a handler of echo returns as an error, before the guard records the answer.
func answerErrors(next labstack.HandlerFunc) labstack.HandlerFunc {
	return func(c *labstack.Context) error {
		if err := next(c); err != nil {
			c.Echo().HTTPErrorHandler(c, err)
		}
		return nil
	}
}

func echoed(calls *atomic.Int64, chain ...labstack.MiddlewareFunc) *labstack.Echo {
	e := labstack.New()
	e.Use(chain...)
	e.POST("/v1/payments/:id", func(c *labstack.Context) error { pay(c.Response(), c.Request(), calls, c.Param("id")); return nil })
	e.POST("/v1/fails/:id", func(*labstack.Context) error {
		calls.Add(1)
		return labstack.NewHTTPError(http.StatusNotFound, "no such")
	})
	e.POST("/v1/panics", func(*labstack.Context) error { calls.Add(1); panic(http.ErrAbortHandler) })
	return e
}

func pay(w http.ResponseWriter, r *http.Request, calls *atomic.Int64, id string) {
	calls.Add(1)
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Location", "/v1/payments/"+id)
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(append([]byte(id+" paid "), body...)) //nolint:gosec // plain text
}

func TestGuardWorksWithEveryRouter(t *testing.T) {
	t.Parallel()
	gin.SetMode(gin.ReleaseMode)
	for name, build := range routers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, calls := inMemory(t, httpguard.Options{}, paid), new(atomic.Int64)
			r.guarded = build(r, calls)
			if name == "ServeMux" {
				r.guarded = r.guard(httpguard.Options{}).Handler(r.guarded)
			}
			for _, outcome := range []string{"execute", "replay", "replay"} {
				answer := r.send(to("/v1/payments/7", "k1", "a"))
				if answer.StatusCode != http.StatusCreated || answer.body != "7 paid a" || answer.Header.Get("Counterfoil-Outcome") != outcome || answer.Header.Get("Location") != "/v1/payments/7" {
					t.Errorf("%d %s %q %v, want %s", answer.StatusCode, answer.Header.Get("Counterfoil-Outcome"), answer.body, answer.Header, outcome)
				}
			}
			if other := r.send(to("/v1/payments/8", "k1", "a")); other.StatusCode != http.StatusUnprocessableEntity {
				t.Errorf("the key for another path: %d", other.StatusCode)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("the handler was called %d times", n)
			}
			if !strings.HasSuffix(name, "one route") {
				failures(t, r, calls)
			}
		})
	}
}

// failures looks at what a router answers for a handler that fails or panics.
func failures(t *testing.T, r *rig, calls *atomic.Int64) {
	t.Helper()
	calls.Store(0)
	first, second := r.send(to("/v1/fails/7", "k2", "a")), r.send(to("/v1/fails/7", "k2", "a"))
	if first.StatusCode != http.StatusNotFound || second.StatusCode != http.StatusNotFound || first.body != second.body || !strings.Contains(first.body, "no such") || second.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a handler that fails: %d %q, then %d %q", first.StatusCode, first.body, second.StatusCode, second.body)
	}
	// A router that recovers answers 500; http.ErrAbortHandler itself is told as an unknown outcome.
	if answer := r.send(to("/v1/panics", "k3", "a")); answer.StatusCode < 500 && answer.StatusCode != http.StatusConflict {
		t.Errorf("a panic is answered %d", answer.StatusCode)
	}
	r.lapse()
	if answer := r.send(to("/v1/panics", "k3", "a")); answer.StatusCode != http.StatusConflict || answer.Header.Get("Counterfoil-Outcome") != "outcome_unknown" {
		t.Errorf("after a panic: %d %s", answer.StatusCode, answer.body)
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("the handlers were called %d times", n)
	}
}

func to(path, key, body string) *http.Request {
	r := request(key, body)
	r.URL.Path, r.RequestURI = path, path
	return r
}
