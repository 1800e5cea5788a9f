// Package mcpguard stands in front of the tools of a server of the Model Context Protocol (MCP) that must not act twice: as
// a proxy of raw frames over stdin and stdout, as a proxy of the streamable HTTP transport, and as middleware of the
// official Go SDK. All three ask the same judge.
//
//	frame ──► strict decoding ──► policy of the tool ──► claim (permit, budgets) ──► server ──► durable receipt ──► answer
//
// A call of a tool is guarded unless the configuration passes the tool. Its key names an operation of its owner: the
// server gets the call if and only if [counterfoil.Caller] answers Execute, and its result reaches the client when it is
// recorded. The same call again gets the recorded result, marked as such; every refusal is a result that a model can read
// ([Refusal]). What the server says about itself, such as readOnlyHint, decides nothing.
//
// Everything else passes as it is, the same bytes; a method that the protocol does not know is refused, since it might have
// effects.
//
// The package has no rule of its own about who may go on: that is what the Caller answers. A result of the server is a
// receipt. An error of the server, a broken connection, a timeout and a cancelled call leave the outcome open: it counts as
// unknown when the lease is over, until an operator resolves it.
package mcpguard
