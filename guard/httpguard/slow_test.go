package httpguard_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil/guard/httpguard"
)

// pipeListener accepts connections of memory.
type pipeListener struct{ conns chan net.Conn }

func (l pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l pipeListener) Close() error { return nil }

func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestClientThatDoesNotReadItsAnswerHoldsNobodyUp: as many of them as requests are taken at once would end the service.
func TestClientThatDoesNotReadItsAnswerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, httpguard.Options{InProgress: 1}, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("a"), 1<<20)) })
		l := pipeListener{make(chan net.Conn)}
		server := &http.Server{Handler: r.guarded, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(l) }()
		ask := func(key string) net.Conn {
			client, conn := net.Pipe()
			l.conns <- conn
			req := request(key, "a")
			req.Host, req.RequestURI = "localhost", ""
			if err := req.Write(client); err != nil {
				t.Error(err)
			}
			return client
		}
		status := func(conn net.Conn) int {
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		unread := ask("k1")
		synctest.Wait()
		if got := status(ask("k2")); got != http.StatusServiceUnavailable {
			t.Errorf("while the other is answered: got %d", got)
		}
		<-time.After(5 * time.Minute)
		kept := ask("k3")
		if got := status(kept); got != http.StatusOK {
			t.Errorf("afterwards: got %d", got)
		}
		<-time.After(time.Hour) // the time to answer is that of one answer, not of the connection
		go func() { _ = request("k3", "a").Write(kept) }()
		if got := status(kept); got != http.StatusOK {
			t.Errorf("later: got %d", got)
		}
		_ = unread.Close()
		_ = kept.Close()
		close(l.conns)
		_ = server.Close()
	})
}
