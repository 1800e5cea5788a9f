package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/counterfoil/counterfoil/operation"
)

// keepOutput is how many bytes of each of a command's two outputs a receipt keeps.
const keepOutput = 1 << 20

// keepInStore is how large a receipt that keeps both may become in a store that this program opens itself.
const keepInStore = 2*keepOutput + 64<<10

// keepTogether is how many bytes it keeps of both with a server, whose limit for a receipt is 1 MiB unless it says
// otherwise.
const keepTogether = keepOutput - 4<<10

// output is one output of a command: it goes on to where the program writes, and its beginning is kept.
type output struct {
	name string
	to   io.Writer

	mu      sync.Mutex
	kept    []byte
	dropped int64
}

// Write keeps what fits and passes everything on.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	n := min(len(p), keepOutput-len(o.kept))
	o.kept = append(o.kept, p[:n]...)
	o.dropped += int64(len(p) - n)
	o.mu.Unlock()
	return o.to.Write(p)
}

// cut keeps at most that many bytes.
func (o *output) cut(most int) {
	if len(o.kept) > most {
		o.dropped += int64(len(o.kept) - most)
		o.kept = o.kept[:most]
	}
}

// The form of a run's receipt: the body is both outputs, one after the other, and headers say how long each is.
const (
	runType       = "application/vnd.counterfoil.run"
	stdoutLength  = "Stdout-Length"
	stderrLength  = "Stderr-Length"
	stdoutDropped = "Stdout-Dropped"
	stderrDropped = "Stderr-Dropped"
)

// receiptOf is the receipt of a command that has ended.
func receiptOf(code int, out, errs *output) operation.Receipt {
	r := operation.Receipt{Status: code, ContentType: runType, Headers: map[string][]string{}}
	for _, part := range []struct {
		length, dropped string
		o               *output
	}{{stdoutLength, stdoutDropped, out}, {stderrLength, stderrDropped, errs}} {
		r.Headers[part.length] = []string{strconv.Itoa(len(part.o.kept))}
		if part.o.dropped > 0 {
			r.Headers[part.dropped] = []string{strconv.FormatInt(part.o.dropped, 10)}
		}
		r.Body = append(r.Body, part.o.kept...)
	}
	return r
}

// outputOf reads the receipt of a run.
func outputOf(r *operation.Receipt) (out, errs *output, err error) {
	if r.ContentType != runType {
		return nil, nil, errors.New("its receipt is of another form")
	}
	number := func(name string, optional bool) int64 {
		values := r.Headers[name]
		if len(values) == 0 && optional {
			return 0
		}
		n := int64(-1)
		if len(values) == 1 {
			if got, e := strconv.ParseInt(values[0], 10, 64); e == nil && got >= 0 {
				n = got
			}
		}
		if n < 0 {
			err = fmt.Errorf("its receipt has no sound %s", name)
		}
		return n
	}
	first, second := number(stdoutLength, false), number(stderrLength, false)
	out, errs = &output{name: "stdout", dropped: number(stdoutDropped, true)}, &output{name: "stderr", dropped: number(stderrDropped, true)}
	if err == nil && (first > int64(len(r.Body)) || second != int64(len(r.Body))-first) {
		err = errors.New("its receipt is not as long as it says")
	}
	if err != nil {
		return nil, nil, err
	}
	out.kept, errs.kept = r.Body[:first], r.Body[first:]
	return out, errs, nil
}
