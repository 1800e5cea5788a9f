package cli

import (
	"net"
	"sync"
)

// bounded accepts a bounded number of connections at a time; the others wait in the system's queue.
type bounded struct {
	*net.TCPListener
	places chan struct{}
	closed chan struct{}
	close  func()
}

func boundConnections(l *net.TCPListener, most int) *bounded {
	closed := make(chan struct{})
	return &bounded{l, make(chan struct{}, most), closed, sync.OnceFunc(func() { close(closed) })}
}

// Accept waits for a connection and for a place for it.
func (l *bounded) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.AcceptTCP()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &placed{c, sync.OnceFunc(func() { <-l.places })}, nil
}

// Close ends an Accept that waits for either.
func (l *bounded) Close() error {
	l.close()
	return l.TCPListener.Close()
}

// placed is a connection whose place is free again once it is closed.
type placed struct {
	*net.TCPConn
	leave func()
}

func (c *placed) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}
