package mcpguard

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestFramesWithTwoReadingsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		frame string
		code  int
	}{
		"not JSON":                           {`{`, codeParse},
		"trailing data":                      {`{"jsonrpc":"2.0","id":1,"method":"ping"}{}`, codeParse},
		"duplicate member":                   {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, codeParse},
		"duplicate member, escaped":          {`{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"tools/call"}`, codeParse},
		"duplicate member deep inside":       {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[{"b":1,"b":2}]}}`, codeParse},
		"lone surrogate":                     {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\ud800"}}`, codeParse},
		"invalid UTF-8":                      {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\xff\"}}", codeParse},
		"byte order mark":                    {"\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, codeParse},
		"too deep":                           {`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, codeParse},
		"carriage return between members":    {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"x\":\r{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\"}\r}}", codeParse},
		"too large":                          {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"` + strings.Repeat("x", 2000) + `"}}`, codeInvalidRequest},
		"a string":                           {`"ping"`, codeParse},
		"member in other letter case":        {`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, codeInvalidRequest},
		"member in another alphabet":         {`{"jſonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}`, codeInvalidRequest},
		"no version":                         {`{"id":1,"method":"ping"}`, codeInvalidRequest},
		"another version":                    {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, codeInvalidRequest},
		"null as id":                         {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, codeInvalidRequest},
		"object as id":                       {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, codeInvalidRequest},
		"fraction as id":                     {`{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, codeInvalidRequest},
		"exponent as id":                     {`{"jsonrpc":"2.0","id":1e0,"method":"ping"}`, codeInvalidRequest},
		"minus zero as id":                   {`{"jsonrpc":"2.0","id":-0,"method":"ping"}`, codeInvalidRequest},
		"integer that doubles cannot tell":   {`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, codeInvalidRequest},
		"empty id":                           {`{"jsonrpc":"2.0","id":"","method":"ping"}`, codeInvalidRequest},
		"method that is no string":           {`{"jsonrpc":"2.0","id":1,"method":1}`, codeInvalidRequest},
		"method and result":                  {`{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, codeInvalidRequest},
		"result and error":                   {`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, codeInvalidRequest},
		"neither method nor answer":          {`{"jsonrpc":"2.0","id":1}`, codeInvalidRequest},
		"answer without id":                  {`{"jsonrpc":"2.0","result":{}}`, codeInvalidRequest},
		"empty batch":                        {`[]`, codeInvalidRequest},
		"batch with something else in it":    {`[1]`, codeParse},
		"batch with a duplicate member":      {`[{"jsonrpc":"2.0","id":1,"method":"ping","id":2}]`, codeParse},
		"batch of more than are taken":       {`[` + strings.Repeat(`1,`, MaxBatch) + `1]`, codeInvalidRequest},
		"space that is none, before a batch": {"\v[]", codeParse},
	} {
		frames, _, refused := decodeFrames([]byte(c.frame), 1500)
		if refused == nil || refused.code != c.code {
			t.Errorf("%s: got %v, %v, want code %d", name, frames, refused, c.code)
		}
	}
}

func TestFramesThatAreTaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		frame, method, id string
	}{
		"request":                {`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "ping", "1"},
		"id that is a string":    {` {"method":"ping","id":"\u0061","jsonrpc":"2.0"} `, "ping", `"a"`},
		"negative id":            {`{"jsonrpc":"2.0","id":-7,"method":"ping"}`, "ping", "-7"},
		"notification":           {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "notifications/initialized", ""},
		"answer":                 {`{"jsonrpc":"2.0","id":0,"result":{}}`, "", "0"},
		"error":                  {`{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"x"}}`, "", "0"},
		"numbers of any size":    {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"n":123456789012345678901234567890,"e":1e400}}`, "ping", "1"},
		"members nobody knows":   {`{"jsonrpc":"2.0","id":1,"method":"ping","trace":{}}`, "ping", "1"},
		"windows line end":       {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r", "ping", "1"},
		"null among parameters":  {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":null}}`, "ping", "1"},
		"separators in a string": {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\u2028\u0085\"}}", "ping", "1"},
	} {
		frames, batch, refused := decodeFrames([]byte(c.frame), 1500)
		if refused != nil || batch || len(frames) != 1 || frames[0].method != c.method || string(frames[0].raw) != c.frame {
			t.Errorf("%s: got %+v, %v", name, frames, refused)
			continue
		}
		if id := frames[0].id; id == nil != (c.id == "") || id != nil && idKey(id) != c.id {
			t.Errorf("%s: the id is %s, want %s", name, id, c.id)
		}
	}
}

func TestMethodsThatMightHaveEffectsAreRefused(t *testing.T) {
	t.Parallel()
	for frame, code := range map[string]int{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`:             0,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/result"}`:           0,
		`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`:        0,
		`{"jsonrpc":"2.0","method":"notifications/anything"}`:        0,
		`{"jsonrpc":"2.0","id":1,"method":"notifications/x"}`:        codeNoMethod,
		`{"jsonrpc":"2.0","id":1,"method":"tools/run"}`:              codeNoMethod,
		`{"jsonrpc":"2.0","id":1,"method":"Tools/Call"}`:             codeNoMethod,
		`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}`: codeNoMethod,
		`{"jsonrpc":"2.0","method":"tools/call"}`:                    codeInvalidRequest,
		`{"jsonrpc":"2.0","method":"ping"}`:                          codeInvalidRequest,
	} {
		frames, _, refused := decodeFrames([]byte(frame), 1500)
		if refused != nil {
			t.Fatal(refused)
		}
		refused = checkMethod(frames[0])
		if got := refused; code == 0 && got != nil || code != 0 && (got == nil || got.code != code) {
			t.Errorf("%s: got %v, want %d", frame, got, code)
		}
	}
}

func TestCallsWithTwoReadingsAreRefused(t *testing.T) {
	t.Parallel()
	for name, params := range map[string]string{
		"none":                         ``,
		"no object":                    `[]`,
		"no name":                      `{"arguments":{}}`,
		"empty name":                   `{"name":""}`,
		"name that is no string":       `{"name":1}`,
		"name in other letter case":    `{"name":"look","Name":"pay"}`,
		"arguments that are null":      `{"name":"pay","arguments":null}`,
		"arguments that are a list":    `{"name":"pay","arguments":[]}`,
		"arguments beyond a double":    `{"name":"pay","arguments":{"n":9007199254740993}}`,
		"_meta that is no object":      `{"name":"pay","_meta":"x"}`,
		"task that is null":            `{"name":"pay","task":null}`,
		"state that is no string":      `{"name":"pay","requestState":{}}`,
		"responses that are a list":    `{"name":"pay","inputResponses":[]}`,
		"member nobody knows":          `{"name":"pay","dryRun":false}`,
		"_meta in other letter case":   `{"name":"pay","_META":{}}`,
		"arguments in a Kelvin's case": "{\"name\":\"pay\",\"taſk\":{}}",
	} {
		if c, refused := decodeCall([]byte(params)); refused == nil || refused.code != codeInvalidParams {
			t.Errorf("%s: got %+v, %v", name, c, refused)
		}
	}
}

func TestReplayKeepsTheBytesOfWhatWasRecorded(t *testing.T) {
	t.Parallel()
	const text = replayedText
	for name, c := range map[string]struct{ recorded, want string }{
		"result":        {`{"content":[{"type":"text","text":"a\u0062"}],"structuredContent":{"n":1.50}}`, `{"content":[{"type":"text","text":"a\u0062"},` + text + `],"structuredContent":{"n":1.50},"_meta":{"io.counterfoil/replayed":true}}`},
		"with _meta":    {`{"_meta":{"a":1,"io.counterfoil/replayed":false},"content":[]}`, `{"content":[` + text + `],"_meta":{"a":1,"io.counterfoil/replayed":true}}`},
		"asks for more": {`{"resultType":"input_required","requestState":"s"}`, `{"resultType":"input_required","requestState":"s","_meta":{"io.counterfoil/replayed":true}}`},
		"a task":        {`{"task":{"taskId":"t"}}`, `{"task":{"taskId":"t"},"_meta":{"io.counterfoil/replayed":true}}`},
		"an operator's": {`{"paid":true}`, `{"content":[{"type":"text","text":"{\"paid\":true}"},` + text + `],"_meta":{"io.counterfoil/replayed":true},"resultType":"complete"}`},
		"no JSON":       {`paid`, `{"content":[{"type":"text","text":"paid"},` + text + `],"_meta":{"io.counterfoil/replayed":true},"resultType":"complete"}`},
		"nothing":       {``, `{"content":[` + text + `],"_meta":{"io.counterfoil/replayed":true},"resultType":"complete"}`},
	} {
		if got := string(replayed([]byte(c.recorded))); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// FuzzFrame holds what is taken against another reader: it must find the same method, id and tool.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"a":1}}}`,
		`{"jsonrpc":"2.0","id":"x","method":"ping","Method":"tools/call"}`, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "{\r}",
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _, _, _ = decodeAnswer(raw)
		frames, _, refused := decodeFrames(raw, 1<<16)
		if refused != nil {
			if !json.Valid(errorFrame(refused)) {
				t.Fatalf("the refusal is no JSON: %s", errorFrame(refused))
			}
			return
		}
		for _, one := range frames {
			// A reader that folds letter case, and takes the last of several members.
			var lax struct {
				Method string          `json:"method"`
				ID     json.RawMessage `json:"id"`
				Params json.RawMessage `json:"params"`
			}
			if err := json.Unmarshal(one.raw, &lax); err != nil || lax.Method != one.method || !bytes.Equal(bytes.TrimSpace(lax.ID), bytes.TrimSpace(one.id)) {
				t.Fatalf("%s: another reader finds %+v: %v", one.raw, lax, err)
			}
			if one.method != methodCall {
				continue
			}
			c, refused := decodeCall(one.params)
			if refused != nil {
				continue
			}
			var call struct {
				Name      string         `json:"name"`
				Arguments map[string]any `json:"arguments"`
			}
			if err := json.Unmarshal(lax.Params, &call); err != nil || call.Name != c.tool {
				t.Fatalf("%s: another reader finds %+v: %v", one.raw, call, err)
			}
		}
	})
}

// FuzzReplay: whatever was recorded, its replay is JSON, and marked.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"content":[],"_meta":{}}`))
	f.Add([]byte(`{"task":{}}`))
	f.Add([]byte(`x`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got struct {
			Meta map[string]any `json:"_meta"`
		}
		if out := replayed(raw); json.Unmarshal(out, &got) != nil || got.Meta[MetaReplayed] != true {
			t.Fatalf("%q becomes %s", raw, out)
		}
	})
}

// FuzzEvents: however a stream of events is cut, what is read is what was sent.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: {}\n\n: x\r\n\r\ndata: a\ndata: b\n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var all []byte
		for in := readEvents(bytes.NewReader(raw), 1<<16); ; {
			ev, err := in.next()
			if err != nil {
				break
			}
			all = append(all, ev.raw...)
		}
		if !bytes.HasPrefix(raw, all) {
			t.Fatalf("%q becomes %q", raw, all)
		}
	})
}
