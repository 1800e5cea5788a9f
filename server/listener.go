package server

import (
	"bytes"
	"net"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/counterfoil/counterfoil/api"
)

// boundedListener accepts a bounded number of connections at a time; the others wait in the system's queue.
type boundedListener struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func limitConnections(l net.Listener, most int) net.Listener {
	return &boundedListener{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{})}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &conn{Conn: c, done: func() { <-l.places }}, nil
}

func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// conn is a connection whose place is free again once it is closed, and on which also the answers that net/http gives
// before any handler (headers too large, no HTTP at all) are problems.
type conn struct {
	net.Conn
	done func()
	once sync.Once
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.done)
	return err
}

// CloseWrite is what net/http calls so that a client still gets the answer to a request that was not read to its end.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Write sends p. net/http writes its own answers in one piece, with a head that no handler of ours writes.
func (c *conn) Write(p []byte) (int, error) {
	if status, ok := ownAnswer(p); ok {
		if _, err := c.Conn.Write(problemInstead(status)); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	return c.Conn.Write(p)
}

var ownAnswerHead = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// ownAnswer returns the status of an answer that net/http gives by itself.
func ownAnswer(p []byte) (status string, ok bool) {
	line, _, found := bytes.Cut(p, []byte("\r\n"))
	if !found || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) || len(line) < 12 || line[9] < '4' || !bytes.HasPrefix(p[len(line):], ownAnswerHead) {
		return "", false
	}
	return string(line[9:12]), true
}

// problemInstead is the whole answer to a request that net/http refuses by itself.
func problemInstead(status string) []byte {
	p := api.NewProblem(api.Malformed, "this is not a request of HTTP/1.1 that the server takes")
	if status == "431" {
		p = api.NewProblem(api.TooLarge, "the headers are too large")
		p.Status = 431
	}
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte("{}")
	}
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 " + strconv.Itoa(p.Status) + " " + string(p.Code) + "\r\n")
	b.WriteString("Content-Type: " + api.ProblemType + "\r\nCache-Control: no-store\r\nCounterfoil-Outcome: " + string(p.Code) + "\r\n")
	b.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\nConnection: close\r\n\r\n")
	b.Write(body)
	return b.Bytes()
}
