// Package access says who a caller is and what they may do.
//
// A token is `cf_` and 43 characters of base64url: 32 random bytes, shown once, when it is created. The store keeps its
// SHA-256 and what it grants: one scope (or * for all), one owner, roles, and optionally the budgets that it may use,
// amounts that each of its begins and spends is charged on top, and whether each of its begins must carry a permit or a
// budget. [Routes] says which role which route asks for, in one table.
//
// Authentication is remembered for [CacheFor], so that a revocation bites within 5 s on every server, and at once on the
// one that did it. Whoever holds a request back after authenticating, to wait for its body say, authenticates again
// before acting on it. A token is accepted only if the two records that it rests on, by hash and by name, can be read and
// agree; a store that does not answer, or a damaged record, is an error and never "unknown token" or yes.
//
// Tokens of one scope do not show in another: names are unique within a scope, and whatever belongs to another scope
// answers as if it did not exist.
package access
