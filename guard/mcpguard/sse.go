package mcpguard

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// event is a piece of a stream of events (WHATWG HTML 9.2), as it came.
type event struct {
	raw   []byte   // with the blank line at its end
	data  [][]byte // one for each event in it; one, but for servers that end lines in other ways
	id    string   // the last id in it, "" for none
	retry time.Duration
}

// events reads a stream of events.
type events struct {
	from *bufio.Reader
	max  int
}

func readEvents(from io.Reader, maxBytes int) *events {
	return &events{from: bufio.NewReaderSize(from, 16<<10), max: maxBytes}
}

var errEventLong = errors.New("mcpguard: an event has more bytes than are taken")

// next gives the next event. One that the stream's end cuts off is none.
func (e *events) next() (*event, error) {
	var raw []byte
	for start := 0; ; {
		part, err := e.from.ReadSlice('\n')
		if len(raw)+len(part) > e.max {
			return nil, errEventLong
		}
		raw = append(raw, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		blank := len(bytes.TrimRight(raw[start:], "\r\n")) == 0
		start = len(raw)
		if blank {
			return parseEvent(raw), nil
		}
	}
}

func parseEvent(raw []byte) *event {
	ev := &event{raw: raw}
	text := bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	var data []byte
	some := false
	for line := range bytes.SplitSeq(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\n")) {
		if len(line) == 0 {
			if some {
				ev.data = append(ev.data, data)
			}
			data, some = nil, false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if some {
				data = append(data, '\n')
			}
			data, some = append(data, value...), true
		case "id":
			ev.id = string(value)
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				ev.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return ev
}

// eventOf makes an event of a message.
func eventOf(message []byte) []byte {
	return append(append([]byte("event: message\ndata: "), message...), "\n\n"...)
}
