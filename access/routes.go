package access

// Route says which role a route of the HTTP interface asks for.
type Route struct {
	Method string
	Path   string // as http.ServeMux reads it
	// Roles lists the roles of which a token must have one. None: the route needs no token and ignores one.
	Roles []Role
	// Also lists roles that are needed besides if the request asks for more.
	Also []Condition
	// Note is what holds besides, in words for the documents.
	Note string
}

// Condition is a role that some requests of a route need besides.
type Condition struct {
	Role Role
	When string
}

// Routes is the one table from route to role. The server enforces it and the documents show it. It must not be changed.
var Routes = []Route{
	{Method: "GET", Path: "/healthz"},
	{Method: "GET", Path: "/readyz"},
	{Method: "GET", Path: "/metrics"},
	{Method: "GET", Path: "/.well-known/jwks.json"},
	{Method: "GET", Path: "/docs"},
	{Method: "GET", Path: "/openapi.json"},
	{Method: "GET", Path: "/problems/{code}"},

	{Method: "POST", Path: "/v1/permits", Roles: []Role{Mint}, Also: []Condition{{Spend, "hold is given"}}},
	{Method: "POST", Path: "/v1/permits/consume", Roles: []Role{Consume}},
	{Method: "POST", Path: "/v1/permits/check", Roles: []Role{Consume}},
	{Method: "POST", Path: "/v1/revocations", Roles: []Role{Admin}},

	{
		Method: "POST", Path: "/v1/operations", Roles: []Role{Operate},
		Also: []Condition{{Spend, "spend or hold_id is given"}}, Note: "The permit of a begin needs no role consume.",
	},
	{Method: "GET", Path: "/v1/operations", Roles: []Role{Read}, Also: []Condition{{Observe, "owner names another owner, or the whole scope is listed"}}},
	{Method: "GET", Path: "/v1/operations/{id}", Roles: []Role{Read}, Note: "Another owner's operation shows to observe only."},
	{Method: "POST", Path: "/v1/operations/{id}/complete", Roles: []Role{Operate}},
	{Method: "POST", Path: "/v1/operations/{id}/renew", Roles: []Role{Operate}},
	{Method: "POST", Path: "/v1/operations/{id}/abort", Roles: []Role{Operate}},
	{Method: "POST", Path: "/v1/operations/{id}/resolve", Roles: []Role{Resolve}},

	{Method: "POST", Path: "/v1/challenges", Roles: []Role{Challenge}},
	{Method: "GET", Path: "/v1/challenges/{job_id}", Roles: []Role{Challenge}},
	{Method: "POST", Path: "/v1/challenges/{job_id}/consume", Roles: []Role{Challenge}},
	{Method: "GET", Path: "/v1/epoch", Roles: []Role{Challenge}},
	{Method: "POST", Path: "/v1/epoch/advance", Roles: []Role{Admin}},

	{Method: "PUT", Path: "/v1/budgets/{name}", Roles: []Role{Admin}},
	{Method: "GET", Path: "/v1/budgets/{name}", Roles: []Role{Read}},
	{Method: "GET", Path: "/v1/budgets", Roles: []Role{Read}},
	{Method: "POST", Path: "/v1/budgets/close", Roles: []Role{Admin}},
	{Method: "POST", Path: "/v1/spends", Roles: []Role{Spend}},
	{Method: "POST", Path: "/v1/spends/{id}/refund", Roles: []Role{Refund}},
	{Method: "POST", Path: "/v1/holds", Roles: []Role{Spend}},
	{Method: "GET", Path: "/v1/holds/{id}", Roles: []Role{Read}},
	{
		Method: "POST", Path: "/v1/holds/{id}/capture", Roles: []Role{Spend, Consume},
		Note: "With consume alone only by the token that consuming the hold's permit gave, whoever the owner is.",
	},
	{Method: "POST", Path: "/v1/holds/{id}/void", Roles: []Role{Spend}},
	{Method: "POST", Path: "/v1/holds/{id}/extend", Roles: []Role{Spend}},

	{Method: "POST", Path: "/v1/approvals", Roles: []Role{Operate}, Note: "Its owner alone gets the permit."},
	{Method: "GET", Path: "/v1/approvals", Roles: []Role{Resolve}, Note: "Other owners' requests show to observe only."},
	{Method: "GET", Path: "/v1/approvals/{id}", Roles: []Role{Resolve}, Note: "Another owner's request shows to observe only."},
	{Method: "POST", Path: "/v1/approvals/{id}/grant", Roles: []Role{Resolve}, Note: "Another owner's request also needs observe."},
	{Method: "POST", Path: "/v1/approvals/{id}/deny", Roles: []Role{Resolve}, Note: "Another owner's request also needs observe."},

	{Method: "POST", Path: "/v1/tokens", Roles: []Role{Admin}},
	{Method: "GET", Path: "/v1/tokens", Roles: []Role{Admin}},
	{Method: "DELETE", Path: "/v1/tokens/{name}", Roles: []Role{Admin}},
	{Method: "POST", Path: "/v1/scopes", Roles: []Role{Admin}, Note: "Needs a token of scope *."},
	{Method: "GET", Path: "/v1/scopes", Roles: []Role{Admin}, Note: "A token of one scope sees that scope alone."},
	{Method: "GET", Path: "/v1/keys", Roles: []Role{Admin}},
	{Method: "POST", Path: "/v1/keys/rotate", Roles: []Role{Admin}},
	{Method: "POST", Path: "/v1/keys/trust", Roles: []Role{Admin}},
	{Method: "POST", Path: "/v1/keys/retire", Roles: []Role{Admin}},
	{Method: "POST", Path: "/v1/backup", Roles: []Role{Admin}, Note: "Needs a token of scope *."},
}

// RolesOf returns the roles of which a route asks one, none for a public route. known is false for a route that is not in
// the table: nobody may use it.
func RolesOf(method, path string) (roles []Role, known bool) {
	for _, r := range Routes {
		if r.Method == method && r.Path == path {
			return r.Roles, true
		}
	}
	return nil, false
}
