package mcpguard_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/guard/mcpguard"
)

func TestCallHappensOnceAndIsReplayed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.overPipe(mcpguard.Options{})
	r.wants(call(t, s, tool("pay", "k1", payment{"a", 1})), "paid a", "", false, 1)
	r.wants(call(t, s, tool("pay", "k1", payment{"a", 1})), "was made before", "", true, 1)
	r.wants(call(t, s, tool("pay", "k1", payment{"b", 1})), "new key", "key_reused", false, 1)
	r.wants(call(t, s, tool("pay", "k2", payment{"b", 1})), "paid b", "", false, 2)
}

func TestDuplicatesAtTheSameTimeHaveOneEffect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.overPipe(mcpguard.Options{Default: mcpguard.Policy{Wait: mcpguard.MaxWait}})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			result, err := s.CallTool(t.Context(), tool("slow", "k", payment{"a", 1}))
			if got := read(t, result, err); !strings.Contains(got.text, "paid slowly a") {
				t.Errorf("got %+v", got)
			}
		})
	}
	<-r.begun
	close(r.free)
	wg.Wait()
	if n := r.calls.Load(); n != 1 {
		t.Errorf("the server was called %d times", n)
	}
}
