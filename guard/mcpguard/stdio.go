package mcpguard

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Streams are the two sides of a proxy over stdin and stdout: messages that each end with a newline.
type Streams struct {
	FromClient io.Reader
	ToClient   io.Writer
	FromServer io.Reader
	ToServer   io.WriteCloser
	// Drain is how long calls in progress may go on once the client has closed its side, before that of the server is
	// closed. 0: until they are over, which Policy.Timeout bounds.
	Drain time.Duration
}

// Bounds of a proxy over stdin and stdout.
const (
	maxPending   = 4096             // requests of the client that are not answered
	maxAbandoned = 4096             // requests that nobody waits for any more, whose answers may still come
	cancelGrace  = 10 * time.Second // for the answer to a call that was cancelled
)

var (
	errServerGone = errors.New("mcpguard: the server has closed its side")
	errCancelled  = errors.New("mcpguard: the call was cancelled, and the server did not answer it")
)

// pump passes messages between one client and one server.
type pump struct {
	guard   *Guard
	streams Streams
	calls   sync.WaitGroup
	turn    chan struct{} // whose turn it is to write to the server
	gone    chan struct{} // closed when the server has closed its side

	out sync.Mutex // of ToClient

	mu        sync.Mutex
	pending   map[string]*pending // requests to the server, by id
	abandoned []string            // ids of those that nobody waits for, the oldest first
	listed    int                 // own requests so far
}

// pending is a request that the server has not answered.
type pending struct {
	id        jsontext.Value
	answer    chan *answer  // of a guarded call, or of an own request: gets the answer, nil if it cannot be read; else nil
	cancelled chan struct{} // of a guarded call: closed when its client cancels it
	sent      bool          // of a guarded call: the server has it
	answered  bool          // of a guarded call: the server has answered; no other answer counts
	abandoned bool
}

// Pipe stands between a client and a server that speak over stdin and stdout, until the server has closed its side and
// every message is passed on. It returns nil then, or else why it had to stop earlier.
func (g *Guard) Pipe(ctx context.Context, s Streams) error {
	p := &pump{
		guard: g, streams: s, turn: make(chan struct{}, 1), gone: make(chan struct{}), pending: map[string]*pending{},
	}
	go p.fromClient(ctx)
	err := p.fromServer()
	close(p.gone)
	p.calls.Wait() // each is answered: what the server did not answer has an unknown outcome
	p.bury()
	return err
}

// fromClient passes on what the client sends. It may outlive the pump: a read from stdin cannot be interrupted.
func (p *pump) fromClient(ctx context.Context) {
	in := readLines(p.streams.FromClient, p.guard.options.MaxFrame)
	for {
		raw, err := in.next()
		if errors.Is(err, errLong) {
			p.refuse(refuseFrame(codeInvalidRequest, "the message has more bytes than are taken"))
			continue
		}
		if err != nil {
			break
		}
		p.judge(ctx, raw)
	}
	p.drain()
	_ = p.streams.ToServer.Close()
}

// drain waits for the calls in progress.
func (p *pump) drain() {
	done := make(chan struct{})
	go func() { p.calls.Wait(); close(done) }()
	var late <-chan time.Time
	if p.streams.Drain > 0 {
		timer := time.NewTimer(p.streams.Drain)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-done:
	case <-late:
	case <-p.gone:
	}
}

// judge looks at a message of the client once, and passes on the same bytes or refuses it.
func (p *pump) judge(ctx context.Context, raw []byte) {
	frames, batch, refused := decodeFrames(raw, p.guard.options.MaxFrame)
	if refused != nil {
		p.refuse(refused)
		return
	}
	if batch {
		p.batch(ctx, raw, frames)
		return
	}
	f := frames[0]
	if refused := checkMethod(f); refused != nil {
		p.refuse(refused)
		return
	}
	switch {
	case f.method == methodCancelled:
		p.cancel(ctx, f)
	case !f.request():
		p.forward(ctx, raw)
	case f.method == methodCall:
		p.toolCall(ctx, f)
	default:
		if p.register(&pending{id: f.id}) {
			p.forward(ctx, raw)
		}
	}
}

// batch passes on a batch without guarded calls.
func (p *pump) batch(ctx context.Context, raw []byte, frames []*frame) {
	refused := p.guard.checkBatch(frames)
	if refused == nil {
		refused = p.registerAll(frames)
	}
	if refused == nil {
		p.forward(ctx, raw)
		return
	}
	for _, f := range frames {
		if f.request() {
			p.refuse(&rpcError{code: refused.code, text: refused.text, id: f.id})
		}
	}
}

// checkBatch refuses a batch with anything that must be judged alone.
func (g *Guard) checkBatch(frames []*frame) *rpcError {
	for _, f := range frames {
		if refused := checkMethod(f); refused != nil {
			return refused
		}
		if f.method == methodCancelled {
			return refuseFrame(codeInvalidRequest, "a batch with a cancellation is not taken: send it alone")
		}
		if f.method != methodCall {
			continue
		}
		c, refused := decodeCall(f.params)
		if refused != nil {
			return refused
		}
		if !g.policyOf(c.tool).ReadOnly {
			return refuseFrame(codeInvalidRequest, "a batch with guarded calls is not taken: send them one by one")
		}
	}
	return nil
}

func (p *pump) toolCall(ctx context.Context, f *frame) {
	c, refused := decodeCall(f.params)
	if refused != nil {
		refused.id = f.id
		p.refuse(refused)
		return
	}
	if p.guard.policyOf(c.tool).ReadOnly {
		if p.register(&pending{id: f.id}) {
			p.forward(ctx, f.raw)
		}
		return
	}
	entry := &pending{id: f.id, answer: make(chan *answer, 1), cancelled: make(chan struct{})}
	if !p.register(entry) {
		return
	}
	p.calls.Add(1)
	go func() {
		defer p.calls.Done()
		ctx, cancel := p.patience(ctx, entry)
		defer cancel()
		// Over stdin and stdout nothing but the configuration says who calls.
		if err := p.guard.identify(c, nil); err != nil {
			p.abandon(entry)
			p.refuse(&rpcError{code: codeInternal, text: err.Error(), id: f.id})
			return
		}
		v := p.guard.serve(ctx, c, &pipeCall{p, f, c, entry})
		p.abandon(entry)
		select {
		case <-entry.cancelled: // its client wants no answer
		default:
			p.toClient(v.frame(f.id, c.task))
		}
	}()
}

// patience ends when the client cancels the call, or the server is gone: then it is no use to wait for another call.
func (p *pump) patience(ctx context.Context, entry *pending) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-entry.cancelled:
		case <-p.gone:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// frame is the message that answers a guarded call. Who asks for a task cannot read a result without one.
func (v *verdict) frame(id jsontext.Value, task bool) []byte {
	switch {
	case v.given != nil:
		return v.given.raw
	case v.replay != nil:
		return answerFrame(id, v.replay)
	case task:
		data, _ := json.Marshal(v.refused)
		return errorFrame(&rpcError{code: codeInternal, text: v.refused.said(), id: id, data: data})
	}
	return answerFrame(id, v.refused.result())
}

// register remembers a request that is about to be sent. An id that is in use is refused: which request an answer is for
// could not be told.
func (p *pump) register(entry *pending) bool {
	p.mu.Lock()
	refused := p.enter(entry)
	p.mu.Unlock()
	if refused != nil {
		p.refuse(refused)
	}
	return refused == nil
}

// registerAll remembers all requests of a batch, or none.
func (p *pump) registerAll(frames []*frame) *rpcError {
	p.mu.Lock()
	defer p.mu.Unlock()
	var entered []string
	for _, f := range frames {
		if !f.request() {
			continue
		}
		if refused := p.enter(&pending{id: f.id}); refused != nil {
			for _, key := range entered {
				delete(p.pending, key)
			}
			return refused
		}
		entered = append(entered, idKey(f.id))
	}
	return nil
}

// enter remembers a request. The pump is locked.
func (p *pump) enter(entry *pending) *rpcError {
	key := idKey(entry.id)
	if _, used := p.pending[key]; used {
		return &rpcError{code: codeInvalidRequest, text: "the id is in use for another request", id: entry.id}
	}
	if len(p.pending)-len(p.abandoned) >= maxPending {
		return &rpcError{code: codeInternal, text: "too many requests are not answered yet", id: entry.id}
	}
	p.pending[key] = entry
	return nil
}

// abandon says that nobody waits for a request any more. Its id stays in use for a while, since the answer may come late.
func (p *pump) abandon(entry *pending) {
	key := idKey(entry.id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[key] != entry || entry.abandoned {
		return
	}
	if entry.cancelled != nil && (entry.answered || !entry.sent) {
		delete(p.pending, key) // the server has answered it, or never heard of it
		return
	}
	entry.abandoned = true
	if p.abandoned = append(p.abandoned, key); len(p.abandoned) > maxAbandoned {
		delete(p.pending, p.abandoned[0])
		p.abandoned = p.abandoned[1:]
	}
}

// cancel hears that the client wants no answer any more. The server is told if it has the request.
func (p *pump) cancel(ctx context.Context, f *frame) {
	var params struct {
		RequestID jsontext.Value `json:"requestId"`
	}
	if json.Unmarshal(f.params, &params) != nil || params.RequestID == nil {
		p.forward(ctx, f.raw)
		return
	}
	p.mu.Lock()
	entry := p.pending[idKey(params.RequestID)]
	guarded := entry != nil && entry.cancelled != nil
	pass := entry == nil || !guarded || entry.sent
	if guarded {
		select {
		case <-entry.cancelled:
		default:
			close(entry.cancelled)
		}
	}
	p.mu.Unlock()
	if entry != nil && !guarded && entry.answer == nil {
		p.abandon(entry)
	}
	if pass {
		p.forward(ctx, f.raw)
	}
}

// fromServer passes on what the server sends, but for answers to guarded calls.
func (p *pump) fromServer() error {
	in := readLines(p.streams.FromServer, p.guard.options.MaxFrame)
	for {
		raw, err := in.next()
		switch {
		case errors.Is(err, errLong):
			return errLong
		case err != nil:
			return nil //nolint:nilerr // the server has closed its side, however it did
		}
		p.hear(raw)
	}
}

// hear looks whose answer a message of the server is.
func (p *pump) hear(raw []byte) {
	if raw[0] == '[' {
		p.hearBatch(raw)
		return
	}
	a, id, ok, err := decodeAnswer(raw)
	if !ok {
		p.toClient(raw)
		return
	}
	entry, counts := p.take(id)
	switch {
	case !counts:
		p.guard.options.Log.Error("the server answered a guarded call before it had it, or more than once: the answer is dropped")
	case entry == nil || entry.answer == nil:
		p.toClient(raw)
	case err != nil:
		entry.answer <- nil
	default:
		entry.answer <- a
	}
}

// hearBatch passes on the answer to a batch, in which there were no guarded calls.
func (p *pump) hearBatch(raw []byte) {
	var parts []jsontext.Value
	if json.Unmarshal(raw, &parts, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		p.toClient(raw)
		return
	}
	for _, part := range parts {
		_, id, ok, _ := decodeAnswer(part)
		if !ok {
			continue
		}
		entry, counts := p.take(id)
		if entry != nil && entry.answer != nil {
			p.guard.options.Log.Error("the server answered a guarded call in a batch, which is dropped")
			if counts {
				entry.answer <- nil
			}
			return
		}
	}
	p.toClient(raw)
}

// take finds the request that an answer is for, nil if there is none, and forgets it. One of a guarded call is kept until
// the call is over, and only the first answer after it was sent counts.
func (p *pump) take(id string) (entry *pending, counts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	entry = p.pending[id]
	if entry == nil {
		return nil, true
	}
	if entry.cancelled != nil && !entry.abandoned {
		counts = entry.sent && !entry.answered
		entry.answered = entry.answered || counts
		return entry, counts
	}
	delete(p.pending, id)
	if entry.abandoned {
		for i, key := range p.abandoned {
			if key == id {
				p.abandoned = append(p.abandoned[:i], p.abandoned[i+1:]...)
				break
			}
		}
	}
	return entry, true
}

// bury tells the client of requests that the server will not answer.
func (p *pump) bury() {
	p.mu.Lock()
	var left []*pending
	for _, entry := range p.pending {
		if !entry.abandoned && entry.answer == nil {
			left = append(left, entry)
		}
	}
	p.pending = map[string]*pending{}
	p.mu.Unlock()
	for _, entry := range left {
		p.refuse(&rpcError{code: codeInternal, text: "the server has ended without an answer", id: entry.id})
	}
}

// forward sends a message to the server, as it came.
func (p *pump) forward(ctx context.Context, raw []byte) {
	if _, err := p.send(ctx, raw, func() bool { return true }); err != nil {
		p.guard.options.Log.Debug("the server takes no more messages", "error", err)
	}
}

// send writes one message to the server when it is its turn and may says yes. It reports whether any byte went out.
func (p *pump) send(ctx context.Context, raw []byte, may func() bool) (sent bool, err error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	case <-p.gone:
		return false, errServerGone
	}
	select {
	case <-p.gone:
		<-p.turn
		return false, errServerGone
	default:
	}
	if !may() {
		<-p.turn
		return false, errCancelled
	}
	type wrote struct {
		n   int
		err error
	}
	done := make(chan wrote, 1)
	go func() { // a server that reads nothing keeps its turn, and nobody longer than ctx
		line := append(append(make([]byte, 0, len(raw)+1), raw...), '\n')
		n, err := p.streams.ToServer.Write(line)
		<-p.turn
		done <- wrote{n, err}
	}()
	select {
	case w := <-done:
		return w.n > 0, w.err
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

// toClient sends a message to the client. One that is gone hears nothing.
func (p *pump) toClient(raw []byte) {
	line := append(append(make([]byte, 0, len(raw)+1), raw...), '\n')
	p.out.Lock()
	defer p.out.Unlock()
	_, _ = p.streams.ToClient.Write(line)
}

func (p *pump) refuse(e *rpcError) { p.toClient(errorFrame(e)) }

// pipeCall is a guarded call over stdin and stdout.
type pipeCall struct {
	*pump
	frame *frame
	asked *toolCall
	entry *pending
}

func (c *pipeCall) call(ctx context.Context, by time.Time) (*answer, error) {
	// It waits for its turn as long as others write, and these as long as the server does not read.
	sent, err := c.send(ctx, c.frame.raw, func() bool { return now().Before(by) && c.begin() })
	if !sent {
		return nil, errors.Join(errNotSent, err)
	}
	if err != nil {
		return nil, err
	}
	return c.wait(ctx)
}

// begin says that the server is about to get the call, unless it is cancelled.
func (c *pipeCall) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.entry.cancelled:
		return false
	default:
		c.entry.sent = true
		return true
	}
}

// wait waits for the answer. After a cancellation most servers give none.
func (c *pipeCall) wait(ctx context.Context) (*answer, error) {
	cancelled := c.entry.cancelled
	var grace <-chan time.Time
	for {
		select {
		case a := <-c.entry.answer:
			return readable(a)
		case <-cancelled:
			timer := time.NewTimer(cancelGrace)
			defer timer.Stop()
			cancelled, grace = nil, timer.C
		case <-grace:
			return nil, errCancelled
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.gone:
			select { // the last thing that it sent may be the answer
			case a := <-c.entry.answer:
				return readable(a)
			default:
				return nil, errServerGone
			}
		}
	}
}

func readable(a *answer) (*answer, error) {
	if a == nil {
		return nil, errAnswer
	}
	return a, nil
}

// schema asks the server for its tools.
func (c *pipeCall) schema(ctx context.Context, tool string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	return findSchema(ctx, tool, c.page)
}

// listTime is how long a server may take to list its tools.
const listTime = 30 * time.Second

func (c *pipeCall) page(ctx context.Context, cursor string) ([]byte, error) {
	entry := c.own()
	id := string(entry.id)
	sent, err := c.send(ctx, c.asked.listFrame(id, cursor), func() bool { return true })
	if err != nil {
		if sent {
			c.abandon(entry)
		} else {
			c.take(idKey(entry.id))
		}
		return nil, err
	}
	select {
	case a := <-entry.answer:
		if a == nil || a.failed {
			return nil, errList
		}
		return a.result, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.gone:
		err = errServerGone
	}
	c.abandon(entry)
	return nil, err
}

// own registers a request of the guard's own, under an id that the client does not use.
func (p *pump) own() *pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		p.listed++
		entry := &pending{id: jsontext.Value(`"counterfoil-` + strconv.Itoa(p.listed) + `"`), answer: make(chan *answer, 1)}
		if key := idKey(entry.id); p.pending[key] == nil {
			p.pending[key] = entry
			return entry
		}
	}
}
