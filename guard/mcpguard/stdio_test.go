package mcpguard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/mcpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
)

// raw gives the two ends of a guard over stdin and stdout, as raw frames.
func (r *rig) raw(o mcpguard.Options) (client, server *wire, ended <-chan error) {
	r.t.Helper()
	c, s, ended := pipes(r.t, r.guard(o))
	client, server = wired(r.t, c), wired(r.t, s)
	r.t.Cleanup(func() { _ = client.out.Close(); _ = server.out.Close() })
	return client, server, ended
}

// callFrame is a call of pay.
func callFrame(id, key string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"pay","arguments":{"a":1},"_meta":{"io.counterfoil/idempotency-key":%q}}}`, id, key)
}

const paid = `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"p\u0061id"}]}}`

// coded gives the code of a refusal in a message, and the text of an error.
func coded(t *testing.T, message string) string {
	t.Helper()
	var m struct {
		Error *struct {
			Code    int
			Message string
		}
		Result struct {
			Meta struct {
				Refusal  mcpguard.Refusal `json:"io.counterfoil/refusal"`
				Replayed bool             `json:"io.counterfoil/replayed"`
			} `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	switch {
	case m.Error != nil:
		return fmt.Sprint(m.Error.Code)
	case m.Result.Meta.Replayed:
		return "replayed"
	}
	return string(m.Result.Meta.Refusal.Code)
}

// passes sends a line from one side, and wants the same bytes on the other.
func passes(t *testing.T, from, to *wire, line string) {
	t.Helper()
	done := make(chan string, 1)
	go func() { done <- to.recv() }()
	from.send(line)
	if got := <-done; got != line {
		t.Errorf("sent %s\n got %s", line, got)
	}
}

func TestEveryVersionOfTheProtocolPassesAsTheSameBytes(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "2031-01-01"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			client, server, _ := r.raw(mcpguard.Options{})
			passes(t, client, server, `{ "method":"initialize","id":0, "jsonrpc":"2.0","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"\u0061","version":"1"}}}`)
			passes(t, server, client, `{"jsonrpc":"2.0","result":{"protocolVersion":"`+version+`","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}},"id":0}`)
			passes(t, client, server, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			passes(t, client, server, `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"`+version+`"}}}`)
			passes(t, server, client, `{"jsonrpc":"2.0","id":"d","error":{"code":-32601,"message":"no"}}`)
			passes(t, server, client, `{"jsonrpc":"2.0","id":0,"method":"sampling/createMessage","params":{"big":123456789012345678901234567890}}`)
			passes(t, client, server, `{"jsonrpc":"2.0","id":0,"result":{"role":"assistant"}}`)
			passes(t, server, client, `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`)
			passes(t, client, server, `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}`)
			passes(t, server, client, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
			passes(t, server, client, `what a server should not write to stdout`)

			passes(t, client, server, callFrame("7", "k"))
			passes(t, server, client, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`)
			passes(t, server, client, fmt.Sprintf(paid, "7"))
			client.send(callFrame(`"8"`, "k"))
			if got := client.recv(); coded(t, got) != "replayed" || !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"8","result":{"content":[{"type":"text","text":"p\u0061id"},`) {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestWhatIsRefusedNeverReachesTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, _ := r.raw(mcpguard.Options{MaxFrame: 2000})
	for _, c := range []struct{ frame, id, code string }{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping"}`, "null", "-32700"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/execute"}`, "1", "-32601"},
		{`{"jsonrpc":"2.0","id":2,"method":"ping","Method":"tools/call"}`, "null", "-32600"},
		{`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"pay"}}`, "null", "-32600"},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"pay","arguments":[]}}`, "3", "-32602"},
		{`[` + callFrame("4", "k") + `]`, "4", "-32600"},
		{`{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":"` + strings.Repeat("x", 3000) + `"}}`, "null", "-32600"},
		{"{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"ping\",\"params\":\r{}}", "null", "-32700"},
	} {
		client.send(c.frame)
		if got := client.recv(); coded(t, got) != c.code || !strings.Contains(got, `"id":`+c.id) {
			t.Errorf("%s\n got %s, want code %s for id %s", c.frame, got, c.code, c.id)
		}
	}
	passes(t, client, server, `{"jsonrpc":"2.0","id":9,"method":"ping"}`)
	passes(t, client, server, `[{"jsonrpc":"2.0","id":10,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"}]`)
	passes(t, server, client, `[{"jsonrpc":"2.0","id":10,"result":{}}]`)
	client.send(`{"jsonrpc":"2.0","id":9,"method":"tools/list"}`)
	if got := client.recv(); coded(t, got) != "-32600" {
		t.Errorf("an id that is in use: got %s", got)
	}
	client.send(callFrame("9", "k"))
	if got := client.recv(); coded(t, got) != "-32600" {
		t.Errorf("an id that is in use: got %s", got)
	}
	passes(t, server, client, `{"jsonrpc":"2.0","id":9,"result":{}}`)
	passes(t, client, server, callFrame("9", "k"))
}

func TestServerThatEndsLeavesTheOutcomeUnknownAndTheClientTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, ended := r.raw(mcpguard.Options{})
	passes(t, client, server, callFrame("1", "k"))
	passes(t, client, server, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	_ = server.out.Close()
	told := coded(t, client.recv()) + " " + coded(t, client.recv())
	if told != "outcome_unknown -32603" {
		t.Errorf("the client was told %s", told)
	}
	if err := <-ended; err != nil {
		t.Errorf("the pump ended with %v", err)
	}
	r.lapse()
	client, _, _ = r.raw(mcpguard.Options{})
	client.send(callFrame("1", "k"))
	if got := client.recv(); coded(t, got) != "outcome_unknown" {
		t.Errorf("got %s", got)
	}
}

func TestAnswerThatCannotBeReadLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"duplicate members": `{"jsonrpc":"2.0","id":1,"result":{"content":[]},"result":{"content":[1]}}`,
		"result and error":  `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1}}`,
		"neither":           `{"jsonrpc":"2.0","id":1}`,
		"a string":          `{"jsonrpc":"2.0","id":1,"result":"x"}`,
		"in a batch":        `[{"jsonrpc":"2.0","id":1,"result":{}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			client, server, _ := r.raw(mcpguard.Options{})
			passes(t, client, server, callFrame("1", "k"))
			server.send(answer)
			if got := client.recv(); coded(t, got) != "outcome_unknown" {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestCancelledCallIsRecordedIfItsAnswerComes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, _ := r.raw(mcpguard.Options{Default: mcpguard.Policy{Wait: mcpguard.MaxWait}})
	passes(t, client, server, callFrame("1", "k"))
	passes(t, client, server, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	server.send(fmt.Sprintf(paid, "1"))
	client.send(callFrame("2", "k"))
	if got := client.recv(); coded(t, got) != "replayed" || !strings.Contains(got, `"id":2`) {
		t.Errorf("got %s, want the replay alone: who has cancelled gets no answer", got)
	}
}

func TestCancelledCallStopsToWaitForAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, ended := r.raw(mcpguard.Options{Default: mcpguard.Policy{Wait: mcpguard.MaxWait}})
	other, _, _ := r.raw(mcpguard.Options{})
	passes(t, client, server, callFrame("1", "k"))
	client.send(callFrame("2", "k"))
	client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	client.send(callFrame("3", "k"))
	passes(t, client, server, `{"jsonrpc":"2.0","id":4,"method":"ping"}`) // the server never hears of 2
	other.send(callFrame("5", "k"))
	if got := other.recv(); coded(t, got) != "in_flight" {
		t.Errorf("got %s", got)
	}
	_ = server.out.Close()
	told := []string{coded(t, client.recv()), coded(t, client.recv()), coded(t, client.recv())}
	slices.Sort(told)
	if err := <-ended; err != nil || !slices.Equal(told, []string{"-32603", "in_flight", "outcome_unknown"}) {
		t.Errorf("the client was told %v, %v", told, err)
	}
}

func TestClientThatLeavesStopsNeitherCallNorReceipt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, ended := r.raw(mcpguard.Options{})
	passes(t, client, server, callFrame("1", "k"))
	_ = client.out.Close()
	go func() { _, _ = io.Copy(io.Discard, client.in) }()
	server.send(fmt.Sprintf(paid, "1"))
	if _, err := server.in.ReadString('\n'); err != io.EOF {
		t.Errorf("the server's side is not closed: %v", err)
	}
	_ = server.out.Close()
	if err := <-ended; err != nil {
		t.Errorf("the pump ended with %v", err)
	}
	client, _, _ = r.raw(mcpguard.Options{})
	client.send(callFrame("1", "k"))
	if got := client.recv(); coded(t, got) != "replayed" {
		t.Errorf("got %s", got)
	}
}

func TestTaskIsStartedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, _ := r.raw(mcpguard.Options{})
	asks := func(id string) string {
		return strings.Replace(callFrame(id, "k"), `"name"`, `"task":{"ttl":1000},"name"`, 1)
	}
	passes(t, client, server, asks("1"))
	passes(t, server, client, `{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"t1","status":"working"}}}`)
	client.send(asks("2"))
	if got := client.recv(); coded(t, got) != "replayed" || !strings.Contains(got, `"taskId":"t1"`) {
		t.Errorf("got %s", got)
	}
	client.send(callFrame("3", "k"))
	if got := client.recv(); coded(t, got) != "key_reused" {
		t.Errorf("got %s: a result for a task is none for a call without", got)
	}
	client.send(strings.Replace(asks("4"), `"a":1`, `"a":2`, 1))
	if got := client.recv(); coded(t, got) != "-32603" || !strings.Contains(got, `"code":"key_reused"`) {
		t.Errorf("got %s: who asks for a task gets an error", got)
	}
	passes(t, client, server, `{"jsonrpc":"2.0","id":5,"method":"tasks/result","params":{"taskId":"t1"}}`)
}

// TestCallThatAsksForInput goes through the rounds of 2026-07-28.
func TestCallThatAsksForInput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, _ := r.raw(mcpguard.Options{})
	round := func(id, state, answer string) string {
		return strings.Replace(callFrame(id, "k"), `"name"`, fmt.Sprintf(`"requestState":%q,"inputResponses":{"q":{"action":%q}},"name"`, state, answer), 1)
	}
	refused := func(frame, code string) {
		t.Helper()
		client.send(frame)
		if got := client.recv(); coded(t, got) != code {
			t.Errorf("%s\n got %s, want %s", frame, got, code)
		}
	}
	refused(round("0", "s1", "accept"), "invalid") // nobody asked
	passes(t, client, server, callFrame("1", "k"))
	passes(t, server, client, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"q":{"method":"elicitation/create","params":{}}}}}`)
	refused(callFrame("2", "k"), "replayed") // and asks again
	refused(round("3", "made up", "accept"), "invalid")
	passes(t, client, server, round("4", "s1", "accept"))
	passes(t, server, client, `{"jsonrpc":"2.0","id":4,"result":{"resultType":"input_required","requestState":"s2","inputRequests":{}}}`)
	passes(t, client, server, round("5", "s2", "accept"))
	passes(t, server, client, fmt.Sprintf(paid, "5"))
	refused(round("6", "s2", "accept"), "replayed")
	refused(round("7", "s2", "decline"), "key_reused")
	refused(round("8", "s1", "decline"), "key_reused")
	refused(round("9", "s1", "accept"), "replayed")
}

// TestReplayOverAPipeIsOneLine, although the result was recorded with line breaks, here by a guard over HTTP.
func TestReplayOverAPipeIsOneLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	url := r.proxy(mcpguard.Options{}, r.answers(func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{\"jsonrpc\":\"2.0\",\"id\":1,\r\n \"result\":{\n\"content\": [\n{\"type\":\"text\",\n\"text\":\"a  b\"}\n],\n\"_meta\":{\n\"x\":\r1}}}")
	}))
	post(t, url, callFrame("1", "k"))
	client, _, _ := r.raw(mcpguard.Options{})
	client.send(callFrame("2", "k"))
	if got := client.recv(); coded(t, got) != "replayed" || strings.Contains(got, "\r") || !strings.Contains(got, "a  b") {
		t.Errorf("got %s", got)
	}
}

// gated is a caller that records nothing before it may.
type gated struct {
	counterfoil.Caller
	asked, may chan struct{}
}

func (g *gated) Complete(ctx context.Context, p counterfoil.CompleteParams) (counterfoil.Completed, error) {
	g.asked <- struct{}{}
	<-g.may
	return g.Caller.Complete(ctx, p)
}

func TestSecondAnswerDoesNotReachTheClientBeforeTheFirstIsRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := &gated{r.core.As(storetest.Scope, "ann"), make(chan struct{}), make(chan struct{})}
	client, server, _ := r.raw(mcpguard.Options{As: func(string) counterfoil.Caller { return g }})
	passes(t, client, server, callFrame("1", "k"))
	server.send(fmt.Sprintf(paid, "1"))
	<-g.asked
	server.send(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	server.send(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`)
	passes(t, server, client, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
	close(g.may)
	if got := client.recv(); got != fmt.Sprintf(paid, "1") {
		t.Errorf("got %s", got)
	}
}

// TestAnswerBeforeTheCallIsNone: it can only be that of another request, and is not recorded.
func TestAnswerBeforeTheCallIsNone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, _ := r.raw(askFirst)
	asks := func(id string) {
		t.Helper()
		client.send(callFrame(id, "k"))
		asked := server.recv() // for its tools: the call waits
		server.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"late"}]}}`)
		server.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"pay","inputSchema":{}}]}}`, idIn(asked)))
	}
	asks("1")
	got := client.recv()
	if coded(t, got) != "approval_pending" {
		t.Fatalf("got %s", got)
	}
	_, rest, _ := strings.Cut(got, `"approval_id":"`)
	r.decide(rest[:64], true)
	asks("2")
	if got := server.recv(); got != callFrame("2", "k") {
		t.Fatalf("the server got %s", got)
	}
	server.send(fmt.Sprintf(paid, "2"))
	if got := client.recv(); got != fmt.Sprintf(paid, "2") {
		t.Errorf("got %s", got)
	}
}

// TestServerThatReadsNothingDoesNotHoldItsClientsUp for longer than a call may take.
func TestServerThatReadsNothingDoesNotHoldItsClientsUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, _, _ := r.raw(mcpguard.Options{Default: mcpguard.Policy{Timeout: 50 * time.Millisecond}})
	client.send(callFrame("1", "k"))
	if got := client.recv(); coded(t, got) != "outcome_unknown" {
		t.Errorf("got %s", got)
	}
	client.send(callFrame("2", "l"))
	if got := client.recv(); coded(t, got) != "upstream_unreachable" {
		t.Errorf("got %s: not a byte of it was sent", got)
	}
}

func TestBatchIsRefusedWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, _ := r.raw(mcpguard.Options{})
	client.send(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"}]`)
	for _, id := range []string{"1", "2", "1"} {
		if got := client.recv(); coded(t, got) != "-32600" || !strings.Contains(got, `"id":`+id) {
			t.Errorf("got %s, want a refusal of %s", got, id)
		}
	}
	passes(t, client, server, `{"jsonrpc":"2.0","id":1,"method":"ping"}`) // the id is not in use
}

// TestCallThatWaitsForItsTurnPastItsLeaseIsNotSent: others may know by then that it has not happened.
func TestCallThatWaitsForItsTurnPastItsLeaseIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		client, server, _ := r.raw(mcpguard.Options{Default: mcpguard.Policy{Lease: time.Second}})
		client.send(callFrame("1", "k")) // nobody reads it
		synctest.Wait()
		client.send(callFrame("2", "l"))
		synctest.Wait()
		<-time.After(time.Second)
		if got := server.recv(); got != callFrame("1", "k") {
			t.Errorf("the server got %s", got)
		}
		if got := client.recv(); coded(t, got) != "upstream_unreachable" || !strings.Contains(got, `"id":2`) {
			t.Errorf("got %s", got)
		}
		server.send(fmt.Sprintf(paid, "1"))
		client.recv()
		_ = client.out.Close()
		_ = server.out.Close()
	})
}
