package mcpguard

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// errLong: a line has more bytes than are taken. The rest of it has been skipped.
var errLong = errors.New("mcpguard: a message has more bytes than are taken")

// lines reads messages that each end with a newline.
type lines struct {
	from *bufio.Reader
	max  int
}

func readLines(from io.Reader, maxBytes int) *lines {
	return &lines{from: bufio.NewReaderSize(from, 64<<10), max: maxBytes}
}

// next gives the next line that is not blank, without its end. A line that the stream's end cuts off is no message.
func (l *lines) next() ([]byte, error) {
	for {
		line, err := l.line()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
	}
}

func (l *lines) line() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := l.from.ReadSlice('\n')
		if long = long || len(line)+len(part) > l.max+2; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		case long:
			return nil, errLong
		default:
			return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
		}
	}
}
