package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/counterfoil/counterfoil/guard/httpguard"
)

// Middleware guards the tools of a server made with the official SDK: give it to [mcp.Server.AddReceivingMiddleware]
// after all other middleware, so that it stands before them. identify names the owner of a call; nil: as the options say,
// by the name or by the headers of the request.
//
// A tool that has begun gets a context that does not end when its client leaves or cancels.
func (g *Guard) Middleware(identify func(context.Context, *mcp.CallToolRequest) (string, error)) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method != methodCall {
				return next(ctx, method, req)
			}
			call, ok := req.(*mcp.CallToolRequest)
			if !ok || call.Params == nil {
				return nil, &jsonrpc.Error{Code: codeInternal, Message: "counterfoil: a call of a tool of an unknown form"}
			}
			return g.sdkCall(ctx, call, next, identify)
		}
	}
}

// sdkCall is a guarded call of a tool of the SDK.
type sdkCall struct {
	request *mcp.CallToolRequest
	asked   *toolCall
	next    mcp.MethodHandler
	result  mcp.Result
	err     error
}

func (g *Guard) sdkCall(ctx context.Context, r *mcp.CallToolRequest, next mcp.MethodHandler, identify func(context.Context, *mcp.CallToolRequest) (string, error)) (mcp.Result, error) {
	if g.policyOf(r.Params.Name).ReadOnly {
		return next(ctx, methodCall, r)
	}
	params, err := json.Marshal(r.Params)
	if err != nil {
		return nil, err
	}
	c, refused := decodeCall(params)
	if refused != nil {
		return nil, &jsonrpc.Error{Code: int64(refused.code), Message: "counterfoil: " + refused.text}
	}
	if err := g.identifyCall(ctx, c, r, identify); err != nil {
		return nil, fmt.Errorf("counterfoil: %w", err)
	}
	up := &sdkCall{request: r, asked: c, next: next}
	return up.give(g.serve(ctx, c, up))
}

func (g *Guard) identifyCall(ctx context.Context, c *toolCall, r *mcp.CallToolRequest, identify func(context.Context, *mcp.CallToolRequest) (string, error)) error {
	over := &http.Request{}
	if extra := r.GetExtra(); extra != nil {
		over.Header = extra.Header
	}
	if identify == nil {
		return g.identify(c, over)
	}
	unnamed := *g
	unnamed.options.Identify = nil
	if err := unnamed.identify(c, over); err != nil {
		return err
	}
	owner, err := identify(ctx, r)
	if err != nil {
		return err
	}
	c.owner = owner
	return httpguard.CheckOwner(owner)
}

func (s *sdkCall) call(ctx context.Context, by time.Time) (*answer, error) {
	if !now().Before(by) {
		return nil, errNotSent
	}
	s.result, s.err = s.next(ctx, methodCall, s.request)
	if s.err != nil {
		a := &answer{failed: true}
		var said *jsonrpc.Error
		if errors.As(s.err, &said) {
			a.code = int(said.Code)
		}
		return a, nil
	}
	body, err := json.Marshal(s.result)
	return &answer{result: jsontext.Value(body)}, err
}

func (s *sdkCall) give(v *verdict) (mcp.Result, error) {
	if v.given != nil {
		return s.result, s.err
	}
	body := v.replay
	if body == nil {
		body = v.refused.result()
	}
	result := new(mcp.CallToolResult)
	if err := json.Unmarshal(body, result); err != nil {
		return nil, fmt.Errorf("counterfoil: the recorded result cannot be read any more: %w", err)
	}
	return result, nil
}

// schema asks the server for its tools, as its client would.
func (s *sdkCall) schema(ctx context.Context, tool string) ([]byte, error) {
	return findSchema(ctx, tool, func(ctx context.Context, cursor string) ([]byte, error) {
		list, err := s.next(ctx, methodList, &mcp.ListToolsRequest{
			Session: s.request.Session, Params: &mcp.ListToolsParams{Cursor: cursor}, Extra: s.request.Extra,
		})
		if err != nil {
			return nil, err
		}
		return json.Marshal(list)
	})
}
