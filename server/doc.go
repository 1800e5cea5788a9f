// Package server is Counterfoil's HTTP interface: strict JSON in, a capability called, JSON or a problem out.
//
// There is one table of routes ([Server.Routes]); the multiplexer, the roles, the OpenAPI document and the page /docs all
// derive from it. A route is a method, a path, the roles of which one is needed, a request type, an answer type, and a
// function between them. Whatever is the same for all routes happens once, in this order:
//
//  1. limits: requests in progress, draining (503)
//  2. path and method (404, 405)
//  3. token and role (401, 403): nobody without a token makes the server read a body
//  4. query, path, content type, size and time of the body (400, 415, 413, 408)
//  5. strict decoding, and the limits that the request's type names (400)
//  6. the capability, under a deadline
//  7. the answer, or the problem that its error means
//
// Fail closed: an error that nobody foresaw is [api.Internal] with no detail, a panic too. Nothing that a client sent is
// repeated in a problem or written to the log.
package server
