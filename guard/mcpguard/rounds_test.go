package mcpguard_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/counterfoil/counterfoil/guard/mcpguard"
)

// TestToolThatAsksItsClient is performed once, whatever way the protocol has for its question.
func TestToolThatAsksItsClient(t *testing.T) {
	t.Parallel()
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var asked, effects atomic.Int64
			r.extra = func(s *mcp.Server) {
				mcp.AddTool(s, &mcp.Tool{Name: "confirm"}, func(_ context.Context, q *mcp.CallToolRequest, p payment) (*mcp.CallToolResult, any, error) {
					if q.Params.InputResponses == nil {
						return &mcp.CallToolResult{RequestState: "state of " + p.Order, InputRequests: mcp.InputRequestMap{
							"sure": &mcp.ElicitParams{Message: "sure?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}},
						}}, nil, nil
					}
					effects.Add(1)
					return said("paid " + p.Order), nil, nil
				})
			}
			r.client = &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked.Add(1)
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
			}}
			s := open(r, mcpguard.Options{})
			first := call(t, s, tool("confirm", "k", payment{"a", 1}))
			again := call(t, s, tool("confirm", "k", payment{"a", 1}))
			other := call(t, s, tool("confirm", "k", payment{"b", 1}))
			if first.text != "paid a\n" || !again.replayed || other.code() != "key_reused" || effects.Load() != 1 {
				t.Errorf("got %+v, %+v, %+v after %d effects and %d questions", first, again, other, effects.Load(), asked.Load())
			}
		})
	}
}

// TestProgressAndLogsReachTheClient of a guarded call.
func TestProgressReachesTheClient(t *testing.T) {
	t.Parallel()
	for name, open := range ways {
		if name == "http json" {
			continue // the answer is one message there
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.extra = func(s *mcp.Server) {
				mcp.AddTool(s, &mcp.Tool{Name: "long"}, func(ctx context.Context, q *mcp.CallToolRequest, p payment) (*mcp.CallToolResult, any, error) {
					err := q.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: q.Params.GetProgressToken(), Progress: 1})
					<-r.free // not before the client has seen it
					return said("paid " + p.Order), nil, err
				})
			}
			r.client = &mcp.ClientOptions{ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { close(r.free) }}
			s := open(r, mcpguard.Options{})
			p := tool("long", "k", payment{"a", 1})
			p.SetProgressToken("p1")
			if got := call(t, s, p); got.text != "paid a\n" {
				t.Errorf("got %+v", got)
			}
			p.SetProgressToken("p2")
			if got := call(t, s, p); !got.replayed {
				t.Errorf("got %+v: a progress token is no part of a call", got)
			}
		})
	}
}

// either waits for the next message on one of two sides, and says whether it was the first.
func either(a, b *wire) (message string, first bool) {
	type got struct {
		message string
		first   bool
	}
	heard := make(chan got, 2)
	for _, w := range []*wire{a, b} {
		go func() {
			if line, err := w.in.ReadString('\n'); err == nil {
				heard <- got{line, w == a}
			}
		}()
	}
	m := <-heard
	return m.message, m.first
}

// TestAnswerToAQuestionIsThatOfTheCallThatAsked: a round is granted nothing of its own, so that it must be the call that was.
func TestAnswerToAQuestionIsThatOfTheCallThatAsked(t *testing.T) {
	t.Parallel()
	const meta = `"_meta":{"io.counterfoil/idempotency-key":"k"}`
	for name, params := range map[string]string{
		"another tool":           `{"name":"pay","arguments":{"a":1},"inputResponses":{},"requestState":"t",` + meta + `}`,
		"other arguments":        `{"name":"ask","arguments":{"a":2},"inputResponses":{},"requestState":"s",` + meta + `}`,
		"other arguments, later": `{"name":"ask","arguments":{"a":2},"inputResponses":{},"requestState":"t",` + meta + `}`,
		"a task":                 `{"name":"ask","arguments":{"a":1},"task":{},"inputResponses":{},"requestState":"t",` + meta + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			client, server, _ := r.raw(mcpguard.Options{Tools: map[string]mcpguard.Policy{"pay": {Capability: "payments"}}})
			for n, round := range []string{``, `"inputResponses":{},"requestState":"s",`} {
				frame := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"a":1},` + round + meta + `}}`
				client.send(frame)
				if got := server.recv(); got != frame {
					t.Fatalf("the server got %s", got)
				}
				server.send(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{},"requestState":"` + []string{"s", "t"}[n] + `"}}`)
				client.recv()
			}
			client.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + params + `}`)
			got, fromServer := either(server, client)
			if fromServer {
				t.Fatalf("the server got %s", got)
			}
			var m struct {
				Error *struct{ Data mcpguard.Refusal }
			}
			if code := coded(t, got); code != "key_reused" && (json.Unmarshal([]byte(got), &m) != nil || m.Error == nil || m.Error.Data.Code != "key_reused") {
				t.Errorf("got %s", got)
			}
		})
	}
}

// TestClientCannotChooseAKeyOfTheGuardsOwn, such as that of a later round.
func TestClientCannotChooseAKeyOfTheGuardsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server, _ := r.raw(mcpguard.Options{})
	passes(t, client, server, callFrame("2", "mcp-"+strings.Repeat("0a", 31)))
	client.send(callFrame("1", "mcp-"+strings.Repeat("0a", 32)))
	got, fromServer := either(server, client)
	if fromServer || coded(t, got) != "invalid" {
		t.Errorf("got %s", got)
	}
}
