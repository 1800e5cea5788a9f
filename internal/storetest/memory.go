package storetest

import (
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
)

type memoryMedium struct{ first *memory.Engine }

func inMemory(_ testing.TB, c clock.Clock) medium { return memoryMedium{memory.New(c)} }

func (m memoryMedium) create(testing.TB) engine.Engine { return m.first.Share() }
func (m memoryMedium) again(testing.TB) engine.Engine  { return m.first.Share() }
