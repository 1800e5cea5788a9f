// Command demo pays 2,000 orders through a payments API that knows nothing of
// retries, with 100 impatient clients who time out, ask again and send
// duplicates, while server and API are killed on the way. Then it counts, and
// exits with an error if an order was charged twice, or if budget and ledger
// differ.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	seconds := flag.Duration("within", 60*time.Second, "time limit")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *seconds)
	defer cancel()
	result, err := run(ctx)
	if err == nil {
		fmt.Print(result)
		err = result.check()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (*result, error) {
	dir, err := os.MkdirTemp("", "counterfoil-demo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory.
	s, err := start(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	counts, err := s.pay(ctx)
	if err != nil {
		return nil, err
	}
	return s.reconcile(ctx, counts)
}
