package cli

import (
	"errors"
	"net"
	"testing"
)

func TestConnectionsBeyondTheBoundWaitUntilOneIsClosed(t *testing.T) {
	t.Parallel()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	l := boundConnections(tcp, 2)
	accepted, failed := make(chan net.Conn), make(chan error)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			accepted <- c
		}
	}()
	var taken []net.Conn
	for range 4 {
		c, err := net.Dial("tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	for range 2 {
		taken = append(taken, <-accepted)
	}
	if len(l.places) != cap(l.places) {
		t.Fatalf("two connections take %d of %d places", len(l.places), cap(l.places))
	}
	if _, half := taken[0].(interface{ CloseWrite() error }); !half {
		t.Error("a connection cannot be closed in one direction")
	}
	for range 2 { // closing twice frees one place
		_ = taken[0].Close()
	}
	third := <-accepted
	if len(l.places) != cap(l.places) {
		t.Fatalf("after one was closed and one accepted, %d of %d places are taken", len(l.places), cap(l.places))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept that waited for a place when the listener was closed: %v", err)
	}
	_ = taken[1].Close()
	_ = third.Close()
	if len(l.places) != 0 {
		t.Errorf("%d places are taken by nobody", len(l.places))
	}
}
