package server

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
)

// token creates a credential in the default scope and returns its token.
func (r *rig) token(t *testing.T, g access.Grant) string {
	t.Helper()
	operator, err := access.Operator("default", "default")
	must(t, err)
	if g.Owner == "" {
		g.Owner = "default"
	}
	_, token, err := r.access.Create(t.Context(), operator, g)
	must(t, err)
	return "Bearer " + token.Reveal()
}

// want sends a request, asserts the status, and reads the answer into out.
func (r *rig) want(t *testing.T, status int, method, path, body string, out any, headers ...string) reply {
	t.Helper()
	a := r.send(t, method, path, body, headers...)
	if a.status != status {
		t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, a.status, a.body, status)
	}
	if status < 300 && (a.header.Get("Cache-Control") != "no-store" || a.header.Get("Content-Type") != "application/json" || a.header.Get("Counterfoil-Outcome") == "") {
		t.Fatalf("%s %s: headers %v", method, path, a.header)
	}
	if out != nil {
		must(t, json.Unmarshal([]byte(a.body), out))
	}
	return a
}

const job = "abababababababababababababababababababababababababababababababab"

func TestAChallengeIsConsumedOnce(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	var issued api.IssueAnswer
	token := `"token":"11111111111111111111111111111111"`
	r.want(t, http.StatusCreated, "POST", "/v1/challenges", `{"job_id":"`+job+`",`+token+`}`, &issued)
	nonce, ok := issued.Nonce.Bytes()
	jobBytes, _ := api.Digest(job).Bytes()
	if !ok || issued.JobID != job || issued.Epoch != 1 || hex.EncodeToString(issued.AAD) != hex.EncodeToString(api.ChallengeAAD(1, jobBytes, nonce)) {
		t.Fatalf("%+v", issued)
	}
	var again api.IssueAnswer
	r.want(t, http.StatusCreated, "POST", "/v1/challenges", `{"job_id":"`+job+`",`+token+`}`, &again)
	if !again.Repeated || again.Nonce != issued.Nonce {
		t.Fatalf("repeated: %+v", again)
	}
	wantProblem(t, r.send(t, "POST", "/v1/challenges", `{"job_id":"`+job+`"}`), 409, api.ChallengePending)

	var shown api.Challenge
	a := r.want(t, http.StatusOK, "GET", "/v1/challenges/"+job, "", &shown)
	if shown.State != "pending" || shown.Epoch != 1 || shown.ExpiresAt != issued.ExpiresAt || strings.Contains(a.body, string(issued.Nonce)) {
		t.Fatalf("%s", a.body)
	}
	other := strings.Repeat("1", 64)
	consume := "/v1/challenges/" + job + "/consume"
	wantProblem(t, r.send(t, "POST", "/v1/challenges/"+other+"/consume", `{"nonce":"`+other+`","epoch":1}`), 404, api.ChallengeUnknown)
	wantProblem(t, r.send(t, "GET", "/v1/challenges/"+other, ""), 404, api.ChallengeUnknown)
	wantProblem(t, r.send(t, "POST", consume, `{"nonce":"`+other+`","epoch":1}`), 403, api.ChallengeMismatch)
	wantProblem(t, r.send(t, "POST", consume, `{"nonce":"`+string(issued.Nonce)+`","epoch":2}`), 409, api.EpochStale)
	var used api.ConsumeChallengeAnswer
	body := `{"nonce":"` + string(issued.Nonce) + `","epoch":1,` + token + `}`
	r.want(t, http.StatusOK, "POST", consume, body, &used)
	if !used.Consumed || used.Repeated {
		t.Fatalf("%+v", used)
	}
	r.want(t, http.StatusOK, "POST", consume, body, &used)
	if !used.Consumed || !used.Repeated {
		t.Fatalf("%+v", used)
	}
	wantProblem(t, r.send(t, "POST", consume, `{"nonce":"`+string(issued.Nonce)+`","epoch":1}`), 409, api.ChallengeConsumed)
	wantProblem(t, r.send(t, "POST", "/v1/challenges", `{"job_id":"`+job+`"}`), 409, api.ChallengeConsumed)
}

func TestTheEpochIsAdvancedByOneOfTwo(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, nil)
	var e api.EpochAnswer
	r.want(t, 200, "GET", "/v1/epoch", "", &e)
	if e.Epoch != 1 {
		t.Fatalf("%+v", e)
	}
	body := `{"from":1,"token":"22222222222222222222222222222222"}`
	r.want(t, 200, "POST", "/v1/epoch/advance", body, &e)
	if e.Epoch != 2 || e.Repeated {
		t.Fatalf("%+v", e)
	}
	r.want(t, 200, "POST", "/v1/epoch/advance", body, &e)
	if e.Epoch != 2 || !e.Repeated {
		t.Fatalf("%+v", e)
	}
	wantProblem(t, r.send(t, "POST", "/v1/epoch/advance", `{"from":1}`), 409, api.EpochConflict)
}
