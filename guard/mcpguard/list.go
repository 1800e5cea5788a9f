package mcpguard

import (
	"context"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

// maxPages bounds how many pages of a server's list of tools are read.
const maxPages = 100

var (
	errList      = errors.New("mcpguard: the server's list of tools cannot be read")
	errListLong  = errors.New("mcpguard: the server's list of tools has too many pages")
	errListTwice = errors.New("mcpguard: the server lists a tool twice")
)

// toolPage is one page of the list of tools.
type toolPage struct {
	Tools []struct {
		Name        string         `json:"name"`
		InputSchema jsontext.Value `json:"inputSchema"`
	} `json:"tools"`
	NextCursor string `json:"nextCursor"`
}

// findSchema reads the list of tools to its end, page by page, and gives the schema of one. A name that is listed twice is
// no answer.
func findSchema(ctx context.Context, tool string, page func(ctx context.Context, cursor string) ([]byte, error)) ([]byte, error) {
	var schema []byte
	cursor := ""
	for range maxPages {
		result, err := page(ctx, cursor)
		if err != nil {
			return nil, err
		}
		var list toolPage
		if canonical.Decode(result, new(map[string]jsontext.Value)) != nil || json.Unmarshal(result, &list) != nil {
			return nil, errList
		}
		for _, t := range list.Tools {
			switch {
			case t.Name != tool:
			case schema != nil:
				return nil, errListTwice
			case t.InputSchema == nil:
				return nil, errList
			default:
				schema = t.InputSchema
			}
		}
		if cursor = list.NextCursor; cursor == "" {
			if schema == nil {
				return nil, errNoTool
			}
			return schema, nil
		}
	}
	return nil, errListLong
}

// listParams are the parameters of the guard's own request for a page. Since 2026-07-28 each request says in _meta who its
// client is: that of the call.
func (c *toolCall) listParams(cursor string) jsontext.Value {
	params := struct {
		Cursor string                    `json:"cursor,omitzero"`
		Meta   map[string]jsontext.Value `json:"_meta,omitzero"`
	}{Cursor: cursor}
	for name, value := range c.meta {
		if strings.HasPrefix(name, "io.modelcontextprotocol/") {
			if params.Meta == nil {
				params.Meta = map[string]jsontext.Value{}
			}
			params.Meta[name] = value
		}
	}
	text, err := json.Marshal(&params, json.Deterministic(true))
	if err != nil { // plain data
		return jsontext.Value("{}")
	}
	return text
}

// listFrame makes the guard's own request for a page.
func (c *toolCall) listFrame(id, cursor string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + methodList + `","params":` + string(c.listParams(cursor)) + `}`)
}
