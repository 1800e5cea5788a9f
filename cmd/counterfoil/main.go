// Command counterfoil is Counterfoil on the command line: the server, a command run at most once, and every call of the
// HTTP interface, on a server or on a store directly.
package main

import (
	"os"

	"github.com/counterfoil/counterfoil/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.Process{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ()}))
}
