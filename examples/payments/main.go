// Command payments is a payments API as they are: it charges whoever asks, as
// often as it is asked, and knows nothing of retries. Its ledger is a file with
// one line a charge, on disk before the answer.
//
// Everything that keeps an order from being charged twice is in front of it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Charge is one line of the ledger, and the body of a request.
type Charge struct {
	Order  string `json:"order"`
	Amount uint64 `json:"amount"`
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	path := flag.String("ledger", "ledger.jsonl", "file of the ledger")
	slow := flag.Int("slow-every", 0, "hold every n-th answer back, after the charge; 0: none")
	flag.Parse()
	if err := serve(*listen, *path, *slow); err != nil {
		log.Fatal(err)
	}
}

func serve(listen, path string, slow int) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600) //nolint:gosec // the caller's own path.
	if err != nil {
		return err
	}
	l := &ledger{file: file, slow: slow}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", l.charge)
	mux.HandleFunc("GET /charges", l.list)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(drain), file.Close())
}

type ledger struct {
	mu    sync.Mutex
	file  *os.File
	slow  int
	count int
}

// charge writes a line and answers when it is on disk.
func (l *ledger) charge(w http.ResponseWriter, r *http.Request) {
	var c Charge
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&c); err != nil || c.Order == "" || c.Amount == 0 {
		http.Error(w, "want an order and an amount", http.StatusBadRequest)
		return
	}
	<-time.After(50 * time.Millisecond) // what talking to a bank takes
	n, err := l.write(c)
	if err != nil {
		http.Error(w, "the ledger cannot be written", http.StatusInternalServerError)
		return
	}
	if l.slow > 0 && n%l.slow == 0 {
		// Long enough for an impatient client to have left: it does not know that
		// it was charged.
		select {
		case <-time.After(2 * time.Second):
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"charge": n, "order": c.Order, "amount": c.Amount})
}

func (l *ledger) write(c Charge) (int, error) {
	line, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return 0, err
	}
	return l.count, l.file.Sync()
}

// list gives every charge of an order, or of all.
func (l *ledger) list(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	charges, err := read(l.file.Name(), r.URL.Query().Get("order"))
	if err != nil {
		http.Error(w, "the ledger cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(charges)
}

// read gives the charges of an order, or all if it is "". A last line that a
// crash cut off was never answered, and is none.
func read(path, order string) ([]Charge, error) {
	file, err := os.Open(path) //nolint:gosec // the caller's own path.
	if err != nil {
		return nil, err
	}
	defer file.Close()
	charges := []Charge{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var c Charge
		if json.Unmarshal(lines.Bytes(), &c) == nil && (order == "" || c.Order == order) {
			charges = append(charges, c)
		}
	}
	return charges, nil
}
