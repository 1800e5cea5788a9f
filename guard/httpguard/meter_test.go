package httpguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
)

// metered are options of a guard with these meters.
func metered(list ...httpguard.Meter) httpguard.Options {
	return httpguard.Options{Default: httpguard.Policy{Meters: list}}
}

// stands looks at what a budget has spent, and at what is held of it.
func (r *rig) stands(name string, spent, held uint64) {
	r.t.Helper()
	got, err := r.core.Budgets.Get(context.Background(), budget.GetParams{Scope: storetest.Scope, Name: name})
	if err != nil {
		r.t.Fatal(err)
	}
	if got.Spent != spent || got.Held != held {
		r.t.Errorf("%s has spent %d and holds %d, want %d and %d", name, got.Spent, got.Held, spent, held)
	}
}

// echo answers with the body that the header Answer gives.
func echo(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Refuse") != "" {
		httpguard.NotPerformed(req.Context())
	}
	if media := req.Header.Get("Media"); media != "" {
		w.Header().Set("Content-Type", media)
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	if status := req.Header.Get("Status"); status != "" {
		w.WriteHeader(http.StatusBadRequest)
	}
	_, _ = io.WriteString(w, req.Header.Get("Answer")) //nolint:gosec // no browser sees it
}

func TestAmountInTheRequestIsSpentExactly(t *testing.T) {
	each(t, metered(httpguard.Meter{Budget: "acme", Request: "/order/amount", Times: 2}), echo, func(r *rig) {
		r.define("acme", 100)
		r.want(r.post("k1", `{"order":{"amount":30}}`), 200, "execute", 1)
		r.stands("acme", 60, 0)
		r.want(r.post("k1", `{"order":{"amount":30}}`), 200, "replay", 1)
		r.want(r.post("k2", `{"order":{"amount":2e1}}`, "Refuse", "1"), 200, "not_performed", 2)
		r.stands("acme", 60, 0)
		r.problem(r.post("k3", `{"order":{"amount":21}}`), 402, "budget_exceeded", 2)
		r.want(r.post("k4", `{"order":{"amount":20}}`), 200, "execute", 3)
		r.stands("acme", 100, 0)
		r.want(r.post("k5", `{"order":{"amount":0}}`), 200, "execute", 4)
	})
}

func TestRequestWithoutItsAmountIsRefused(t *testing.T) {
	t.Parallel()
	r := inMemory(t, metered(httpguard.Meter{Budget: "acme", Request: "/amount", Times: 2}), echo)
	r.define("acme", 100)
	for body, code := range map[string]string{
		``: "malformed", `{"amount":1`: "malformed", `{"amount":1,"amount":2}`: "malformed",
		`{}`: "invalid", `{"amount":-1}`: "invalid", `{"amount":1.5}`: "invalid", `{"amount":"1"}`: "invalid", `{"amount":null}`: "invalid",
		`{"amount":9007199254740991}`: "invalid", `{"amount":9007199254740993}`: "malformed",
	} {
		r.problem(r.post("k1", body), 400, code, 0)
	}
	r.stands("acme", 0, 0)
}

func TestEstimateIsHeldBeforeAndTheActualAmountCapturedAfter(t *testing.T) {
	meter := httpguard.Meter{Budget: "acme", Response: "/cost", Hold: httpguard.Estimate{Base: 10, Fields: []string{"/a", "/b"}, Otherwise: 20, Factor: 2, PerByte: 1}}
	each(t, metered(meter), nil, func(r *rig) {
		r.define("acme", 100)
		var held uint64
		r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.calls.Add(1)
			if req.Header.Get("Accept-Encoding") != "identity" {
				r.t.Error("the answer may come compressed, so that its cost cannot be read")
			}
			r.stands("acme", 0, held)
			echo(w, req)
		})
		r.guarded = r.guard(metered(meter)).Handler(r.handler)
		held = 10 + 2*7 + 13
		r.want(r.post("k1", `{"a":5,"b":7}`, "Answer", `{"cost":0}`, "Accept-Encoding", "gzip"), 200, "execute", 1)
		r.stands("acme", 0, 0)
		held = 10 + 2*20 + 2
		r.want(r.post("k2", `{}`, "Answer", `{"cost":40}`), 200, "execute", 2)
		r.stands("acme", 40, 0)
		// A replay holds nothing, although its estimate would no longer fit.
		r.want(r.post("k2", `{}`, "Answer", `{"cost":40}`), 200, "replay", 2)
		r.problem(r.post("k2", `{"a":1}`), 422, "key_reused", 2)
		r.problem(r.post("k3", `{"b":30}`), 402, "budget_exceeded", 2)
		r.stands("acme", 40, 0)
		r.problem(r.post("k3", `{"b":-1}`), 400, "invalid", 2)
	})
}

func TestAnswerThatDoesNotSayItsCostIsChargedInFull(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string][]string{
		"no field":         {"Answer", `{}`},
		"no JSON":          {"Answer", `cost: 1`},
		"two readings":     {"Answer", `{"cost":1,"cost":2}`},
		"negative":         {"Answer", `{"cost":-1}`},
		"broken":           {"Answer", `{"cost":1.5}`},
		"a word":           {"Answer", `{"cost":"1"}`},
		"above all limits": {"Answer", `{"cost":9007199254740993}`},
		"a refusal":        {"Answer", `{"error":"no"}`, "Status", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := metered(httpguard.Meter{Budget: "acme", Response: "/cost", Hold: httpguard.Estimate{Base: 30}}, httpguard.Meter{Budget: "calls", Response: "/error", Hold: httpguard.Estimate{Base: 1}})
			r := inMemory(t, o, echo)
			g := r.guard(o)
			r.guarded = g.Handler(r.handler)
			r.define("acme", 100)
			r.define("calls", 100)
			r.post("k1", "a", headers...)
			r.stands("acme", 30, 0)
			r.stands("calls", 1, 0)
			if got := g.Counts(); got != (httpguard.Counts{Untold: 1}) {
				t.Errorf("counted %+v", got)
			}
		})
	}
}

func TestFreeStatusCostsNothingIfItDoesNotSayMore(t *testing.T) {
	t.Parallel()
	o := metered(httpguard.Meter{Budget: "acme", Response: "/cost", Hold: httpguard.Estimate{Base: 30}})
	o.Default.Free = []int{400}
	r := inMemory(t, o, echo)
	r.define("acme", 100)
	r.want(r.post("k1", "a", "Status", "400", "Answer", `{"error":"no"}`), 400, "execute", 1)
	r.stands("acme", 0, 0)
	r.want(r.post("k2", "a", "Status", "400", "Answer", `{"cost":3}`), 400, "execute", 2)
	r.stands("acme", 3, 0)
	r.want(r.post("k3", "a", "Answer", `{}`), 200, "execute", 3)
	r.stands("acme", 33, 0)
}

func TestCostAboveTheHoldIsChargedIfItFitsAndElseCounted(t *testing.T) {
	t.Parallel()
	o := metered(httpguard.Meter{Budget: "acme", Response: "/cost", Hold: httpguard.Estimate{Base: 10}})
	r := inMemory(t, o, echo)
	g := r.guard(o)
	r.guarded = g.Handler(r.handler)
	r.define("acme", 100)
	r.want(r.post("k1", "a", "Answer", `{"cost":60}`), 200, "execute", 1)
	r.stands("acme", 60, 0)
	r.want(r.post("k2", "a", "Answer", `{"cost":60}`), 200, "execute", 2)
	r.stands("acme", 70, 0)
	if got := g.Counts(); got != (httpguard.Counts{Uncaptured: 1}) {
		t.Errorf("counted %+v", got)
	}
}

func TestReleasedCallGivesItsHoldBackAndItsKeyCanBeUsedAgain(t *testing.T) {
	each(t, metered(httpguard.Meter{Budget: "acme", Response: "/cost", Hold: httpguard.Estimate{Base: 10}}), echo, func(r *rig) {
		r.define("acme", 10)
		for n := range int64(3) {
			r.want(r.post("k1", "a", "Refuse", "1"), 200, "not_performed", n+1)
			r.stands("acme", 0, 0)
		}
		r.want(r.post("k1", "a", "Answer", `{"cost":1}`), 200, "execute", 4)
		r.stands("acme", 1, 0)
	})
}

func TestHoldOfAnOpenOutcomeStaysUntilItIsResolved(t *testing.T) {
	each(t, metered(httpguard.Meter{Budget: "acme", Response: "/cost", Hold: httpguard.Estimate{Base: 10}}), func(_ http.ResponseWriter, req *http.Request) {
		httpguard.OutcomeUnknown(req.Context())
	}, func(r *rig) {
		r.define("acme", 15)
		r.problem(r.post("k1", "a"), 409, "outcome_unknown", 1)
		r.Clock.Advance(time.Hour)
		r.problem(r.post("k1", "a"), 409, "outcome_unknown", 1)
		r.stands("acme", 0, 10)
		r.problem(r.post("k2", "a"), 402, "budget_exceeded", 1)
	})
}

// dying is a caller whose guard is gone after its hold.
type dying struct{ counterfoil.Caller }

var errDied = errors.New("the guard is gone")

func (d dying) Hold(ctx context.Context, p counterfoil.HoldParams) (counterfoil.Held, error) {
	if _, err := d.Caller.Hold(ctx, p); err != nil {
		return counterfoil.Held{}, err
	}
	return counterfoil.Held{}, errDied
}

func TestGuardThatDiesBetweenHoldAndClaimHoldsOnce(t *testing.T) {
	o := metered(httpguard.Meter{Budget: "acme", Response: "/cost", Hold: httpguard.Estimate{Base: 10}})
	each(t, o, echo, func(r *rig) {
		r.define("acme", 10)
		own := r.guarded
		broken := o
		broken.As = func(owner string) counterfoil.Caller { return dying{r.core.As(storetest.Scope, owner)} }
		r.guarded = r.guard(broken).Handler(r.handler)
		for _, key := range []string{"k1", "k2"} {
			if answer := r.post(key, "a"); answer.StatusCode < 400 {
				r.t.Errorf("%s: answered %d", key, answer.StatusCode)
			}
		}
		r.stands("acme", 0, 10)
		r.guarded = own
		r.want(r.post("k1", "a", "Answer", `{"cost":10}`), 200, "execute", 1) // by the hold that is there
		r.stands("acme", 10, 0)
		r.Clock.Advance(time.Minute)
		r.problem(r.post("k2", "a"), 402, "budget_exceeded", 1)
		r.stands("acme", 10, 0)
	})
}

func TestManyAtOnceHoldForOne(t *testing.T) {
	o := metered(httpguard.Meter{Budget: "acme", Response: "/cost", Hold: httpguard.Estimate{Base: 10}})
	o.Default.Wait = time.Minute
	each(t, o, echo, func(r *rig) {
		r.define("acme", 10)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if answer := r.post("k1", "a", "Answer", `{"cost":7}`); answer.StatusCode != http.StatusOK {
					r.t.Errorf("answer %d: %s", answer.StatusCode, answer.body)
				}
			})
		}
		wg.Wait()
		if n := r.calls.Load(); n != 1 {
			r.t.Errorf("the handler was called %d times", n)
		}
		r.stands("acme", 7, 0)
	})
}

func TestMetersOfOneBudgetAreAdded(t *testing.T) {
	t.Parallel()
	o := metered(
		httpguard.Meter{Budget: "acme", Usage: httpguard.OpenAI, Count: httpguard.Input, Times: 3, Hold: httpguard.Estimate{PerByte: 1}},
		httpguard.Meter{Budget: "acme", Usage: httpguard.OpenAI, Count: httpguard.Output, Times: 15, Hold: httpguard.Estimate{Fields: []string{"/max_tokens"}}},
		httpguard.Meter{Budget: "acme", Request: "/fee"},
	)
	o.Default.Spend = []counterfoil.Entry{{Budget: "acme", Amount: 1}}
	r := inMemory(t, o, nil)
	r.define("acme", 10_000)
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.stands("acme", 1+5, 3*25+15*10)
		echo(w, req)
	})
	r.guarded = r.guard(o).Handler(r.handler)
	body := `{"max_tokens":10,"fee":5}`
	if len(body) != 25 {
		t.Fatal(len(body))
	}
	r.want(r.post("k1", body, "Answer", `{"usage":{"prompt_tokens":4,"completion_tokens":2}}`), 200, "execute", 0)
	r.stands("acme", 1+5+3*4+15*2, 0)
	r.problem(r.post("k2", `{"fee":5}`), 400, "invalid", 0)
}

// chunks writes events of a stream.
func chunks(list ...string) string {
	var b strings.Builder
	for _, data := range list {
		fmt.Fprintf(&b, "event: x\r\ndata: %s\r\n\r\n", data)
	}
	return b.String()
}

func TestUsageOfLanguageModelsIsCaptured(t *testing.T) {
	t.Parallel()
	const stream = "text/event-stream; charset=utf-8"
	start := `{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":20,"output_tokens":1}}}`
	for name, c := range map[string]struct {
		form          httpguard.Usage
		media, answer string
		in, out, all  uint64 // 0: the whole of what was held, 1000
	}{
		"chat completion":      {httpguard.OpenAI, "", `{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`, 10, 5, 15},
		"response":             {httpguard.OpenAI, "", `{"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":5,"total_tokens":15}}`, 10, 5, 15},
		"embedding":            {httpguard.OpenAI, "", `{"usage":{"prompt_tokens":10,"total_tokens":10}}`, 10, 0, 10},
		"total that is larger": {httpguard.OpenAI, "", `{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":99}}`, 10, 5, 99},
		"total that is less":   {httpguard.OpenAI, "", `{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":1}}`, 10, 5, 15},
		"chat stream": {
			httpguard.OpenAI, stream,
			chunks(`{"choices":[{"delta":{}}],"usage":null}`, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`, "[DONE]"), 10, 5, 15,
		},
		"stream without usage":   {httpguard.OpenAI, stream, chunks(`{"choices":[]}`, "[DONE]"), 0, 0, 0},
		"response stream":        {httpguard.OpenAI, stream, chunks(`{"type":"response.created","response":{"usage":null}}`, `{"type":"response.completed","response":{"usage":{"input_tokens":10,"output_tokens":5,"total_tokens":15}}}`), 10, 5, 15},
		"message":                {httpguard.Anthropic, "", `{"usage":{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":20,"output_tokens":5}}`, 33, 5, 38},
		"message without cache":  {httpguard.Anthropic, "", `{"usage":{"input_tokens":10,"cache_read_input_tokens":null,"output_tokens":5}}`, 10, 5, 15},
		"message stream":         {httpguard.Anthropic, stream, chunks(start, `{"type":"message_delta","usage":{"output_tokens":5}}`, `{"type":"message_stop"}`), 33, 5, 38},
		"stream that counts up":  {httpguard.Anthropic, stream, chunks(start, `{"type":"message_delta","usage":{"output_tokens":5}}`, `{"type":"message_delta","usage":{"output_tokens":9}}`), 33, 9, 42},
		"stream that tells less": {httpguard.Anthropic, stream, chunks(start, `{"type":"message_delta","usage":{"input_tokens":10,"output_tokens":5}}`, `{"type":"message_delta","usage":{"output_tokens":0}}`), 33, 5, 38},
		"stream that ends at 0":  {httpguard.OpenAI, stream, chunks(`{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`, `{"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`), 10, 5, 15},
		"stream of words":        {httpguard.Anthropic, stream, chunks(start, `{"type":"message_delta","usage":{"output_tokens":"500"}}`), 33, 0, 0},
		"cache that is negative": {httpguard.Anthropic, "", `{"usage":{"input_tokens":10,"cache_read_input_tokens":-9,"output_tokens":5}}`, 0, 5, 0},
		"stream that ends early": {httpguard.Anthropic, stream, chunks(start, `{"type":"error"}`), 0, 0, 0},
		"last event incomplete":  {httpguard.Anthropic, stream, chunks(start) + `data: {"usage":{"output_tokens":5}}`, 0, 0, 0},
		"other form":             {httpguard.Anthropic, "", `{"usage":{"prompt_tokens":10,"completion_tokens":5}}`, 0, 0, 0},
		"negative":               {httpguard.OpenAI, "", `{"usage":{"prompt_tokens":-10,"completion_tokens":5}}`, 0, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := httpguard.Estimate{Base: 1000}
			o := metered(
				httpguard.Meter{Budget: "in", Usage: c.form, Count: httpguard.Input, Hold: hold},
				httpguard.Meter{Budget: "out", Usage: c.form, Count: httpguard.Output, Hold: hold},
				httpguard.Meter{Budget: "all", Usage: c.form, Hold: hold},
			)
			o.Default.RecordFinal = true
			r := inMemory(t, o, func(w http.ResponseWriter, req *http.Request) {
				if c.media != "" {
					w.Header().Set("Content-Type", c.media)
				}
				_, _ = io.WriteString(w, c.answer)
			})
			want := map[string]uint64{"in": c.in, "out": c.out, "all": c.all}
			for name := range want {
				r.define(name, 5000)
			}
			r.want(r.post("k1", "{}"), 200, "execute", 1)
			for name, spent := range want {
				if spent == 0 {
					spent = 1000
				}
				r.stands(name, spent, 0)
			}
			if again := r.want(r.post("k1", "{}"), 200, "replay", 1); again.body != c.answer {
				t.Errorf("the replay is %q", again.body)
			}
		})
	}
}

func TestCompressedAnswerIsChargedInFull(t *testing.T) {
	t.Parallel()
	r := inMemory(t, metered(httpguard.Meter{Budget: "acme", Usage: httpguard.OpenAI, Hold: httpguard.Estimate{Base: 30}}), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, `{"usage":{"total_tokens":1}}`)
	})
	r.define("acme", 100)
	r.want(r.post("k1", "{}"), 200, "execute", 1)
	r.stands("acme", 30, 0)
}

func TestChatStreamThatWouldNotTellItsUsageIsRefused(t *testing.T) {
	t.Parallel()
	o := metered(httpguard.Meter{Budget: "acme", Usage: httpguard.OpenAI, Hold: httpguard.Estimate{Base: 10}})
	o.Default.RecordFinal = true
	r := inMemory(t, o, echo)
	r.define("acme", 100)
	answer := r.post("k1", `{"messages":[],"stream":true}`)
	r.problem(answer, 400, "invalid", 0)
	var p api.Problem
	if err := json.Unmarshal([]byte(answer.body), &p); err == nil && p.Pointer != "/stream_options/include_usage" {
		t.Errorf("the problem points to %q", p.Pointer)
	}
	r.want(r.post("k1", `{"messages":[],"stream":true,"stream_options":{"include_usage":true}}`, "Answer", `{"usage":{"total_tokens":1}}`), 200, "execute", 1)
	r.problem(r.post("k2", `{"stream":true,"stream":false}`), 400, "malformed", 1)
	r.want(r.post("k3", "a file", "Content-Type", "multipart/form-data; boundary=x", "Answer", `{"usage":{"total_tokens":1}}`), 200, "execute", 2)
	r.want(r.post("k2", `{"input":"","stream":true}`, "Answer", `{"usage":{"total_tokens":1}}`), 200, "execute", 3)
}

func TestStreamIsRefusedBeforeTheCallIfTheRouteDoesNotRecordIt(t *testing.T) {
	t.Parallel()
	for _, form := range []httpguard.Usage{httpguard.OpenAI, httpguard.Anthropic} {
		r := inMemory(t, metered(httpguard.Meter{Budget: "acme", Usage: form, Hold: httpguard.Estimate{Base: 10}}), echo)
		r.define("acme", 100)
		r.problem(r.post("k1", `{"messages":[],"stream":true,"stream_options":{"include_usage":true}}`), 400, "invalid", 0)
		r.want(r.post("k1", `{"messages":[],"stream":false}`), 200, "execute", 1)
	}
}

func TestWhatCannotBeMeteredIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	hold := httpguard.Estimate{Base: 1}
	for name, p := range map[string]httpguard.Policy{
		"no budget":         {Meters: []httpguard.Meter{{Request: "/a"}}},
		"no figure":         {Meters: []httpguard.Meter{{Budget: "a", Hold: hold}}},
		"two figures":       {Meters: []httpguard.Meter{{Budget: "a", Request: "/a", Response: "/a", Hold: hold}}},
		"unknown usage":     {Meters: []httpguard.Meter{{Budget: "a", Usage: "mainframe", Hold: hold}}},
		"unknown count":     {Meters: []httpguard.Meter{{Budget: "a", Usage: httpguard.OpenAI, Count: "images", Hold: hold}}},
		"count of a field":  {Meters: []httpguard.Meter{{Budget: "a", Response: "/a", Count: httpguard.Input, Hold: hold}}},
		"no hold":           {Meters: []httpguard.Meter{{Budget: "a", Usage: httpguard.OpenAI}}},
		"hold for nothing":  {Meters: []httpguard.Meter{{Budget: "a", Request: "/a", Hold: hold}}},
		"pointer":           {Meters: []httpguard.Meter{{Budget: "a", Request: "a"}}},
		"pointer of hold":   {Meters: []httpguard.Meter{{Budget: "a", Response: "/a", Hold: httpguard.Estimate{Fields: []string{"a"}}}}},
		"stream by pointer": {RecordFinal: true, Meters: []httpguard.Meter{{Budget: "a", Response: "/a", Hold: hold}}},
		"optional key":      {Keys: httpguard.Optional, Meters: []httpguard.Meter{{Budget: "a", Request: "/a"}}},
		"two forms":         {Meters: []httpguard.Meter{{Budget: "a", Usage: httpguard.OpenAI, Hold: hold}, {Budget: "b", Usage: httpguard.Anthropic, Hold: hold}}},
		"large number":      {Meters: []httpguard.Meter{{Budget: "a", Request: "/a", Times: 1 << 53}}},
		"many":              {Meters: make([]httpguard.Meter, 17)},
	} {
		o := httpguard.Options{Default: p, Identify: httpguard.Bearer(), As: func(string) counterfoil.Caller { return nil }}
		if _, err := httpguard.New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestMetersOfAFileOfOptions(t *testing.T) {
	t.Parallel()
	c, err := httpguard.ParseConfig([]byte(`
owner: {bearer: true}
unmatched: refuse
show_figures: true
routes:
  - match: POST /v1/chat/completions
    record_final: true
    free: [400, 429]
    meter:
      - {budget: tokens, usage: openai, count: output, times: 15, hold: {base: 1, fields: [/max_tokens], otherwise: 4096, factor: 2, per_byte: 3}}
      - {budget: fees, request: /fee}
`))
	if err != nil {
		t.Fatal(err)
	}
	o := c.Options()
	want := []httpguard.Meter{
		{Budget: "tokens", Usage: httpguard.OpenAI, Count: httpguard.Output, Times: 15, Hold: httpguard.Estimate{Base: 1, Fields: []string{"/max_tokens"}, Otherwise: 4096, Factor: 2, PerByte: 3}},
		{Budget: "fees", Request: "/fee"},
	}
	p := o.Routes[0].Policy
	if fmt.Sprint(p.Meters) != fmt.Sprint(want) || fmt.Sprint(p.Free) != "[400 429]" || !o.RefuseUnmatched || !o.ShowFigures {
		t.Errorf("read %+v", o)
	}
	for _, text := range []string{"unmatched: maybe", "default: {meter: [{budget: a, costs: 1}]}"} {
		if _, err := httpguard.ParseConfig([]byte("owner: {bearer: true}\n" + text)); err == nil {
			t.Errorf("%s: accepted", text)
		}
	}
}

func FuzzUsageOfAnAnswer(f *testing.F) {
	f.Add("application/json", `{"usage":{"prompt_tokens":10,"completion_tokens":5}}`)
	f.Add("text/event-stream", "data: {\"usage\":{\"total_tokens\":1}}\n\n")
	f.Add("text/event-stream", "\xef\xbb\xbfdata: {\"usage\":\rdata:{\"total_tokens\":1}}\r\n\r\n")
	f.Fuzz(func(t *testing.T, media, answer string) {
		const held = 50
		o := metered(httpguard.Meter{Budget: "acme", Usage: httpguard.OpenAI, Hold: httpguard.Estimate{Base: held}})
		o.Default.RecordFinal = true
		r := inMemory(t, o, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{media}
			_, _ = io.WriteString(w, answer)
		})
		r.define("acme", budget.MaxAmount)
		if r.post("k1", "{}").StatusCode != http.StatusOK {
			return
		}
		got, err := r.core.Budgets.Get(context.Background(), budget.GetParams{Scope: storetest.Scope, Name: "acme"})
		if err != nil || got.Held != 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		if got.Spent != held && !strings.Contains(answer, "tokens") {
			t.Errorf("%q costs %d", answer, got.Spent)
		}
	})
}
