package permit_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/permit"
)

func TestNewNonceLivesAtLeastItsTTL(t *testing.T) {
	t.Parallel()
	call := sampleNonce().BoundTo
	for _, c := range []struct {
		ms              int64
		ttl             time.Duration
		issued, expires int64
	}{
		{1_000_000, 30 * time.Second, 1000, 1030},
		{1_000_001, 30 * time.Second, 1000, 1031},
		{1_000_999, 30 * time.Second, 1000, 1031},
		{1_000_999, time.Second, 1000, 1002},
		{1_000_500, time.Hour, 1000, 1000 + permit.MaxWindow},
	} {
		n, err := permit.NewNonce(call, time.UnixMilli(c.ms), c.ttl, entropy.Seeded(1))
		if err != nil || n.IssuedAt != c.issued || n.ExpiresAt != c.expires || n.BoundTo != call {
			t.Errorf("at %d ms for %v: %+v, %v", c.ms, c.ttl, n, err)
		}
		p := sign(t, n)
		last := time.UnixMilli(c.ms).Add(c.ttl - time.Millisecond)
		for _, now := range []time.Time{time.UnixMilli(c.ms), last} {
			if _, err := permit.Verify(p, expects(call), accept(t, issuer), now); err != nil {
				t.Errorf("minted at %d ms for %v, at %v: %v", c.ms, c.ttl, now, err)
			}
		}
	}
}

func TestNonceIDsAreTimeOrderedUUIDsDrawnAnew(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	now := time.UnixMilli(1_893_456_000_123)
	for range 500 {
		n, err := permit.NewNonce(sampleNonce().BoundTo, now, permit.DefaultTTL, entropy.System)
		if err != nil || seen[n.ID] {
			t.Fatalf("%s, %v, seen %v", n.ID, err, seen[n.ID])
		}
		seen[n.ID] = true
		id, err := uuid.Parse(n.ID)
		if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 || id.String() != n.ID {
			t.Fatalf("%s: version %v, variant %v, %v", n.ID, id.Version(), id.Variant(), err)
		}
		sec, nsec := id.Time().UnixTime()
		if got := time.Unix(sec, nsec); got.UnixMilli() != now.UnixMilli() {
			t.Fatalf("%s carries %v, want %v", n.ID, got, now)
		}
	}
}

func TestCallsThatCouldMatchNothingGetNoNonce(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*permit.Binding){
		"no request_id":            func(b *permit.Binding) { b.RequestID = "" },
		"no subject":               func(b *permit.Binding) { b.SubjectID = "" },
		"no capability":            func(b *permit.Binding) { b.CapabilityID = "" },
		"no server":                func(b *permit.Binding) { b.ToolServer = "" },
		"no tool":                  func(b *permit.Binding) { b.ToolName = "" },
		"no parameter hash":        func(b *permit.Binding) { b.ParameterHash = "" },
		"short parameter hash":     func(b *permit.Binding) { b.ParameterHash = "ab" },
		"upper-case hash":          func(b *permit.Binding) { b.ParameterHash = strings.Repeat("A", 64) },
		"long subject":             func(b *permit.Binding) { b.SubjectID = strings.Repeat("a", 257) },
		"control character":        func(b *permit.Binding) { b.ToolName = "a\nb" },
		"second control range":     func(b *permit.Binding) { b.ToolName = "a\u0085b" },
		"delete character":         func(b *permit.Binding) { b.ToolName = "a\x7f" },
		"invalid UTF-8":            func(b *permit.Binding) { b.ToolServer = "\xff" },
		"long in bytes, not runes": func(b *permit.Binding) { b.RequestID = strings.Repeat("é", 129) },
	} {
		call := sampleNonce().BoundTo
		change(&call)
		if _, err := permit.NewNonce(call, during, permit.DefaultTTL, entropy.Seeded(1)); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	call := sampleNonce().BoundTo
	call.RequestID = strings.Repeat("é", 128)
	if _, err := permit.NewNonce(call, during, permit.DefaultTTL, entropy.Seeded(1)); err != nil {
		t.Errorf("256 bytes: %v", err)
	}
}

func TestTTLsOutOfRangeGetNoNonce(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{0, -time.Second, time.Second - 1, 1500 * time.Millisecond, time.Hour + time.Second, 1 << 62} {
		if _, err := permit.NewNonce(sampleNonce().BoundTo, during, ttl, entropy.Seeded(1)); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid", ttl, err)
		}
	}
}

func TestWithoutRandomnessThereIsNoNonce(t *testing.T) {
	t.Parallel()
	n, err := permit.NewNonce(sampleNonce().BoundTo, during, permit.DefaultTTL, entropy.Failing)
	if !errors.Is(err, entropy.ErrExhausted) || n != (permit.Nonce{}) {
		t.Fatalf("%+v, %v", n, err)
	}
}
