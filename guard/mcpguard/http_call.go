package mcpguard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// Bounds of a call over HTTP.
const (
	clientPatience = 10 * time.Second // for a client to take an event; a slower one hears no more
	resumePause    = time.Second      // before a stream is resumed, if the server says nothing else
	maxResumePause = time.Minute
)

// clientSide is the answer to a client, which may have left.
type clientSide struct {
	w      http.ResponseWriter
	header http.Header // of the server's answer
	status int
	begun  bool
	gone   bool
}

// begin sends the head of the answer.
func (c *clientSide) begin() {
	if c.begun {
		return
	}
	c.begun = true
	h := c.w.Header()
	for name, values := range endToEnd(c.header) {
		if name != "Content-Length" {
			h[name] = values
		}
	}
	c.w.WriteHeader(c.status)
	_ = http.NewResponseController(c.w).Flush()
}

// emit sends some bytes at once. It reports whether the client still takes any.
func (c *clientSide) emit(raw []byte) bool {
	if c.gone {
		return false
	}
	c.begin()
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(clock.System{}.Now().Add(clientPatience))
	_, err := c.w.Write(raw)
	if err == nil {
		err = control.Flush()
	}
	_ = control.SetWriteDeadline(time.Time{})
	c.gone = err != nil
	return !c.gone
}

func (c *clientSide) copy(body io.Reader) {
	c.begin()
	_, _ = io.Copy(c.w, body)
}

// httpCall is a guarded call over HTTP.
type httpCall struct {
	*Proxy
	request *http.Request
	frame   *frame
	asked   *toolCall
	session *sessionCall
	out     *clientSide
	stream  bool // the server answers by events
}

// toolCall makes a guarded call.
func (p *Proxy) toolCall(w http.ResponseWriter, r *http.Request, f *frame, c *toolCall) {
	session, ok := p.enter(sessionKey(r.Header, f.id))
	if !ok {
		p.refuse(w, r, http.StatusOK, &rpcError{code: codeInvalidRequest, text: "the id is in use for another call", id: f.id})
		return
	}
	h := &httpCall{Proxy: p, request: r, frame: f, asked: c, session: session, out: &clientSide{w: w}}
	v := func() *verdict {
		defer p.leave(session) // after a panic too
		return p.guard.serve(r.Context(), c, h)
	}()
	h.give(v)
}

// give answers the client.
func (h *httpCall) give(v *verdict) {
	switch message := v.frame(h.frame.id, h.asked.task); {
	case v.given != nil && h.stream:
		h.out.emit(message) // an event as it came
	case v.given != nil:
		h.out.header.Set("Content-Length", strconv.Itoa(len(message)))
		h.out.begin()
		inTime(h.out.w, message)
	case h.out.begun:
		h.out.emit(eventOf(message))
	default:
		h.write(h.out.w, h.request, http.StatusOK, message)
	}
}

// call sends the call to the server, and reads until its answer. Progress and requests of the server reach the client as
// they come.
func (h *httpCall) call(ctx context.Context, by time.Time) (*answer, error) {
	if !now().Before(by) {
		return nil, errNotSent
	}
	if h.session.givenUp() {
		return nil, errors.Join(errNotSent, errCancelled)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.session.stop, cancel)()
	a, err := h.send(ctx)
	if delivered := h.session.taken(); delivered != nil && (a == nil || err != nil) {
		h.stream = true
		if h.out.header == nil { // the server's own answer never began
			h.out.header, h.out.status = http.Header{"Content-Type": {"text/event-stream"}}, http.StatusOK
		}
		return delivered, nil
	}
	if cause := context.Cause(h.session.stop); err != nil && cause != nil && !errors.Is(err, errNotSent) {
		return nil, cause
	}
	return a, err
}

func (h *httpCall) send(ctx context.Context) (*answer, error) {
	resp, err := h.transport.RoundTrip(h.outgoing(ctx, h.request, h.frame.raw))
	if httpguard.Unconnected(err) {
		return nil, errors.Join(errNotSent, err)
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	h.out.header, h.out.status = resp.Header, resp.StatusCode
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return h.refusedBy(resp)
	case resp.Header.Get("Content-Encoding") != "":
		return nil, errAnswer // nobody asked for it
	case !isStream(resp.Header):
		return h.whole(resp)
	}
	h.stream = true
	h.out.begin()
	return h.events(ctx, resp.Body)
}

// refusedBy is an answer with a status that is no success.
func (h *httpCall) refusedBy(resp *http.Response) (*answer, error) {
	body, err := h.read(resp.Body)
	if err != nil {
		return nil, err
	}
	a := &answer{raw: body, failed: true, status: resp.StatusCode}
	if said, id, ok, err := decodeAnswer(body); ok && err == nil && said.failed && (id == "null" || id == idKey(h.frame.id)) {
		a.code = said.code
	}
	return a, nil
}

// whole is an answer by one message.
func (h *httpCall) whole(resp *http.Response) (*answer, error) {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, errAnswer
	}
	body, err := h.read(resp.Body)
	if err != nil {
		return nil, err
	}
	a, id, ok, err := decodeAnswer(body)
	if err != nil || !ok || id != idKey(h.frame.id) {
		return nil, errAnswer
	}
	return a, nil
}

func (h *httpCall) read(body io.Reader) ([]byte, error) {
	limit := int64(h.guard.options.MaxFrame)
	raw, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(raw)) > limit {
		return nil, errLong
	}
	return raw, err
}

// events reads a stream until the answer. A stream that ends before is resumed, if the server gave it an id: it may have
// closed the connection only to save it.
func (h *httpCall) events(ctx context.Context, body io.ReadCloser) (*answer, error) {
	defer func() { body.Close() }()
	last, pause := "", resumePause
	for {
		in := readEvents(body, h.guard.options.MaxFrame)
		for {
			ev, err := in.next()
			if err != nil {
				if last == "" || ctx.Err() != nil || errors.Is(err, errEventLong) {
					return nil, errors.Join(io.ErrUnexpectedEOF, err)
				}
				break
			}
			if a, err := h.answerIn(ev); a != nil || err != nil {
				return a, err
			}
			h.out.emit(ev.raw)
			take(&ev.id, last)
			last = ev.id
			if ev.retry > 0 {
				pause = min(ev.retry, maxResumePause)
			}
		}
		next, err := h.resume(ctx, last, pause)
		if err != nil {
			return nil, err
		}
		body.Close()
		body = next
	}
}

// answerIn finds the call's answer in an event, nil if it is another one.
func (h *httpCall) answerIn(ev *event) (*answer, error) {
	for _, data := range ev.data {
		a, id, ok, err := decodeAnswer(data)
		if !ok || id != idKey(h.frame.id) {
			continue
		}
		if err != nil || len(ev.data) > 1 {
			return nil, errAnswer
		}
		a.raw = ev.raw
		return a, nil
	}
	return nil, nil
}

// resume asks for what comes after an event.
func (h *httpCall) resume(ctx context.Context, last string, pause time.Duration) (io.ReadCloser, error) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
	}
	r := h.outgoing(ctx, h.request, nil)
	r.Method = http.MethodGet
	r.Header.Set(headerLast, last)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Del("Content-Type")
	dropStandard(r.Header)
	resp, err := h.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || !isStream(resp.Header) {
		resp.Body.Close()
		return nil, errors.New("mcpguard: the server does not resume the stream of a call")
	}
	return resp.Body, nil
}

// dropStandard takes the headers away that say what the body of the call says.
func dropStandard(h http.Header) {
	for name := range h {
		if name == headerMethod || name == headerName || strings.HasPrefix(name, headerParam) {
			delete(h, name)
		}
	}
}

// schema asks the server for its tools.
func (h *httpCall) schema(ctx context.Context, tool string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	return findSchema(ctx, tool, h.page)
}

// page is the guard's own request, with the client's credentials.
func (h *httpCall) page(ctx context.Context, cursor string) ([]byte, error) {
	const id = `"counterfoil-list"`
	r := h.outgoing(ctx, h.request, h.asked.listFrame(id, cursor))
	_, standard := r.Header[headerMethod]
	dropStandard(r.Header)
	if standard {
		r.Header.Set(headerMethod, methodList)
	}
	resp, err := h.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errList
	}
	if !isStream(resp.Header) {
		body, err := h.read(resp.Body)
		if err != nil {
			return nil, err
		}
		return listIn(body, id)
	}
	for in := readEvents(resp.Body, h.guard.options.MaxFrame); ; {
		ev, err := in.next()
		if err != nil {
			return nil, errList
		}
		for _, data := range ev.data {
			if result, err := listIn(data, id); err == nil {
				return result, nil
			}
		}
	}
}

// listIn gives the result of the guard's own request out of its answer.
func listIn(message []byte, id string) ([]byte, error) {
	a, of, ok, err := decodeAnswer(bytes.TrimSpace(message))
	if err != nil || !ok || a.failed || of != idKey(jsontext.Value(id)) {
		return nil, errList
	}
	return a.result, nil
}
