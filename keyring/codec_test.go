package keyring

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
)

// sample is a keyring with everything that a file can hold.
func sample(tb testing.TB) *Keyring {
	tb.Helper()
	ctx := context.Background()
	at := clock.NewManual(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	k, err := NewMemory(Options{Clock: at, Entropy: entropy.Seeded(1)}, "default", "<a&b>\u2028ü")
	must(tb, err)
	_, err = k.AddIntegrity(ctx)
	must(tb, err)
	for range 2 {
		_, err = k.RotateSigning(ctx, "default")
		must(tb, err)
		at.Advance(Propagation)
	}
	foreign := publicOf(newSecret([32]byte{1}))
	_, err = k.Trust(ctx, "partners", foreign)
	must(tb, err)
	must(tb, k.Retire(ctx, "partners", foreign))
	_, err = k.Trust(ctx, "default", publicOf(newSecret([32]byte{2})))
	must(tb, err)
	return k
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func fileOf(tb testing.TB, k *Keyring) []byte {
	tb.Helper()
	data, err := encode(k.current.Load().doc)
	must(tb, err)
	return data
}

// seal wraps a body as a file does, with the right checksum.
func seal(body []byte) []byte {
	digest := sum(body)
	return slices.Concat([]byte(`{"format":"`+format+`","sha256":"`+hex.EncodeToString(digest[:])+`","keyring":`), body, []byte("}\n"))
}

func bodyOf(file []byte) []byte {
	_, body, _ := bytes.Cut(file, []byte(`"keyring":`))
	return bytes.TrimSuffix(body, []byte("}\n"))
}

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	file := fileOf(t, sample(t))
	at, err := decode(file, nil)
	must(t, err)
	again, err := encode(at.doc)
	must(t, err)
	if !bytes.Equal(again, file) {
		t.Fatalf("written again as\n%s\nafter\n%s", again, file)
	}
	if !bytes.Equal(seal(bodyOf(file)), file) {
		t.Fatal("the tests' own idea of the file differs")
	}
}

func TestAFileCutOffAnywhereIsRefused(t *testing.T) {
	t.Parallel()
	file := fileOf(t, sample(t))
	for n := range file {
		if _, err := decode(file[:n], nil); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut after %d of %d bytes: %v, want ErrCorrupt", n, len(file), err)
		}
	}
}

func TestAFileWithAnyByteChangedIsRefused(t *testing.T) {
	t.Parallel()
	file := fileOf(t, sample(t))
	for i := range file {
		damaged := slices.Clone(file)
		damaged[i] ^= 1
		if _, err := decode(damaged, nil); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrForeign) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	for _, more := range []string{"\n", " ", "{}", "\x00"} {
		if _, err := decode(append(slices.Clone(file), more...), nil); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("followed by %q: %v", more, err)
		}
	}
}

func TestAnotherFormatIsForeign(t *testing.T) {
	t.Parallel()
	file := fileOf(t, sample(t))
	for _, other := range [][]byte{
		[]byte(`{"keys":[]}`), []byte("-----BEGIN PRIVATE KEY-----"), []byte("hello"),
		bytes.Replace(file, []byte("keyring.v1"), []byte("keyring.v2"), 1),
	} {
		if _, err := decode(other, nil); !errors.Is(err, ErrForeign) {
			t.Fatalf("%.30q: %v, want ErrForeign", other, err)
		}
	}
}

func TestAWellSealedFileThatBreaksARuleIsRefused(t *testing.T) {
	t.Parallel()
	body := string(bodyOf(fileOf(t, sample(t))))
	identity := "01" + strings.Repeat("0", 62)
	anyPublic := func() string {
		_, rest, _ := strings.Cut(body, `"public":"`)
		return rest[:64]
	}()
	secondScope := strings.Index(body, `"partners"`)
	for _, c := range []struct{ name, old, new, why string }{
		{"upper-case hex", `"key":"`, `"key":"A`, "hex"},
		{"a member that is not known", `"serial":`, `"more":1,"serial":`, "unknown member"},
		{"a member twice", `"serial":`, `"serial":1,"serial":`, "duplicate"},
		{"null", `"own":true`, `"own":null`, "null"},
		{"a serial of 0", `"serial":7`, `"serial":0`, "serial"},
		{"a time before 1970", `"added":`, `"added":-`, "time"},
		{"a number as text", `"added":1893553445000`, `"added":"1893553445000"`, "integer"},
		{"a small-order key", anyPublic, identity, "private key does not belong"},
		{"a reserved scope", `"partners"`, `"_store"`, "reserved"},
		{"scopes out of order", `"partners"`, `"a"`, "not written as"},
		{"a seed of another key", `"seed":"`, `"seed":"00`, "hex"},
		{"a foreign key that signs", `,"own":true`, ``, "cannot sign"},
		{"white space", `"serial":`, `"serial": `, "not written as"},
	} {
		changed := strings.Replace(body, c.old, c.new, 1)
		if changed == body {
			t.Fatalf("%s: the sample has no %q", c.name, c.old)
		}
		if _, err := decode(seal([]byte(changed)), nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want ErrCorrupt naming %q", c.name, err, c.why)
		}
	}
	if secondScope < 0 {
		t.Fatal("the sample lost its scope")
	}
	twice := strings.Replace(body, `{"scope":"partners","accepted":[]`, `{"scope":"partners","accepted":[{"public":"`+anyPublic+`","added":1}]`, 1)
	if _, err := decode(seal([]byte(twice)), nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "stands twice") {
		t.Errorf("a public key in two scopes: %v", err)
	}
	small := strings.Replace(body, `{"scope":"partners","accepted":[]`, `{"scope":"partners","accepted":[{"public":"`+identity+`","added":1}]`, 1)
	if _, err := decode(seal([]byte(small)), nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "small order") {
		t.Errorf("a small-order key: %v", err)
	}
}

// FuzzDecode: whatever is in the file, and also if its checksum is right, a keyring is read only from the one file that
// writing it would give, and an error shows none of the file's secrets.
func FuzzDecode(f *testing.F) {
	file := fileOf(f, sample(f))
	f.Add(file)
	f.Add(bodyOf(file))
	f.Add([]byte(`{"id":"","serial":1,"write":"","integrity":[],"scopes":[]}`))
	f.Add([]byte(`{}`))
	_, marked, _ := strings.Cut(string(file), `"key":"`)
	secretKey := marked[:64]
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, src := range [][]byte{data, seal(data)} {
			at, err := decode(src, nil)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrForeign) {
					t.Fatalf("an error of no kind: %v", err)
				}
				if strings.Contains(err.Error(), secretKey) {
					t.Fatalf("the error shows a key: %v", err)
				}
				continue
			}
			again, err := encode(at.doc)
			if err != nil || !bytes.Equal(again, src) {
				t.Fatalf("read from\n%q\nbut written as\n%q, %v", src, again, err)
			}
			if at.integrity == nil || at.doc.check(nil) != nil {
				t.Fatal("a keyring that breaks its own rules")
			}
		}
	})
}

// unsureStorage is a storage whose disk may or may not have kept what it was given last.
type unsureStorage struct {
	*memory
	kept bool
}

func (s unsureStorage) lock(ctx context.Context) (save func([]byte) error, unlock func(), err error) {
	keep, unlock, err := s.memory.lock(ctx)
	return func(data []byte) error {
		if s.kept {
			_ = keep(data)
		}
		return ErrUnknown
	}, unlock, err
}

func TestAChangeThatMayHaveBeenKeptIsUnknownUntilTheNextReload(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		k := sample(t)
		k.storage = unsureStorage{memory: &memory{data: fileOf(t, k)}, kept: kept}
		before := len(k.IntegrityKeys())
		if _, err := k.AddIntegrity(t.Context()); !errors.Is(err, ErrUnknown) {
			t.Fatalf("kept %v: %v, want ErrUnknown", kept, err)
		}
		if got := len(k.IntegrityKeys()); got != before {
			t.Fatalf("kept %v: used before it was known to last", kept)
		}
		changed, err := k.Reload()
		if err != nil || changed != kept || (len(k.IntegrityKeys()) > before) != kept {
			t.Fatalf("kept %v: reload says %v, %v; %d keys after %d", kept, changed, err, len(k.IntegrityKeys()), before)
		}
	}
}
