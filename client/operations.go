package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/operation"
)

// Operations lists operations by id, those whose outcome is unknown by the end of their lease. Scope is the caller's;
// another owner's need the role observe. Receipts are left out.
func (c *Caller) Operations(ctx context.Context, p operation.ListParams) (operation.Page, error) {
	q := page(p.Cursor, p.Limit)
	set(q, "state", string(p.State))
	set(q, "owner", p.Owner)
	var a api.OperationList
	if err := c.get(ctx, aboutOperation, "/v1/operations", q, &a); err != nil {
		return operation.Page{}, err
	}
	out := operation.Page{Next: a.NextCursor}
	for i := range a.Items {
		o, err := operationOf(&a.Items[i])
		if err != nil {
			return operation.Page{}, err
		}
		out.Operations = append(out.Operations, o)
	}
	for _, id := range a.Damaged {
		out.Damaged = append(out.Damaged, string(id))
	}
	return out, nil
}

// get sends a GET.
func (c *Caller) get(ctx context.Context, what about, path string, q url.Values, answer any) error {
	return c.do(ctx, Request{Method: http.MethodGet, Path: path, Query: q, Again: true}, what, answer)
}

// page is the query of a part of a list.
func page(cursor string, limit int) url.Values {
	q := url.Values{}
	set(q, "cursor", cursor)
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}
