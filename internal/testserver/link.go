package testserver

import (
	"net"
	"sync"
)

// link is one client's connection through a proxy.
type link struct {
	proxy          *FaultProxy
	client, server *net.TCPConn
	once           sync.Once
	ended          chan struct{} // closed by reset

	// order makes "the request is on its way" and "answers are thrown away from now on" one step for the other direction.
	order  sync.Mutex
	answer *Armed // a fault that waits for the server's answer, or has struck it
	mute   bool   // throw all answers away
}

// pump passes bytes one way until the connection ends.
func (l *link) pump(direction Direction, from, to *net.TCPConn) {
	buffer := make([]byte, 64<<10)
	swallow := false
	for {
		n, err := from.Read(buffer)
		if n > 0 && !swallow {
			swallow = !l.pass(direction, buffer[:n], to)
		}
		if err != nil {
			_ = to.CloseWrite() // The other side may be gone already.
			return
		}
	}
}

// pass delivers bytes, or does what a fault says; false means that nothing more goes this way.
func (l *link) pass(direction Direction, bytes []byte, to *net.TCPConn) bool {
	if a := l.proxy.strike(direction, bytes); a != nil {
		switch a.fault.Do {
		case Swallow:
			close(a.fired)
			return false
		case Cut:
			l.reset()
			close(a.fired)
			return false
		case Hold:
			close(a.fired)
			select {
			case <-a.released:
			case <-l.ended:
				return false
			}
		case SwallowReply, CutReply:
			if !l.flow(direction) {
				return false
			}
			l.order.Lock()
			defer l.order.Unlock()
			_, err := to.Write(bytes)
			l.answer, l.mute = a, true
			return err == nil
		}
	}
	if !l.flow(direction) {
		return false
	}
	if direction == Replies && l.discard() {
		return true
	}
	_, err := to.Write(bytes)
	return err == nil
}

// flow waits while the direction is stalled; false means that the connection ended meanwhile.
func (l *link) flow(direction Direction) bool {
	select {
	case <-l.proxy.flowing(direction):
		return true
	case <-l.ended:
		return false
	}
}

// discard reports whether answers are thrown away, and lets a fault that waited for one strike.
func (l *link) discard() bool {
	l.order.Lock()
	defer l.order.Unlock()
	if l.answer != nil {
		if l.answer.fault.Do == CutReply {
			// Only the client's side: a reset would take from the server what it has not read yet.
			resetConn(l.client)
		}
		close(l.answer.fired)
		l.answer = nil
	}
	return l.mute
}

// reset ends the connection on both sides without a farewell.
func (l *link) reset() {
	l.once.Do(func() {
		close(l.ended)
		resetConn(l.client)
		resetConn(l.server)
	})
}

func resetConn(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // It may be closed already.
	conn.Close()
}
