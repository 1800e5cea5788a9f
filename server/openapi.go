package server

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/counterfoil/counterfoil/api"
)

// schemaOf gives huma the schema of a type that decodes itself.
type schemaOf[T any] struct{}

// Schema returns the schema of T.
func (schemaOf[T]) Schema(huma.Registry) *huma.Schema {
	return scalars()[reflect.TypeFor[T]()]
}

// scalars gives fresh schemas: huma writes into those that it is given.
func scalars() map[reflect.Type]*huma.Schema {
	return map[reflect.Type]*huma.Schema{
		reflect.TypeFor[api.Name]():         {Type: huma.TypeString, MinLength: new(1), MaxLength: new(api.MaxName)},
		reflect.TypeFor[api.Digest]():       {Type: huma.TypeString, Pattern: "^[0-9a-f]{64}$"},
		reflect.TypeFor[api.Token]():        {Type: huma.TypeString, Pattern: "^[0-9a-f]{32}$"},
		reflect.TypeFor[api.BudgetName]():   {Type: huma.TypeString, Pattern: `^[A-Za-z0-9._~-]{1,64}(/[A-Za-z0-9._~-]{1,64}){0,7}$`},
		reflect.TypeFor[api.BudgetPrefix](): {Type: huma.TypeString, Pattern: `^[A-Za-z0-9._~-]{1,64}(/[A-Za-z0-9._~-]{1,64}){0,7}/?$`},
		reflect.TypeFor[api.Seconds]():      {Type: huma.TypeInteger, Minimum: new(1.0)},
		reflect.TypeFor[api.Epoch]():        {Type: huma.TypeInteger, Minimum: new(1.0), Maximum: new(float64(api.MaxInteger))},
		reflect.TypeFor[api.Time]():         {Type: huma.TypeString, Format: "date-time"},
		reflect.TypeFor[api.Code]():         {Type: huma.TypeString},
		reflect.TypeFor[api.Limit](): {OneOf: []*huma.Schema{
			{Type: huma.TypeInteger, Minimum: new(0.0), Maximum: new(float64(api.MaxInteger))},
			{Type: huma.TypeString, Enum: []any{"unlimited"}},
		}},
		reflect.TypeFor[api.HeaderValue](): {OneOf: []*huma.Schema{
			{Type: huma.TypeString},
			{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}},
		}},
	}
}

func alias[T any](r huma.Registry) {
	r.RegisterTypeAlias(reflect.TypeFor[T](), reflect.TypeFor[schemaOf[T]]())
}

func newRegistry() huma.Registry {
	r := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	alias[api.Name](r)
	alias[api.Digest](r)
	alias[api.Token](r)
	alias[api.BudgetName](r)
	alias[api.BudgetPrefix](r)
	alias[api.Seconds](r)
	alias[api.Epoch](r)
	alias[api.Time](r)
	alias[api.Code](r)
	alias[api.Limit](r)
	alias[api.HeaderValue](r)
	return r
}

// document writes the table of routes as OpenAPI 3.1.
func (s *Server) document() ([]byte, error) {
	registry := newRegistry()
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Counterfoil", Version: "1",
			Description: "The state layer in front of a side effect: permits, operations, challenges and budgets. At most once, never over budget, and when the outcome cannot be known, it says so and refuses.",
		},
		Paths: map[string]*huma.PathItem{},
		Components: &huma.Components{
			Schemas:         registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "cf_ and 43 characters base64url."}},
		},
	}
	for i := range s.routes {
		r := &s.routes[i]
		item := doc.Paths[r.Path]
		if item == nil {
			item = &huma.PathItem{}
			doc.Paths[r.Path] = item
		}
		put(item, r.Method, describe(r, registry))
	}
	openAnswers(registry, s.routes)
	return json.Marshal(doc)
}

// openAnswers lets answers have members that a later version adds: clients must ignore what they do not know. Requests may
// have no others.
func openAnswers(all huma.Registry, routes []Route) {
	requests := newRegistry()
	for i := range routes {
		if routes[i].Request != nil {
			requests.Schema(routes[i].Request, true, "")
		}
	}
	for name, schema := range all.Map() {
		if requests.Map()[name] == nil {
			schema.AdditionalProperties = true
		}
		for _, member := range schema.Properties {
			// A list without items is [], never null.
			member.Nullable = false
		}
	}
}

func put(item *huma.PathItem, method string, op *huma.Operation) {
	switch method {
	case http.MethodGet:
		item.Get = op
	case http.MethodPut:
		item.Put = op
	case http.MethodPost:
		item.Post = op
	case http.MethodDelete:
		item.Delete = op
	default:
		panic("server: no place in the OpenAPI document for " + method)
	}
}

func describe(r *Route, registry huma.Registry) *huma.Operation {
	op := &huma.Operation{
		OperationID: operationID(r), Summary: r.Doc, Tags: []string{r.Group},
		Responses:   successes(r, registry),
		Parameters:  parameters(r, registry),
		RequestBody: requestBody(r, registry),
	}
	for status, codes := range byStatus(r) {
		op.Responses[strconv.Itoa(status)] = refusal(codes, registry)
	}
	if !r.Public() {
		op.Security = []map[string][]string{{"token": {}}}
		op.Description = r.needs()
		op.Extensions = map[string]any{"x-roles": r.Roles}
	}
	return op
}

// operationID names a route in a way that generators make a function's name of.
func operationID(r *Route) string {
	words := strings.FieldsFunc(strings.ToLower(r.Method+" "+r.Path), func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
	return strings.Join(words, "_")
}

func successes(r *Route, registry huma.Registry) map[string]*huma.Response {
	m := map[string]*huma.Response{}
	content := &huma.MediaType{}
	if r.Answer != nil {
		content.Schema = registry.Schema(r.Answer, true, "")
	}
	for _, status := range r.statuses() {
		m[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status),
			Content:     map[string]*huma.MediaType{r.Media: content},
			Headers: map[string]*huma.Header{"Counterfoil-Outcome": {
				Description: "What it came to: ok, execute, replay.", Schema: &huma.Schema{Type: huma.TypeString},
			}},
		}
	}
	return m
}

// byStatus sorts the codes that a route can answer by their statuses.
func byStatus(r *Route) map[int][]api.Code {
	m := map[int][]api.Code{}
	for _, code := range r.AllCodes() {
		row, ok := code.Info()
		if !ok {
			panic("server: " + r.Pattern() + " names an unknown code " + string(code))
		}
		for _, status := range row.Statuses {
			m[status] = append(m[status], code)
		}
	}
	return m
}

func refusal(codes []api.Code, registry huma.Registry) *huma.Response {
	names := make([]string, len(codes))
	values := make([]any, len(codes))
	for i, code := range codes {
		names[i], values[i] = string(code), string(code)
	}
	problem := registry.Schema(reflect.TypeFor[api.Problem](), true, "")
	only := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"code": {Type: huma.TypeString, Enum: values}}}
	return &huma.Response{
		Description: strings.Join(names, ", "),
		Content:     map[string]*huma.MediaType{api.ProblemType: {Schema: &huma.Schema{AllOf: []*huma.Schema{problem, only}}}},
		Headers: map[string]*huma.Header{
			"Counterfoil-Outcome": {Description: "The code.", Schema: &huma.Schema{Type: huma.TypeString}},
			"Retry-After":         {Description: "Seconds, where waiting helps.", Schema: &huma.Schema{Type: huma.TypeInteger}},
		},
	}
}

func parameters(r *Route, registry huma.Registry) []*huma.Param {
	var out []*huma.Param
	if !r.Public() {
		for name, doc := range map[string]string{
			"Counterfoil-Owner": "admin only: the owner to act for.", "Counterfoil-Scope": "admin of scope * only: the scope to act in.",
		} {
			out = append(out, &huma.Param{Name: name, In: "header", Description: doc, Schema: registry.Schema(reflect.TypeFor[api.Name](), true, "")})
		}
	}
	if r.form == nil {
		if _, rest, ok := strings.Cut(r.Path, "{"); ok {
			out = append(out, &huma.Param{Name: strings.TrimSuffix(rest, "}"), In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
		}
		return out
	}
	for _, f := range r.form.fields {
		if f.place == inBody {
			continue
		}
		sf := r.Request.FieldByIndex(f.index)
		p := &huma.Param{Name: f.name, In: "query", Schema: huma.SchemaFromField(registry, sf, ""), Description: sf.Tag.Get("doc")}
		if f.place == inPath {
			p.In, p.Required = "path", true
		}
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b *huma.Param) int { return strings.Compare(a.In+a.Name, b.In+b.Name) })
	return out
}

func requestBody(r *Route, registry huma.Registry) *huma.RequestBody {
	if r.form == nil || r.Body == NoBody {
		return nil
	}
	schema := registry.Schema(r.Request, true, "")
	return &huma.RequestBody{
		Required:    r.Body == RequiredBody,
		Description: "At most " + strconv.FormatInt(r.MaxBody, 10) + " bytes.",
		Content:     map[string]*huma.MediaType{mediaJSON: {Schema: schema}},
	}
}
