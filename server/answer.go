package server

import (
	"encoding/hex"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/api"
)

// outcomeOK is what the header Counterfoil-Outcome says of a success that has no name of its own.
const outcomeOK = "ok"

// spelled leaves what is handed on, permits, receipts and metadata, as it was spelled.
var spelled = json.JoinOptions(jsontext.PreserveRawStrings(true), json.Deterministic(true))

// withOutcome is an answer whose outcome has a name.
type withOutcome interface{ Outcome() string }

// writeJSON answers a success.
func (s *Server) writeJSON(x *exchange, status int, answer any) error {
	body, err := json.Marshal(answer, spelled)
	if err != nil {
		return err
	}
	if n, ok := answer.(withOutcome); ok {
		x.outcome = n.Outcome()
	}
	x.send(status, mediaJSON, body)
	return nil
}

// refuse answers with the problem that err means.
func (s *Server) refuse(x *exchange, err error) {
	p := x.problemOf(err, s.clock.Now())
	if p.Code == api.CommitUnknown {
		p.Retryable = x.repeatable
	}
	if p.Code == api.CommitUnknown && !p.Retryable {
		p.RetryAfter = 0
	}
	s.label(x, p)
	if p.Code == api.Internal {
		s.log.Error("a request failed", "route", x.pattern(), "instance", p.Instance, "error", err)
	}
	h := x.Header()
	if x.unread() {
		h.Set("Connection", "close")
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(p.RetryAfter), 10))
	}
	if len(p.Allow) > 0 {
		h.Set("Allow", strings.Join(p.Allow, ", "))
	}
	if p.Code == api.Unauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="counterfoil"`)
	}
	setQuotas(h, p.Quotas)
	body, err := json.Marshal(p, spelled)
	if err != nil {
		// A problem is plain data; what cannot be spelled is left out.
		body, _ = json.Marshal(api.NewProblem(api.Internal, ""))
	}
	x.send(p.Status, api.ProblemType, body)
}

// label names the answer, in the problem, the headers and the log alike.
func (s *Server) label(x *exchange, p *api.Problem) {
	p.Instance = s.instance()
	x.outcome, x.instance = string(p.Code), p.Instance
}

// send writes an answer whole.
func (x *exchange) send(status int, media string, body []byte) {
	h := x.Header()
	h["Content-Type"] = []string{media}
	h["Cache-Control"] = []string{"no-store"}
	h["Counterfoil-Outcome"] = []string{x.outcome}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	x.WriteHeader(status)
	_, _ = x.Write(body) // a client that is gone misses the answer, nothing else
}

// setQuotas writes the headers of draft-ietf-httpapi-ratelimit-headers: what the budgets in the way allow, and what is
// left.
func setQuotas(h http.Header, quotas []api.Quota) {
	if len(quotas) == 0 {
		return
	}
	var left, policy []string
	for _, q := range quotas {
		name := strconv.Quote(q.Name) // names of budgets need no escape
		left = append(left, name+";r="+strconv.FormatUint(q.Remaining, 10)+";t="+strconv.FormatInt(seconds(q.Reset), 10))
		policy = append(policy, name+";q="+strconv.FormatUint(q.Limit, 10)+";w="+strconv.FormatInt(seconds(q.Window), 10))
	}
	h.Set("RateLimit", strings.Join(left, ", "))
	h.Set("RateLimit-Policy", strings.Join(policy, ", "))
}

// seconds rounds up: whoever waits as long has waited long enough.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// instance names an answer by a random UUID (RFC 9562 5.4). Without randomness the answer goes without a name.
func (s *Server) instance() string {
	var id [16]byte
	if s.entropy.Fill(id[:]) != nil {
		return ""
	}
	id[6] = 0x40 | id[6]&0x0f
	id[8] = 0x80 | id[8]&0x3f
	text := make([]byte, 0, 45)
	text = append(text, "urn:uuid:"...)
	for i, group := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, group)
	}
	return string(text)
}
