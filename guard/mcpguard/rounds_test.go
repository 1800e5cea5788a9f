package mcpguard_test

import (
	"context"
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
