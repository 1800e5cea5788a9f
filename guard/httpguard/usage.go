package httpguard

import (
	"bytes"
	"iter"
)

// figures are what an answer tells about its cost.
type figures struct {
	doc    any // the answer, if it is a JSON document
	tokens tokens
}

// tokens are counts of tokens; a nil one is not told.
type tokens struct{ input, output, total *uint64 }

// figuresOf reads an answer. What is not strict JSON, or is encoded, tells nothing.
func figuresOf(form Usage, a *answer) figures {
	if len(a.sent["Content-Encoding"]) > 0 {
		return figures{}
	}
	if essence(a.sent["Content-Type"]) == eventStream {
		return figures{tokens: streamed(form, a.body)}
	}
	doc, err := decode(a.body)
	if err != nil {
		return figures{}
	}
	f := figures{doc: doc}
	if usage, ok := at(doc, "/usage"); ok {
		f.tokens.update(form, usage)
	}
	return f
}

// figure is that of a meter.
func (f *figures) figure(m *Meter) (uint64, bool) {
	if m.Response != "" {
		return integer(f.doc, m.Response)
	}
	t := &f.tokens
	switch m.Count {
	case Input:
		return told(t.input)
	case Output:
		return told(t.output)
	case Total, "":
	}
	// What is larger counts: the two parts, or the sum that is told.
	said, known := told(t.total)
	if t.input == nil || t.output == nil {
		return said, known
	}
	sum, fits := total(*t.input, *t.output)
	return max(sum, said), fits
}

func told(n *uint64) (uint64, bool) {
	if n == nil {
		return 0, false
	}
	return *n, true
}

// update takes over what an object of usage tells.
func (t *tokens) update(form Usage, usage any) {
	take := func(into **uint64, pointers ...string) {
		for _, pointer := range pointers {
			if n, ok := integer(usage, pointer); ok {
				*into = &n
				return
			}
		}
	}
	switch form {
	case OpenAI:
		take(&t.input, "/prompt_tokens", "/input_tokens")
		take(&t.output, "/completion_tokens", "/output_tokens")
		take(&t.total, "/total_tokens")
	case Anthropic:
		take(&t.output, "/output_tokens")
		var fresh, written, read *uint64
		take(&fresh, "/input_tokens")
		take(&written, "/cache_creation_input_tokens")
		take(&read, "/cache_read_input_tokens")
		if fresh == nil {
			return
		}
		if sum, ok := total(*fresh, orNone(written), orNone(read)); ok {
			t.input = &sum
		}
	}
}

func orNone(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}

const eventStream = "text/event-stream"

// streamed reads the usage that a stream of events tells. Counts of OpenAI come in the last chunk of a completion, or with
// the event that ends a response; those of Anthropic begin in message_start and are final in message_delta.
func streamed(form Usage, body []byte) (t tokens) {
	final := false
	for data := range events(body) {
		if !bytes.Contains(data, []byte(`"usage"`)) {
			continue
		}
		doc, err := decode(data)
		if err != nil {
			return tokens{}
		}
		for _, pointer := range []string{"/usage", "/response/usage", "/message/usage"} {
			if usage, ok := at(doc, pointer); ok && usage != nil {
				t.update(form, usage)
				final = final || pointer != "/message/usage"
			}
		}
	}
	if !final {
		return tokens{} // it ended before the counts were final
	}
	return t
}

// events gives the data of each event of a stream (HTML, 9.2).
func events(body []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
		body = bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
		var data [][]byte
		for line := range bytes.Lines(body) {
			line, ended := bytes.CutSuffix(line, []byte("\n"))
			value, ok := bytes.CutPrefix(line, []byte("data:"))
			switch {
			case !ended:
				return // an event that is not complete does not count
			case ok:
				data = append(data, bytes.TrimPrefix(value, []byte(" ")))
			case len(line) == 0 && data != nil:
				if !yield(bytes.Join(data, []byte("\n"))) {
					return
				}
				data = nil
			}
		}
	}
}
