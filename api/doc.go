// Package api is the HTTP interface of Counterfoil, version 1, as Go types: what each route takes and answers, and the
// codes by which it refuses.
//
// Every request and answer is JSON in UTF-8 with members in snake_case. A request type says all about its route's input:
// members of the body by `json` tags, parts of the path by `path` tags, the query by `query` tags. The tags `minimum`,
// `maximum`, `minItems`, `maxItems`, `maxLength` and `enum` are limits that the server enforces and publishes in its
// OpenAPI document; a member without omitzero must be there. Types with a form of their own ([Name], [Digest], [Token],
// [Seconds], …) refuse any other when they are decoded, so that a decoded request needs no second look at single values.
//
// Refusals are problems (RFC 9457), see [Problem]. The one table of codes is [Codes].
//
// Values of this package are plain data: safe to share as long as nobody writes.
package api
