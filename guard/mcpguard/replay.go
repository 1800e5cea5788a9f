package mcpguard

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// replayedText is the block of content that is added to a recorded result.
const replayedText = `{"type":"text","text":"(This call was made before. It was not made again: this is the result that was recorded then.)"}`

// replayed gives a recorded result, marked as such: in _meta, and with one more block of content, at the end, for the model
// to read. Everything else keeps its bytes, but for line breaks between them, which would end a message over a pipe. What
// an operator recorded need not be a result; it is shown as text.
func replayed(recorded []byte) []byte {
	if out, ok := marked(recorded); ok {
		if !bytes.ContainsAny(out, "\r\n") {
			return out
		}
		compact := jsontext.Value(out)
		if compact.Compact(jsontext.PreserveRawStrings(true)) == nil {
			return compact
		}
	}
	content := "[" + replayedText + "]"
	if quoted, err := jsontext.AppendQuote(nil, recorded); err == nil && len(recorded) > 0 {
		content = `[{"type":"text","text":` + string(quoted) + "}," + replayedText + "]"
	}
	return []byte(`{"content":` + content + `,"_meta":{"` + MetaReplayed + `":true},"resultType":"complete"}`)
}

// marked reports false if what was recorded is no result of a call.
func marked(result []byte) (out []byte, ok bool) {
	in := jsontext.NewDecoder(bytes.NewReader(result))
	if in.PeekKind() != '{' {
		return nil, false
	}
	_, _ = in.ReadToken()
	out = []byte{'{'}
	meta := mark(jsontext.Value("{}"))
	for in.PeekKind() == '"' {
		name, err := in.ReadValue()
		if err != nil {
			return nil, false
		}
		name = bytes.Clone(name)
		value, err := in.ReadValue()
		if err != nil {
			return nil, false
		}
		switch {
		case string(name) == `"_meta"` && value.Kind() == '{':
			meta = mark(value)
			continue
		case string(name) == `"content"` && value.Kind() == '[':
			value, ok = extended(value, replayedText), true
		case string(name) == `"resultType"`, string(name) == `"task"`:
			ok = true // one without content: it asks for input, or names a task
		}
		out = append(append(append(append(out, name...), ':'), value...), ',')
	}
	return append(append(append(out, `"_meta":`...), meta...), '}'), ok
}

// mark adds the member that says so to _meta. One that the server made up goes.
func mark(meta jsontext.Value) jsontext.Value {
	in := jsontext.NewDecoder(bytes.NewReader(meta))
	_, _ = in.ReadToken()
	out := []byte("{")
	for in.PeekKind() == '"' {
		name, _ := in.ReadValue()
		name = bytes.Clone(name)
		value, err := in.ReadValue()
		if err != nil {
			break
		}
		if string(name) != `"`+MetaReplayed+`"` {
			out = append(append(append(append(out, name...), ':'), value...), ',')
		}
	}
	return append(append(out, `"`+MetaReplayed+`":true`...), '}')
}

// extended adds an element to an array.
func extended(array jsontext.Value, element string) jsontext.Value {
	inside := bytes.TrimSpace(array[1 : len(array)-1])
	out := append([]byte{'['}, inside...)
	if len(inside) > 0 {
		out = append(out, ',')
	}
	return append(append(out, element...), ']')
}

// answerFrame makes the message that answers a request with a result.
func answerFrame(id jsontext.Value, result []byte) []byte {
	out := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	return append(append(append(out, `,"result":`...), result...), '}')
}

// errorFrame makes the message that refuses one. Its id is null if the refused one had none that could be read.
func errorFrame(e *rpcError) []byte {
	id := e.id
	if id == nil {
		id = jsontext.Value("null")
	}
	out := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	out = strconv.AppendInt(append(out, `,"error":{"code":`...), int64(e.code), 10)
	out = append(out, `,"message":`...)
	out, err := jsontext.AppendQuote(out, "counterfoil: "+e.text)
	if err != nil { // the texts are valid UTF-8
		return nil
	}
	if e.data != nil {
		out = append(append(out, `,"data":`...), e.data...)
	}
	return append(out, "}}"...)
}
