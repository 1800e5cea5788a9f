package mcpguard_test

import (
	"fmt"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/mcpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
)

// BenchmarkPipe compares a call that is guarded, in memory, with one that passes.
func BenchmarkPipe(b *testing.B) {
	for name, o := range map[string]mcpguard.Options{
		"guarded": {}, "passed": {Tools: map[string]mcpguard.Policy{"pay": {ReadOnly: true}}},
	} {
		b.Run(name, func(b *testing.B) {
			core := newCore(b, storetest.Memory(b))
			o.As = func(owner string) counterfoil.Caller { return core.As(storetest.Scope, owner) }
			o.Server, o.Owner = "bank", "ann"
			g, err := mcpguard.New(o)
			if err != nil {
				b.Fatal(err)
			}
			c, s, _ := pipes(b, g)
			client, server := wired(b, c), wired(b, s)
			go func() {
				for {
					line, err := server.in.ReadString('\n')
					if err != nil {
						return
					}
					server.send(fmt.Sprintf(paid, idIn(line)))
				}
			}()
			for n := 0; b.Loop(); n++ {
				client.send(callFrame(fmt.Sprint(n), fmt.Sprint("k", n)))
				client.recv()
			}
			_ = client.out.Close()
			_ = server.out.Close()
		})
	}
}
