package httpguard

import (
	"encoding/hex"
	"math"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/entropy"
)

// refuse answers with a problem, and says under which name the log has it.
func refuse(w http.ResponseWriter, p *api.Problem) {
	p.Instance = instance()
	h := w.Header()
	h.Set("Content-Type", api.ProblemType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(p.RetryAfter.Seconds())), 10))
	}
	if p.Code == api.Unauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="counterfoil"`)
	}
	body, err := json.Marshal(refusal{p, errorOf(p)})
	if err != nil {
		body = []byte("{}") // a problem is plain data
	}
	send(w, p.Status, body, string(p.Code))
}

// refusal is a problem that clients recognise, too, who look for a member error and not at the status: those of Stripe take
// any other JSON for the object that they asked for.
type refusal struct {
	*api.Problem
	Error errorMember `json:"error"`
}

type errorMember struct {
	Type    string   `json:"type"`
	Code    api.Code `json:"code"`
	Message string   `json:"message"`
}

func errorOf(p *api.Problem) errorMember {
	e := errorMember{Type: "api_error", Code: p.Code, Message: p.Title}
	if p.Detail != "" {
		e.Message += ": " + p.Detail
	}
	switch p.Code {
	case api.KeyReused, api.InFlight, api.OutcomeUnknown, api.KeyExpired, api.ReceiptNotRetained:
		e.Type = "idempotency_error"
	case api.Malformed, api.Invalid, api.TooLarge:
		e.Type = "invalid_request_error"
	}
	return e
}

// instance names an answer by a random UUID (RFC 9562 5.4). Without randomness the answer goes without a name.
func instance() string {
	var id [16]byte
	if entropy.Fill(id[:]) != nil {
		return ""
	}
	id[6] = 0x40 | id[6]&0x0f
	id[8] = 0x80 | id[8]&0x3f
	x := hex.EncodeToString(id[:])
	return "urn:uuid:" + x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}
