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

// tokens are counts of tokens.
type tokens struct{ input, output, total count }

// count is a count of tokens. Streams tell it several times, counting up: the largest is what counts. Where one of them is no
// count, none is told.
type count struct {
	n            uint64
	told, broken bool
}

func (c *count) value() (uint64, bool) { return c.n, c.told && !c.broken }

func (c *count) raise(n uint64) { c.n, c.told = max(c.n, n), true }

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
		return t.input.value()
	case Output:
		return t.output.value()
	case Total, "":
	}
	// What is larger counts: the two parts, or the sum that is told.
	said, known := t.total.value()
	input, ok1 := t.input.value()
	output, ok2 := t.output.value()
	if !ok1 || !ok2 {
		return said, known
	}
	sum, fits := total(input, output)
	return max(sum, said), fits
}

// update takes over what an object of usage tells.
func (t *tokens) update(form Usage, usage any) {
	switch form {
	case OpenAI:
		t.input.take(usage, "/prompt_tokens", "/input_tokens")
		t.output.take(usage, "/completion_tokens", "/output_tokens")
		t.total.take(usage, "/total_tokens")
	case Anthropic:
		t.output.take(usage, "/output_tokens")
		var fresh, written, read count
		fresh.take(usage, "/input_tokens")
		written.take(usage, "/cache_creation_input_tokens")
		read.take(usage, "/cache_read_input_tokens")
		sum, fits := total(fresh.n, written.n, read.n)
		if fresh.told {
			t.input.raise(sum)
		}
		t.input.broken = t.input.broken || fresh.broken || written.broken || read.broken || !fits
	}
}

// take reads the first of some members that is there.
func (c *count) take(usage any, pointers ...string) {
	for _, pointer := range pointers {
		value, there := at(usage, pointer)
		if !there || value == nil {
			continue
		}
		n, ok := integer(usage, pointer)
		if c.broken = c.broken || !ok; ok {
			c.raise(n)
		}
		return
	}
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
