package api_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/canonical"
)

// promised is the table of codes that clients depend on: it may grow, and never change.
var promised = map[api.Code][]int{
	"malformed": {400}, "invalid": {400}, "permit_malformed": {400}, "permit_unsupported_schema": {400},
	"unauthenticated": {401}, "forbidden": {403}, "permit_binding_mismatch": {403}, "permit_signature_invalid": {403}, "permit_revoked": {403},
	"permit_not_yet_valid": {403}, "challenge_mismatch": {403}, "budget_exceeded": {402, 429},
	"not_found": {404}, "challenge_unknown": {404}, "budget_unknown": {404},
	"permit_replayed": {409}, "in_flight": {409}, "outcome_unknown": {409}, "not_pending": {409}, "not_holder": {409}, "aborted": {409}, "stale": {409},
	"challenge_pending": {409}, "challenge_consumed": {409}, "epoch_stale": {409}, "epoch_conflict": {409}, "request_id_reused": {409},
	"hold_settled": {409}, "hold_fenced": {409}, "budget_differs": {409},
	"permit_expired": {410}, "key_expired": {410}, "receipt_not_retained": {410}, "challenge_expired": {410}, "hold_expired": {410},
	"method_not_allowed": {405}, "request_timeout": {408}, "too_large": {413, 431}, "unsupported_media_type": {415},
	"key_reused": {422}, "owner_quota": {429}, "internal": {500}, "record_corrupt": {500},
	"store_full": {503}, "store_unavailable": {503}, "commit_unknown": {503}, "clock_refused": {503}, "latched": {503}, "recovering": {503},
	"key_unknown": {503}, "overloaded": {503}, "draining": {503},
}

var retryable = []api.Code{
	"in_flight", "owner_quota", "store_full", "store_unavailable", "latched", "clock_refused", "recovering", "overloaded", "draining", "request_timeout",
}

func TestTheTableOfCodesIsTheOnePromised(t *testing.T) {
	t.Parallel()
	rows := api.Codes()
	if len(rows) != len(promised) {
		t.Errorf("%d codes, %d promised", len(rows), len(promised))
	}
	for _, row := range rows {
		if !slices.Equal(row.Statuses, promised[row.Code]) {
			t.Errorf("%s: %v, promised %v", row.Code, row.Statuses, promised[row.Code])
		}
		if always := slices.Contains(retryable, row.Code); always != (row.Retry == api.RetryAlways) {
			t.Errorf("%s: retry %v", row.Code, row.Retry)
		}
		if depends := slices.Contains([]api.Code{"budget_exceeded", "permit_revoked", "commit_unknown"}, row.Code); depends != (row.Retry == api.RetryDepends) || depends != (row.When != "") {
			t.Errorf("%s: retry %v, when %q", row.Code, row.Retry, row.When)
		}
		if row.Title == "" || row.Meaning == "" || row.Do == "" || strings.HasSuffix(row.Title, ".") {
			t.Errorf("%s is not explained: %+v", row.Code, row)
		}
		if row.Wait != 0 && row.Retry == api.RetryNever {
			t.Errorf("%s says to wait for nothing", row.Code)
		}
		for _, status := range row.Statuses {
			if http.StatusText(status) == "" {
				t.Errorf("%s: no status %d", row.Code, status)
			}
		}
		p := api.NewProblem(row.Code, "because")
		if p.Status != row.Status() || p.Title != row.Title || p.Code != row.Code || p.Type != "/problems/"+string(row.Code) || p.Detail != "because" {
			t.Errorf("%+v", p)
		}
		if !errors.Is(fmt.Errorf("a: %w", p), api.NewProblem(row.Code, "")) || errors.Is(p, api.NewProblem("none", "")) && row.Code != api.Internal {
			t.Errorf("%s: errors.Is", row.Code)
		}
	}
	if _, ok := api.Code("none").Info(); ok {
		t.Error("a code that is none has a row")
	}
	if p := api.NewProblem("none", "secret"); p.Code != api.Internal || p.Detail != "" {
		t.Errorf("%+v", p)
	}
}

func TestIDVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../vectors/ids.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		OperationID []struct{ Owner, Key, ID string } `json:"operation_id"`
		HoldID      []struct {
			Owner     string
			RequestID string `json:"request_id"`
			ID        string
		} `json:"hold_id"`
		SpendID []struct {
			Owner     string
			RequestID string `json:"request_id"`
			ID        string
		} `json:"spend_id"`
		Fingerprint []struct{ Request, Fingerprint string }
		AAD         []struct {
			Epoch      uint64
			Job, Nonce api.Digest
			AADHex     string `json:"aad_hex"`
		}
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.OperationID)*len(v.HoldID)*len(v.SpendID)*len(v.Fingerprint)*len(v.AAD) == 0 {
		t.Fatal("vectors are missing")
	}
	for _, c := range v.OperationID {
		if got := api.OperationID(c.Owner, c.Key); string(got) != c.ID {
			t.Errorf("operation: %s", got)
		}
	}
	for _, c := range v.HoldID {
		if got := api.HoldID(c.Owner, c.RequestID); string(got) != c.ID {
			t.Errorf("hold: %s", got)
		}
	}
	for _, c := range v.SpendID {
		if got := api.SpendID(c.Owner, c.RequestID); string(got) != c.ID {
			t.Errorf("spend: %s", got)
		}
	}
	for _, c := range v.Fingerprint {
		if got, err := api.Fingerprint([]byte(c.Request)); err != nil || string(got) != c.Fingerprint {
			t.Errorf("fingerprint: %s, %v", got, err)
		}
	}
	for _, c := range v.AAD {
		jobBytes, _ := c.Job.Bytes()
		nonce, _ := c.Nonce.Bytes()
		if got := hex.EncodeToString(api.ChallengeAAD(c.Epoch, jobBytes, nonce)); got != c.AADHex {
			t.Errorf("aad: %s", got)
		}
	}
	if _, err := api.Fingerprint([]byte(`{"a":1,"a":2}`)); err == nil {
		t.Error("a request that two readers read differently has a fingerprint")
	}
}

func TestScalarsAreWrittenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"T":"2030-01-02T03:04:05.678Z","L":5,"U":"unlimited","S":1,"E":9007199254740991,"N":"a b","H":{"A":"x","B":["x","y"],"C":[]},"X":{"budget":"a/b","amount":0}}`,
		`{"T":"1999-12-31T23:59:59.000Z","L":0,"U":9007199254740991,"S":9007199254740991,"E":1,"N":"é","H":{},"X":{"budget":"~","amount":9007199254740991}}`,
	} {
		var v struct {
			T api.Time
			L api.Limit
			U api.Limit
			S api.Seconds
			E api.Epoch
			N api.Name
			H api.Headers
			X api.Entry
		}
		if err := canonical.Decode([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out, err := json.Marshal(v)
		if err != nil || string(out) != text {
			t.Errorf("%s\nwritten as %s, %v", text, out, err)
		}
	}
	if _, err := json.Marshal(api.Limit{}); err == nil {
		t.Error("an absent limit is written")
	}
	if d := api.Seconds(1 << 52).Duration(); d <= 0 {
		t.Errorf("seconds overflow: %v", d)
	}
}

func TestTimesHaveOneSpelling(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "2030-01-02T03:04:05Z", "2030-01-02T03:04:05.6Z", "2030-01-02T03:04:05.6789Z", "2030-01-02T03:04:05.678+00:00", "2030-01-02 03:04:05.678Z", "2030-13-02T03:04:05.678Z", "2030-01-02t03:04:05.678z"} {
		var at api.Time
		if at.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is read as %s", text, at)
		}
	}
}
