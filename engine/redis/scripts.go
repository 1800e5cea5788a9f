package redis

import (
	"crypto/sha1" //nolint:gosec // the servers name scripts by it; nothing rests on it
	_ "embed"
	"encoding/hex"
)

//go:embed read.lua
var readText string

//go:embed swap.lua
var swapText string

//go:embed touch.lua
var touchText string

//go:embed turn.lua
var turnText string

//go:embed list.lua
var listText string

// The first line of a script is part of it: it says under which conditions the
// server runs it. Without allow-oom a server that has reached its maxmemory
// refuses it, before it does anything.
var (
	readScript = newScript(readText)
	growScript = newScript("#!lua\n" + swapText)
	// shrinkScript is for changes that free memory.
	shrinkScript = newScript("#!lua flags=allow-oom\n" + swapText)
	touchScript  = newScript(touchText)
	turnScript   = newScript(turnText)
	listScript   = newScript(listText)
)

type script struct{ text, sha string }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}
