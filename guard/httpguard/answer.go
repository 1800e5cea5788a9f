package httpguard

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/operation"
)

// The headers by which a guard speaks to a client.
const (
	// HeaderReplayed marks an answer that was recorded before.
	HeaderReplayed = "Idempotent-Replayed"
	// HeaderOutcome says what became of a guarded request: execute, replay, not_performed, not_recorded, or the code of a
	// problem.
	HeaderOutcome = "Counterfoil-Outcome"
)

// ReplayedHeaders are the headers of an answer that its replay has, if nothing else is said.
func ReplayedHeaders() []string {
	return []string{
		"Content-Encoding", "Content-Language", "Content-Location", "Content-Disposition", "Content-Range", "Etag", "Last-Modified",
		"Link", "Location", "Preference-Applied", "Request-Id", "X-Request-Id", "Vary",
		"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers",
	}
}

// neverReplayed are headers that belong to one connection, one moment or one client, or that are secret.
var neverReplayed = []string{
	"Set-Cookie", "Set-Cookie2", "Authorization", "Authentication-Info", "Www-Authenticate", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Authentication-Info", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Date",
	"Content-Length", "Age", "Alt-Svc", "Clear-Site-Data", HeaderReplayed, HeaderOutcome,
}

func keptHeaders(more []string) ([]string, error) {
	kept := ReplayedHeaders()
	for _, name := range more {
		name = http.CanonicalHeaderKey(name)
		switch {
		case !token(name):
			return nil, errors.New("httpguard: ReplayHeaders has what is no name of a header")
		case slices.Contains(neverReplayed, name):
			return nil, fmt.Errorf("httpguard: the header %s is never replayed", name)
		case name == "Content-Type":
			continue // it is always replayed
		}
		if !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	if len(kept) > operation.MaxHeaderNames {
		return nil, fmt.Errorf("httpguard: at most %d headers can be replayed", operation.MaxHeaderNames)
	}
	return kept, nil
}

// answer collects what a handler answers, so that nothing of it reaches the client before it is recorded.
type answer struct {
	header http.Header
	sent   http.Header // as they were when the status was written
	status int
	body   []byte
	limit  int64
	failed error // why this cannot be recorded
	stream bool  // a stream of events may be collected
}

var (
	errAnswerLarge = errors.New("the answer is larger than the guard takes")
	errStream      = errors.New("the answer is a stream, or switches protocols")
	errStatus      = errors.New("the answer has no status of HTTP")
	errBrokenOff   = errors.New("the answer broke off")
)

func newAnswer(limit int64, stream bool) *answer {
	return &answer{header: http.Header{}, limit: limit, stream: stream}
}

// Header gives the headers to be answered.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader takes the status. Informational ones are dropped.
func (a *answer) WriteHeader(status int) {
	if a.status != 0 || status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	a.status, a.sent = status, a.header.Clone()
	if status < 100 || status > 999 {
		a.failed = errStatus
	}
	if status == http.StatusSwitchingProtocols || !a.stream && essence(a.sent["Content-Type"][:min(1, len(a.sent["Content-Type"]))]) == "text/event-stream" {
		a.failed = errStream
	}
}

// Write takes a part of the body.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(a.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if int64(len(a.body)+len(p)) > a.limit {
		a.failed = errAnswerLarge
	}
	if a.failed != nil {
		return 0, a.failed
	}
	a.body = append(a.body, p...)
	return len(p), nil
}

// Flush does nothing: the client gets the answer when it is recorded.
func (*answer) Flush() {}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// collect lets a handler answer. One that breaks its answer off, as proxies do when their upstream did, ends no connection
// here: the client is told.
func (a *answer) collect(from http.Handler, r *http.Request) {
	defer func() {
		switch reason := recover(); {
		case reason == nil:
		case reason != http.ErrAbortHandler: //nolint:errorlint // net/http compares the same way
			panic(reason)
		case a.failed == nil:
			a.failed = errBrokenOff
		}
	}()
	from.ServeHTTP(a, r)
}

// finish is called when the handler has returned. A type that the handler leaves open is found out as net/http does, here so
// that a replay has the same.
func (a *answer) finish() {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if _, said := a.sent["Content-Type"]; !said && len(a.body) > 0 && len(a.sent["Content-Encoding"]) == 0 {
		a.sent.Set("Content-Type", http.DetectContentType(a.body))
	}
}

// receipt is what of the answer is recorded. Headers that are no UTF-8 or that do not fit are left out.
func (a *answer) receipt(kept []string) operation.Receipt {
	r := operation.Receipt{Status: a.status, Body: a.body, Headers: map[string][]string{}}
	if types := a.sent["Content-Type"]; len(types) == 1 && len(types[0]) <= operation.MaxContentType && utf8.ValidString(types[0]) {
		r.ContentType = types[0]
	}
	room := operation.MaxHeaderBytes
	for _, name := range kept {
		values := a.sent[name]
		size := len(name)
		for _, v := range values {
			if size += len(v) + 1; !utf8.ValidString(v) {
				size = room + 1
			}
		}
		if len(values) > 0 && size <= room {
			r.Headers[name] = values
			room -= size
		}
	}
	return r
}

// give sends the answer of the handler to the client.
func (a *answer) give(w http.ResponseWriter, outcome string) {
	h := w.Header()
	h["Content-Type"] = nil // what the handler left open is left open
	for name, values := range a.sent {
		h[name] = values
	}
	for _, name := range []string{"Transfer-Encoding", "Trailer", "Content-Length", HeaderReplayed} {
		h.Del(name)
	}
	send(w, a.status, a.body, outcome)
}

// replay sends a recorded answer to the client.
func replay(w http.ResponseWriter, r *operation.Receipt) {
	h := w.Header()
	for name, values := range r.Headers {
		if name = http.CanonicalHeaderKey(name); !slices.Contains(neverReplayed, name) {
			h[name] = values
		}
	}
	if r.ContentType != "" {
		h["Content-Type"] = []string{r.ContentType}
	} else {
		h["Content-Type"] = nil // none is guessed
	}
	h.Set(HeaderReplayed, "true")
	status := r.Status
	if status < 200 {
		status = http.StatusOK // resolved by an operator, or no answer of HTTP
	}
	send(w, status, r.Body, "replay")
}

// send writes an answer, with the headers of the guard shown to scripts of other origins.
func send(w http.ResponseWriter, status int, body []byte, outcome string) {
	h := w.Header()
	h.Set(HeaderOutcome, outcome)
	if !strings.Contains(strings.Join(h["Access-Control-Expose-Headers"], ","), HeaderReplayed) {
		h.Add("Access-Control-Expose-Headers", HeaderReplayed+", "+HeaderOutcome)
	}
	if !bodyAllowed(status) {
		w.WriteHeader(status)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(clock.System{}.Now().Add(patience(len(body))))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone can ask again
	_ = control.SetWriteDeadline(time.Time{})
}

// patience is how long a client may take to read an answer: until then it counts as a request in progress.
func patience(length int) time.Duration {
	return 30*time.Second + time.Duration(length/(32<<10))*time.Second
}
