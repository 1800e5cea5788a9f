// Package client asks a Counterfoil server over HTTP. It gives the capabilities' own types and errors, so that a program
// reads the same whether it works on a store in its own process or on a server: errors.Is(err, permit.ErrReplayed) holds in
// both. [Client.As] satisfies counterfoil.Caller.
//
// # Sending again
//
// The tokens that make a repetition known are drawn before the first send. A request is sent again, a bounded number of
// times and after the wait that the server asks for, if and only if that can do no harm: it never left this process; or the
// server said that nothing was done and that it may be sent again; or the answer was lost, or is that nobody knows, and the
// request carries what makes its repetition known or only reads. What is an answer and not a failure (an operation in
// flight, a budget that is used up, a quarantine) is returned at once; [RetryAfter] says when to ask again.
//
// # Three outcomes
//
// A nil error is a yes. An error that wraps state.ErrUnknown means that nobody can say what happened, not even by asking
// again: treat it as not yours. Every other error means that nothing was done.
//
// An error that came from a server is an [*Error], which has the problem as it came over the wire. No error shows the token
// or anything else that is secret.
package client
