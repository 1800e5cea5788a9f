package mcpguard

import "strings"

// The methods that the guard itself knows.
const (
	methodCall      = "tools/call"
	methodList      = "tools/list"
	methodCancelled = "notifications/cancelled"
	methodListen    = "subscriptions/listen" // answered by a stream that has no end of its own
)

// passed are the requests of a client that pass as they are, in all versions of the protocol from 2024-11-05 to 2026-07-28:
// those of the protocol itself, none of which performs a tool.
var passed = map[string]bool{
	"initialize": true, "ping": true, "server/discover": true,
	methodList: true, "prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true, "resources/subscribe": true, "resources/unsubscribe": true,
	"completion/complete": true, "logging/setLevel": true, methodListen: true,
	"tasks/get": true, "tasks/result": true, "tasks/list": true, "tasks/cancel": true, "tasks/update": true,
}

// checkMethod refuses what might have effects that nobody knows. A call of a tool is no such thing, but it must ask for an
// answer: some servers perform it even without.
func checkMethod(f *frame) *rpcError {
	switch {
	case f.method == "": // an answer to the server
		return nil
	case !f.request() && strings.HasPrefix(f.method, "notifications/"):
		return nil
	case !f.request():
		return refuseFrame(codeInvalidRequest, "a message without id must be a notification")
	case f.method == methodCall || passed[f.method]:
		return nil
	}
	e := refuseFrame(codeNoMethod, "the guard does not know this method, which might have effects, and does not pass it on")
	e.id = f.id
	return e
}
