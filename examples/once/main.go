// Command once charges an order at most once, whatever happens and however
// often it is started:
//
//	counterfoil init --data once-data
//	go run ./examples/once order-1
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"os"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/engine/pebble"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/store"
)

func main() {
	ctx, order := context.Background(), os.Args[1]
	c, err := open(ctx, "once-data")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // what was acknowledged is durable already.
	ran, err := counterfoil.Run(ctx, c.As("default", "shop"), counterfoil.BeginParams{
		Key: order, Fingerprint: sha256.Sum256([]byte("charge 49.90 for " + order)),
	}, func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
		fmt.Println("charging", order) // the effect: it runs at most once
		return counterfoil.Result{Receipt: operation.Receipt{Body: []byte("charged 49.90")}}, nil
	})
	fmt.Printf("%s, error: %v\n", ran.Receipt.Body, err)
}

// open opens the store that 'counterfoil init --data DIR' made.
func open(ctx context.Context, dir string) (*counterfoil.Counterfoil, error) {
	keys, err := keyring.Open(dir+"/keys", keyring.Options{})
	if err != nil {
		return nil, err
	}
	e, err := pebble.Open(dir+"/store", pebble.Options{})
	if err != nil {
		return nil, err
	}
	return counterfoil.Open(ctx, e, keys, store.Options{Witness: dir + "/witness"}, counterfoil.Options{})
}
