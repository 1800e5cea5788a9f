package testserver

import (
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// Direction is one of the two ways through a proxy.
type Direction int

// The two directions.
const (
	Requests Direction = iota // from client to server
	Replies                   // from server to client
)

// Action is what a Fault does. "Bytes" are what one read of the connection gave, at most 64 KiB: on loopback, what the other
// side wrote in one call.
type Action int

// What a fault can do.
const (
	// Swallow throws the bytes away, and everything behind them in this direction; the connection stays open and silent.
	Swallow Action = iota
	// Cut throws the bytes away and resets the connection on both sides.
	Cut
	// Hold keeps the bytes, and everything behind them in this direction, until Armed.Release, then delivers all.
	Hold
	// SwallowReply delivers the bytes (Requests only), then throws away whatever the server answers on this connection.
	SwallowReply
	// CutReply delivers the bytes (Requests only); when the server begins to answer, the answer is thrown away and the client's
	// side reset. The server still receives all that was sent to it.
	CutReply
)

// Fault strikes once: on the first bytes, on any connection, that go its way and match.
type Fault struct {
	In    Direction
	Match func(bytes []byte) bool // nil: any bytes; it must not keep them
	Do    Action
}

// Armed is a fault that waits for its bytes.
type Armed struct {
	proxy    *FaultProxy
	fault    Fault
	struck   bool
	fired    chan struct{}
	released chan struct{}
	release  sync.Once
}

// Fired is closed when the fault has struck: with SwallowReply and CutReply, when the server's answer came and was thrown away.
func (a *Armed) Fired() <-chan struct{} { return a.fired }

// Release lets held bytes go on; a fault that has not struck yet never will.
func (a *Armed) Release() {
	a.proxy.disarm(a)
	a.release.Do(func() { close(a.released) })
}

// FaultProxy passes bytes between clients and one server.
type FaultProxy struct {
	t    TB
	port int

	mu       sync.Mutex
	target   string
	listener net.Listener // nil while connections are refused
	links    map[*link]bool
	armed    []*Armed
	flow     [2]chan struct{} // by direction; closed while bytes flow
	closed   bool
	working  sync.WaitGroup
}

// Proxy starts a proxy in front of an address. It passes everything until it is told otherwise.
func Proxy(t TB, target string) *FaultProxy {
	t.Helper()
	p := &FaultProxy{t: t, target: target, links: map[*link]bool{}}
	for direction := range p.flow {
		p.flow[direction] = make(chan struct{})
		close(p.flow[direction])
	}
	t.Cleanup(p.close)
	for range 20 { // another process may take a free port first
		p.port = freePort(t)
		if listener, err := net.Listen("tcp4", p.Addr()); err == nil {
			p.accept(listener)
			return p
		}
	}
	t.Fatalf("proxy: every port that was free was taken by another process")
	return p
}

// Addr is where clients connect.
func (p *FaultProxy) Addr() string { return loopback(p.port) }

// Arm sets a fault.
func (p *FaultProxy) Arm(fault Fault) *Armed {
	p.t.Helper()
	if fault.In != Requests && (fault.Do == SwallowReply || fault.Do == CutReply) {
		p.t.Fatalf("SwallowReply and CutReply wait for a request: In must be Requests")
	}
	a := &Armed{proxy: p, fault: fault, fired: make(chan struct{}), released: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, a)
	return a
}

func (p *FaultProxy) disarm(a *Armed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.struck = true
}

// Stall stops all bytes in a direction, on connections there are and will be, until Flow.
func (p *FaultProxy) Stall(direction Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isClosed(p.flow[direction]) {
		p.flow[direction] = make(chan struct{})
	}
}

// Flow ends a Stall; nothing was lost.
func (p *FaultProxy) Flow(direction Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !isClosed(p.flow[direction]) {
		close(p.flow[direction])
	}
}

// CutAll resets every open connection on both sides.
func (p *FaultProxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Refuse makes new connections fail at once, as with a server that is down; open ones stay.
func (p *FaultProxy) Refuse() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deafen()
}

// deafen stops listening. The caller holds mu.
func (p *FaultProxy) deafen() {
	if p.listener == nil {
		return
	}
	// A process that is being started elsewhere in this one has a copy of the socket until its exec, and a copy keeps it open.
	if raw, err := p.listener.(*net.TCPListener).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	p.listener.Close()
	p.listener = nil
}

// Accept ends a Refuse.
func (p *FaultProxy) Accept() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return
	}
	listener, err := net.Listen("tcp4", p.Addr())
	if err != nil {
		p.t.Fatalf("proxy: %v", err)
	}
	p.accept(listener)
}

// accept serves on a listener. The caller holds mu, or is alone.
func (p *FaultProxy) accept(listener net.Listener) {
	p.listener = listener
	p.working.Go(func() { p.serve(listener) })
}

// Retarget sends new connections to another server.
func (p *FaultProxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Open is the number of open connections.
func (p *FaultProxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *FaultProxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // Refuse or the end of the test closed it.
		}
		p.working.Go(func() { p.connect(client.(*net.TCPConn)) })
	}
}

func (p *FaultProxy) connect(client *net.TCPConn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp4", target)
	if err != nil {
		resetConn(client)
		return
	}
	l := &link{proxy: p, client: client, server: server.(*net.TCPConn), ended: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		l.reset()
	}
	p.links[l] = true
	p.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { l.pump(Requests, l.client, l.server) })
	both.Go(func() { l.pump(Replies, l.server, l.client) })
	both.Wait()
	l.client.Close()
	l.server.Close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *FaultProxy) close() {
	p.mu.Lock()
	p.closed = true
	p.deafen()
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	p.working.Wait()
}

// strike returns the armed fault that these bytes meet, if any; it counts as struck from here on.
func (p *FaultProxy) strike(direction Direction, bytes []byte) *Armed {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, a := range p.armed {
		if a.struck || a.fault.In != direction || a.fault.Match != nil && !a.fault.Match(bytes) {
			continue
		}
		a.struck = true
		p.armed = append(p.armed[:i:i], p.armed[i+1:]...)
		return a
	}
	return nil
}

func (p *FaultProxy) flowing(direction Direction) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flow[direction]
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
