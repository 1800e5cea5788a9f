package server

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
)

// Route is one row of the table of routes.
type Route struct {
	Method string
	Path   string // as http.ServeMux reads it
	Group  string // the heading under which the documents show it
	Doc    string // one sentence: what it does

	// Roles lists the roles of which the token must have one. Empty: the route needs no token and ignores one. They come
	// from [access.Routes], and so do Also and Note.
	Roles []access.Role
	Also  []access.Condition
	Note  string
	// Statuses lists the statuses of success.
	Statuses []int
	// Codes lists the codes of refusals, those that every route has left out: see [Route.AllCodes].
	Codes []api.Code
	// Body says whether the request has a body.
	Body BodyRule
	// MaxBody is the largest body in bytes.
	MaxBody int64
	// Request and Answer are the types of input and of a success.
	Request, Answer reflect.Type

	// Media is the media type of a success.
	Media string

	form *form
	call func(ctx context.Context, who *access.Principal, req any) (int, any, error)
	page func(x *exchange) error // instead of call, where the answer is no plain JSON
	// always: answered also when the server is overloaded or drains.
	always bool
}

const mediaJSON = "application/json"

// BodyRule says whether a route takes a body.
type BodyRule uint8

// The rules.
const (
	NoBody       BodyRule = iota
	OptionalBody          // an object without required members: {} and no body mean the same
	RequiredBody
)

// Public reports whether the route needs no token.
func (r *Route) Public() bool { return len(r.Roles) == 0 }

// roleNames lists the roles for a reader.
func (r *Route) roleNames() string {
	names := make([]string, len(r.Roles))
	for i, role := range r.Roles {
		names[i] = string(role)
	}
	return strings.Join(names, " or ")
}

// needs says for a reader what a token needs.
func (r *Route) needs() string {
	if r.Public() {
		return "Needs no token."
	}
	text := "Needs the role " + r.roleNames()
	for _, also := range r.Also {
		text += ", and " + string(also.Role) + " if " + also.When
	}
	text += "."
	if r.Note != "" {
		text += " " + r.Note
	}
	return text
}

// Pattern returns method and path, the name of the route.
func (r *Route) Pattern() string { return r.Method + " " + r.Path }

// AllCodes returns every code that the route can answer.
func (r *Route) AllCodes() []api.Code {
	codes := slices.Clone(r.Codes)
	codes = append(codes, api.Internal, api.Overloaded, api.Draining)
	if !r.Public() {
		codes = append(codes, api.Unauthenticated, api.Forbidden, api.StoreUnavailable, api.Latched, api.RecordCorrupt, api.KeyUnknown, api.ClockRefused, api.CommitUnknown, api.NotFound)
	}
	if r.Body != NoBody {
		codes = append(codes, api.UnsupportedMediaType, api.TooLarge, api.RequestTimeout)
	}
	if r.form != nil {
		codes = append(codes, api.Malformed, api.Invalid)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// handle makes a function from request to answer into the serving part of a route.
func handle[Req, Answer any](r Route, fn func(ctx context.Context, who *access.Principal, req *Req) (int, *Answer, error)) Route {
	r.Request, r.Answer = reflect.TypeFor[Req](), reflect.TypeFor[Answer]()
	r.form = formOf(r.Request)
	r.Media = mediaJSON
	r.Body = r.form.bodyRule(r.Method)
	if r.MaxBody == 0 {
		r.MaxBody = smallBody
	}
	r.call = func(ctx context.Context, who *access.Principal, req any) (int, any, error) {
		status, answer, err := fn(ctx, who, req.(*Req))
		if err != nil {
			return 0, nil, err
		}
		return status, answer, nil
	}
	return r
}

// statuses returns the statuses of success.
func (r *Route) statuses() []int {
	if len(r.Statuses) == 0 {
		return []int{http.StatusOK}
	}
	return r.Statuses
}
