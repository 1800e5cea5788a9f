package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/counterfoil/counterfoil/engine"
)

// notSentError: the call was not sent, so that nothing came of it.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

// refusals are what the servers' error replies begin with that come before a
// script's first write, with what each asks of the operator. Any other error
// reply to a write leaves its outcome open.
var refusals = []struct{ code, advice string }{
	{"NOSCRIPT", ""},
	{"MOVED", "the cluster is moving the scope's slot"},
	{"ASK", "the cluster is moving the scope's slot"},
	{"TRYAGAIN", "the cluster is moving the scope's slot"},
	{"CROSSSLOT", ""},
	{"CLUSTERDOWN", "the cluster is down; see CLUSTER INFO"},
	{"LOADING", "the server is loading its data"},
	{"MASTERDOWN", "the node is a replica"},
	{"READONLY", "the node is a replica; name its primary"},
	{"OOM", "the server has reached its maxmemory"},
	{"MISCONF", "the server cannot write to its disk"},
	{"NOREPLICAS", "the server has fewer replicas than its min-replicas-to-write"},
	{"BUSY", "another script is running on the server"},
	{"NOAUTH", "a user name and password are needed"},
	{"WRONGPASS", "the user name or password is wrong"},
	{"NOPERM", "the user lacks a permission; see docs/engines.md for its ACL"},
	{"WRONGTYPE", "another program has written to this store's keys"},
}

// refusal gives the advice on an error reply that certainly wrote nothing.
func refusal(reply *rueidis.RedisError) (advice string, ok bool) {
	text := reply.Error()
	for _, r := range refusals {
		if rest, found := strings.CutPrefix(text, r.code); found && (rest == "" || rest[0] == ' ') {
			return r.advice, true
		}
	}
	return "", false
}

// unavailable is the error of a call that certainly wrote nothing.
func unavailable(err error) error {
	if errors.Is(err, rueidis.ErrClosing) {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, engine.ErrClosed)
	}
	if reply, ok := rueidis.IsRedisErr(err); ok {
		if advice, _ := refusal(reply); advice != "" {
			return fmt.Errorf("%w: %s: %w", engine.ErrUnavailable, advice, err)
		}
	}
	return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
}

// writeError is the error of a write that was handed to a connection: nothing
// was written only where that is certain.
func writeError(err error) error {
	var none *notSentError
	if errors.As(err, &none) {
		return unavailable(err)
	}
	if reply, ok := rueidis.IsRedisErr(err); ok {
		if _, certain := refusal(reply); certain {
			return unavailable(err)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: no reply in time", engine.ErrAmbiguous)
	}
	return fmt.Errorf("%w: %w", engine.ErrAmbiguous, err)
}
