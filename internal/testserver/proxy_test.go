package testserver_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/internal/testserver"
)

// echo answers every line with "re: " and the line, and hands each line that it received to the returned channel.
func echo(t *testing.T) (addr string, received <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	lines := make(chan string, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(conn, lines)
		}
	}()
	return listener.Addr().String(), lines
}

func answer(conn net.Conn, lines chan<- string) {
	defer conn.Close()
	var pending []byte
	buffer := make([]byte, 4096)
	for {
		n, err := conn.Read(buffer)
		pending = append(pending, buffer[:n]...)
		for {
			line, rest, whole := bytes.Cut(pending, []byte("\n"))
			if !whole {
				break
			}
			lines <- string(line)
			if _, err := conn.Write([]byte("re: " + string(line) + "\n")); err != nil {
				return
			}
			pending = rest
		}
		if err != nil {
			return
		}
	}
}

func TestProxyPassesBytesBothWays(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	proxy := testserver.Proxy(t, addr)
	conn := dial(t, proxy.Addr())
	send(t, conn, "one\n")
	expect(t, conn, "re: one\n")
	large := bytes.Repeat([]byte("x"), 1<<20)
	go func() { _, _ = conn.Write(append(large, '\n')) }()
	expect(t, conn, "re: "+string(large)+"\n")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(conn); err != nil || len(rest) != 0 {
		t.Errorf("a farewell of the client came back as %q, %v", rest, err)
	}
}

func TestLostReply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		do    testserver.Action
		after error // of the client's next read
	}{
		{"cut", testserver.CutReply, syscall.ECONNRESET},
		{"swallowed", testserver.SwallowReply, os.ErrDeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			addr, received := echo(t)
			proxy := testserver.Proxy(t, addr)
			armed := proxy.Arm(testserver.Fault{In: testserver.Requests, Do: c.do, Match: contains("pay")})
			conn := dial(t, proxy.Addr())
			send(t, conn, "ask\n")
			expect(t, conn, "re: ask\n")
			send(t, conn, "pay\n")
			<-armed.Fired()
			if <-received != "ask" || <-received != "pay" {
				t.Error("the server did not receive the request whose reply is lost")
			}
			expectEnd(t, conn, c.after)

			again := dial(t, proxy.Addr())
			send(t, again, "pay\n")
			expect(t, again, "re: pay\n")
		})
	}
}

func TestLostRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		do    testserver.Action
		after error
	}{
		{"cut", testserver.Cut, syscall.ECONNRESET},
		{"swallowed", testserver.Swallow, os.ErrDeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			addr, received := echo(t)
			proxy := testserver.Proxy(t, addr)
			armed := proxy.Arm(testserver.Fault{In: testserver.Requests, Do: c.do, Match: contains("pay")})
			conn := dial(t, proxy.Addr())
			send(t, conn, "pay\n")
			<-armed.Fired()
			expectEnd(t, conn, c.after)

			again := dial(t, proxy.Addr())
			send(t, again, "ask\n")
			expect(t, again, "re: ask\n")
			if first := <-received; first != "ask" {
				t.Errorf("the server received %q, which was to be lost", first)
			}
		})
	}
}

func TestHeldBytesComeLaterInOrder(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	proxy := testserver.Proxy(t, addr)
	conn := dial(t, proxy.Addr())
	for _, in := range []testserver.Direction{testserver.Requests, testserver.Replies} {
		armed := proxy.Arm(testserver.Fault{In: in, Do: testserver.Hold})
		send(t, conn, "one\n")
		<-armed.Fired()
		send(t, conn, "two\n")
		expectEnd(t, conn, os.ErrDeadlineExceeded)
		armed.Release()
		expect(t, conn, "re: one\nre: two\n")
	}
}

func TestStallLosesNothing(t *testing.T) {
	t.Parallel()
	addr, received := echo(t)
	proxy := testserver.Proxy(t, addr)
	conn := dial(t, proxy.Addr())
	for _, direction := range []testserver.Direction{testserver.Requests, testserver.Replies} {
		proxy.Stall(direction)
		send(t, conn, "one\n")
		expectEnd(t, conn, os.ErrDeadlineExceeded)
		if arrived := len(received); (arrived == 1) != (direction == testserver.Replies) {
			t.Errorf("direction %d stalled: %d lines reached the server", direction, arrived)
		}
		proxy.Flow(direction)
		expect(t, conn, "re: one\n")
		<-received
	}
}

func TestReleasedFaultNeverStrikes(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	proxy := testserver.Proxy(t, addr)
	armed := proxy.Arm(testserver.Fault{In: testserver.Requests, Do: testserver.Cut})
	armed.Release()
	conn := dial(t, proxy.Addr())
	send(t, conn, "one\n")
	expect(t, conn, "re: one\n")
	select {
	case <-armed.Fired():
		t.Error("it struck after its release")
	default:
	}
}

func TestProxyRefusesCutsAndRetargets(t *testing.T) {
	t.Parallel()
	first, _ := echo(t)
	second, received := echo(t)
	proxy := testserver.Proxy(t, first)
	conn := dial(t, proxy.Addr())
	send(t, conn, "one\n")
	expect(t, conn, "re: one\n")

	proxy.Refuse()
	if _, err := net.Dial("tcp", proxy.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a refusing proxy answers %v", err)
	}
	send(t, conn, "two\n")
	expect(t, conn, "re: two\n")
	proxy.CutAll()
	expectEnd(t, conn, syscall.ECONNRESET)
	await(t, "cut connections are gone", func() bool { return proxy.Open() == 0 })

	proxy.Accept()
	proxy.Retarget(second)
	conn = dial(t, proxy.Addr())
	send(t, conn, "three\n")
	expect(t, conn, "re: three\n")
	if got := <-received; got != "three" {
		t.Errorf("the new target received %q", got)
	}
}

func contains(text string) func([]byte) bool {
	return func(b []byte) bool { return bytes.Contains(b, []byte(text)) }
}

// expect reads exactly this text within 10 s.
func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("read %.80q (%v), want %.80q", got[:n], err, want)
	}
}

// expectEnd reads until an error and wants it to be this one, with nothing before it; a deadline means silence for 50 ms.
func expectEnd(t *testing.T, conn net.Conn, want error) {
	t.Helper()
	limit := 10 * time.Second
	if errors.Is(want, os.ErrDeadlineExceeded) {
		limit = 50 * time.Millisecond
	}
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if len(got) > 0 || !errors.Is(err, want) {
		t.Fatalf("read %q, then %v, want nothing, then %v", got, err, want)
	}
}
