package keyring_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/state"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture is a keyring on disk with a clock of its own.
type fixture struct {
	*keyring.Keyring
	t    *testing.T
	path string
	at   *clock.Manual
}

func create(t *testing.T, scopes ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, path: filepath.Join(t.TempDir(), "keys"), at: clock.NewManual(start)}
	k, err := keyring.Create(t.Context(), f.path, keyring.Options{Clock: f.at}, scopes...)
	check(t, err)
	f.Keyring = k
	return f
}

// other opens the same keyring as another process would.
func (f *fixture) other() *keyring.Keyring {
	f.t.Helper()
	k, err := keyring.Open(f.path, keyring.Options{Clock: f.at})
	check(f.t, err)
	return k
}

func (f *fixture) file() string { return filepath.Join(f.path, "keyring.json") }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

func issuer(n byte) ed25519.PublicKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = n
	return ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
}

func signs(t *testing.T, k *keyring.Keyring, scope string) ed25519.PublicKey {
	t.Helper()
	private, err := k.SigningKey(scope)
	check(t, err)
	return private.Public().(ed25519.PublicKey)
}

func accepts(k *keyring.Keyring, scope string, key ed25519.PublicKey) bool {
	for _, accepted := range k.Accepted(scope) {
		if accepted.Equal(key) {
			return true
		}
	}
	return false
}

func TestCreateMakesFilesForUsAloneThatOpenReads(t *testing.T) {
	t.Parallel()
	f := create(t, "default", "acme")
	for path, mode := range map[string]fs.FileMode{f.path: fs.ModeDir | 0o700, f.file(): 0o600, filepath.Join(f.path, "lock"): 0o600} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, mode)
		}
	}
	k := f.other()
	if got := strings.Join(k.Scopes(), " "); got != "acme default" {
		t.Fatalf("scopes %q", got)
	}
	for _, scope := range k.Scopes() {
		if !signs(t, k, scope).Equal(signs(t, f.Keyring, scope)) || !accepts(k, scope, signs(t, k, scope)) {
			t.Fatalf("scope %s: the opened keyring differs", scope)
		}
	}
	if signs(t, k, "acme").Equal(signs(t, k, "default")) {
		t.Fatal("two scopes share a key")
	}
	if k.Integrity().WriteID() != f.Integrity().WriteID() {
		t.Fatal("another integrity key")
	}
}

func TestCreateNeverReplacesAnything(t *testing.T) {
	t.Parallel()
	f := create(t, "default")
	before, err := os.ReadFile(f.file())
	check(t, err)
	_, err = keyring.Create(t.Context(), f.path, keyring.Options{}, "default")
	wantErr(t, err, keyring.ErrExists)
	if after, err := os.ReadFile(f.file()); err != nil || !bytes.Equal(after, before) {
		t.Fatalf("the file changed: %v", err)
	}

	strange := filepath.Join(t.TempDir(), "photos")
	check(t, os.Mkdir(strange, 0o700))
	check(t, os.WriteFile(filepath.Join(strange, "cat.jpg"), nil, 0o600))
	_, err = keyring.Create(t.Context(), strange, keyring.Options{}, "default")
	wantErr(t, err, keyring.ErrForeign)
}

func TestCreateByManyHasOneWinner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		won int
	)
	for range 8 {
		wg.Go(func() {
			_, err := keyring.Create(t.Context(), path, keyring.Options{}, "default")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, keyring.ErrExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Fatalf("%d winners", won)
	}
}

func TestOpenNeverCreates(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	_, err := keyring.Open(path, keyring.Options{})
	wantErr(t, err, keyring.ErrMissing)
	if !strings.Contains(err.Error(), "counterfoil init") || !strings.Contains(err.Error(), path) {
		t.Fatalf("it does not say what to do: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Open left something at the path: %v", err)
	}
	check(t, os.Mkdir(path, 0o700))
	_, err = keyring.Open(path, keyring.Options{})
	wantErr(t, err, keyring.ErrMissing)
}

func TestOpenAndReloadRefuseWhatIsNotPrivateOrDamaged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, f *fixture)
		want  error
		says  string
	}{
		{"directory open to the group", func(t *testing.T, f *fixture) { check(t, os.Chmod(f.path, 0o750)) }, keyring.ErrUnsafe, "chmod 700"},
		{"file readable by all", func(t *testing.T, f *fixture) { check(t, os.Chmod(f.file(), 0o644)) }, keyring.ErrUnsafe, "chmod 600"},
		{"file is a symbolic link", func(t *testing.T, f *fixture) {
			check(t, os.Rename(f.file(), f.file()+".real"))
			check(t, os.Symlink("keyring.json.real", f.file()))
		}, keyring.ErrUnsafe, "symbolic link"},
		{"directory is a symbolic link", func(t *testing.T, f *fixture) {
			check(t, os.Rename(f.path, f.path+".real"))
			check(t, os.Symlink(f.path+".real", f.path))
		}, keyring.ErrUnsafe, "symbolic link"},
		{"file is missing", func(t *testing.T, f *fixture) { check(t, os.Remove(f.file())) }, keyring.ErrMissing, "backup"},
		{"file is empty", func(t *testing.T, f *fixture) { check(t, os.Truncate(f.file(), 0)) }, keyring.ErrCorrupt, "restore"},
		{"file is cut off", func(t *testing.T, f *fixture) { check(t, os.Truncate(f.file(), 300)) }, keyring.ErrCorrupt, "restore"},
		{"file is edited", func(t *testing.T, f *fixture) {
			data, err := os.ReadFile(f.file())
			check(t, err)
			check(t, os.WriteFile(f.file(), bytes.Replace(data, []byte("default"), []byte("defaulT"), 1), 0o600))
		}, keyring.ErrCorrupt, "checksum"},
		{"file is something else", func(t *testing.T, f *fixture) { check(t, os.WriteFile(f.file(), []byte("-----BEGIN"), 0o600)) }, keyring.ErrForeign, "version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := create(t, "default")
			key := signs(t, f.Keyring, "default")
			c.spoil(t, f)
			_, err := keyring.Open(f.path, keyring.Options{})
			wantErr(t, err, c.want)
			if !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v does not say %q", err, c.says)
			}
			_, err = f.Reload()
			wantErr(t, err, c.want)
			_, err = f.RotateSigning(t.Context(), "default")
			wantErr(t, err, c.want)
			if !signs(t, f.Keyring, "default").Equal(key) {
				t.Fatal("the open keyring lost its key")
			}
		})
	}
}

func TestReloadTakesUpWhatAnotherProcessChanged(t *testing.T) {
	t.Parallel()
	f := create(t, "default")
	k := f.other()
	if changed, err := k.Reload(); err != nil || changed {
		t.Fatalf("nothing changed, but Reload says %v, %v", changed, err)
	}
	_, err := f.Trust(t.Context(), "default", issuer(1))
	check(t, err)
	if accepts(k, "default", issuer(1)) {
		t.Fatal("taken up before the reload")
	}
	if changed, err := k.Reload(); err != nil || !changed || !accepts(k, "default", issuer(1)) {
		t.Fatalf("Reload says %v, %v", changed, err)
	}
	if changed, err := f.Reload(); err != nil || changed {
		t.Fatalf("its own change is no change, but Reload says %v, %v", changed, err)
	}
}

func TestReloadRefusesAnOlderOrAnotherKeyring(t *testing.T) {
	t.Parallel()
	f := create(t, "default")
	old, err := os.ReadFile(f.file())
	check(t, err)
	_, err = f.Trust(t.Context(), "default", issuer(1))
	check(t, err)
	check(t, os.WriteFile(f.file(), old, 0o600))
	_, err = f.Reload()
	wantErr(t, err, keyring.ErrForeign)
	_, err = f.RotateSigning(t.Context(), "default")
	wantErr(t, err, keyring.ErrForeign)

	another, err := os.ReadFile(create(t, "default").file())
	check(t, err)
	check(t, os.WriteFile(f.file(), another, 0o600))
	_, err = f.Reload()
	wantErr(t, err, keyring.ErrForeign)
	if !accepts(f.Keyring, "default", issuer(1)) {
		t.Fatal("the open keyring was changed")
	}
}

func TestWatchReloadsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	f := create(t, "default")
	k := f.other()
	_, err := f.Trust(t.Context(), "default", issuer(1))
	check(t, err)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var reports []string
		began := time.Now()
		k.Watch(ctx, func(changed bool, err error) {
			reports = append(reports, fmt.Sprint(changed, err))
			if len(reports) == 2 {
				cancel()
			}
		})
		if got := strings.Join(reports, ", "); got != "true <nil>, false <nil>" {
			t.Fatal(got)
		}
		if took := time.Since(began); took != 2*keyring.ReloadEvery {
			t.Fatalf("two reloads took %v", took)
		}
	})
}

func TestAnIntegrityKeyIsAcceptedEverywhereBeforeItIsWrittenWith(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := create(t, "default")
	first := f.Integrity().WriteID()
	sealed := seal(f.Integrity())

	added, err := f.AddIntegrity(ctx)
	check(t, err)
	if f.Integrity().WriteID() != first || len(f.Integrity().IDs()) != 2 {
		t.Fatal("the new key must be accepted, and not written with")
	}
	f.at.Advance(keyring.Propagation - time.Millisecond)
	wantErr(t, f.WriteIntegrity(ctx, added.ID), keyring.ErrTooSoon)
	f.at.Advance(time.Millisecond)
	check(t, f.WriteIntegrity(ctx, added.ID))
	if f.Integrity().WriteID() != added.ID {
		t.Fatal("the new key must be written with")
	}
	if err := opens(f.Integrity(), sealed); err != nil {
		t.Fatalf("what the old key sealed is no longer read: %v", err)
	}

	wantErr(t, f.RetireIntegrity(ctx, added.ID), keyring.ErrInUse)
	wantErr(t, f.WriteIntegrity(ctx, state.KeyID{}), keyring.ErrNoKey)
	wantErr(t, f.RetireIntegrity(ctx, state.KeyID{}), keyring.ErrNoKey)
	check(t, f.RetireIntegrity(ctx, first))
	wantErr(t, opens(f.Integrity(), sealed), state.ErrKeyUnknown)
	for _, k := range f.other().IntegrityKeys() {
		if k.ID != added.ID || !k.Writes || !k.Added.Equal(start) {
			t.Fatalf("listed: %+v", k)
		}
	}
	for range keyring.MaxIntegrity - 1 {
		_, err := f.AddIntegrity(ctx)
		check(t, err)
	}
	_, err = f.AddIntegrity(ctx)
	wantErr(t, err, keyring.ErrFull)
}

var sealedKey = state.Key{Scope: "default", Kind: state.KindCounter, ID: "c"}

func seal(keys *state.Keys) *state.Sealed {
	return keys.Seal(sealedKey, &state.Record{Version: state.Version{1}, State: state.Settled, Created: 1, Updated: 1})
}

func opens(keys *state.Keys, s *state.Sealed) error {
	_, err := keys.Open(sealedKey, s)
	return err
}

func TestASigningKeyIsAcceptedEverywhereBeforeItSigns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := create(t, "default")
	k := f.other()
	old := signs(t, k, "default")
	added, err := f.RotateSigning(ctx, "default")
	check(t, err)
	if added.Signs || !added.Own || !added.SignsFrom.Equal(start.Add(keyring.Propagation)) {
		t.Fatalf("added: %+v", added)
	}
	_, err = k.Reload()
	check(t, err)
	f.at.Advance(keyring.Propagation - time.Millisecond)
	for _, each := range []*keyring.Keyring{f.Keyring, k} {
		if !signs(t, each, "default").Equal(old) || !accepts(each, "default", added.Key) {
			t.Fatal("before its time the new key must be accepted and not sign")
		}
	}
	f.at.Advance(time.Millisecond)
	for _, each := range []*keyring.Keyring{f.Keyring, k} {
		if !signs(t, each, "default").Equal(added.Key) || !accepts(each, "default", old) {
			t.Fatal("from its time on the new key signs and the old one stays accepted")
		}
	}

	check(t, f.Retire(ctx, "default", old))
	if accepts(f.Keyring, "default", old) {
		t.Fatal("retired and still accepted")
	}
	wantErr(t, f.Retire(ctx, "default", old), keyring.ErrNoKey)
}

func TestAPrivateKeyIsForgottenOnceItsSuccessorSigns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := create(t, "default")
	_, err := f.RotateSigning(ctx, "default")
	check(t, err)
	seeds := func() int {
		data, err := os.ReadFile(f.file())
		check(t, err)
		return bytes.Count(data, []byte(`"seed"`))
	}
	if n := seeds(); n != 2 {
		t.Fatalf("%d private keys while the first one signs", n)
	}
	f.at.Advance(keyring.Propagation)
	_, err = f.Trust(ctx, "default", issuer(1)) // any change
	check(t, err)
	if n := seeds(); n != 1 {
		t.Fatalf("%d private keys after the second one signs", n)
	}
}

func TestALeakedSigningKeyIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := create(t, "default")
	leaked := signs(t, f.Keyring, "default")
	err := f.Retire(ctx, "default", leaked)
	wantErr(t, err, keyring.ErrInUse)
	if !strings.Contains(err.Error(), "counterfoil key rotate") {
		t.Fatalf("it does not say what to do: %v", err)
	}
	added, err := f.RotateSigning(ctx, "default")
	check(t, err)
	check(t, f.Retire(ctx, "default", leaked))
	if !signs(t, f.Keyring, "default").Equal(added.Key) || accepts(f.Keyring, "default", leaked) {
		t.Fatal("the successor must sign and the leaked key be refused")
	}
	if !signs(t, f.other(), "default").Equal(added.Key) {
		t.Fatal("another process signs with another key")
	}
}

func TestAScopeWithoutKeysSignsAndAcceptsNothing(t *testing.T) {
	t.Parallel()
	f := create(t, "default")
	_, err := f.SigningKey("acme")
	wantErr(t, err, keyring.ErrNoSigningKey)
	if f.Accepted("acme") != nil || f.List("acme") != nil || len(f.JWKS("acme").Keys) != 0 {
		t.Fatal("keys out of nothing")
	}
	added, err := f.RotateSigning(t.Context(), "acme")
	check(t, err)
	if !added.Signs || !signs(t, f.Keyring, "acme").Equal(added.Key) {
		t.Fatal("a scope's first key must sign at once")
	}
	// Trusting others gives no key to sign with.
	_, err = f.Trust(t.Context(), "verifier", issuer(1))
	check(t, err)
	_, err = f.SigningKey("verifier")
	wantErr(t, err, keyring.ErrNoSigningKey)
}

func TestAPublicKeyIsAcceptedInOneScopeOnly(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := create(t, "default", "acme")
	_, err := f.Trust(ctx, "default", issuer(1))
	check(t, err)
	for _, key := range []ed25519.PublicKey{issuer(1), signs(t, f.Keyring, "default")} {
		for _, scope := range []string{"default", "acme"} {
			_, err = f.Trust(ctx, scope, key)
			wantErr(t, err, keyring.ErrTaken)
		}
		if accepts(f.Keyring, "acme", key) {
			t.Fatal("accepted in a second scope")
		}
	}
}

func TestARetiredKeyStaysClosedToOtherScopesWhileItsPermitsMayLive(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := create(t, "default", "acme")
	_, err := f.Trust(ctx, "default", issuer(1))
	check(t, err)
	check(t, f.Retire(ctx, "default", issuer(1)))
	f.at.Advance(keyring.RetiredKept)
	_, err = f.Trust(ctx, "acme", issuer(1))
	wantErr(t, err, keyring.ErrTaken)
	_, err = f.Trust(ctx, "default", issuer(1)) // its own scope remembers what was used
	check(t, err)
	check(t, f.Retire(ctx, "default", issuer(1)))
	f.at.Advance(keyring.RetiredKept + time.Millisecond)
	_, err = f.Trust(ctx, "acme", issuer(1))
	check(t, err)
}

func TestTrustRefusesKeysUnderWhichASignatureProvesNothing(t *testing.T) {
	t.Parallel()
	f := create(t, "default")
	for name, key := range map[string]ed25519.PublicKey{
		"identity":      append(ed25519.PublicKey{1}, make([]byte, 31)...),
		"zero":          make(ed25519.PublicKey, 32),
		"not canonical": append(append(ed25519.PublicKey{0xee}, bytes.Repeat([]byte{0xff}, 30)...), 0x7f),
		"no point":      append(ed25519.PublicKey{2}, make([]byte, 31)...),
		"short":         issuer(1)[:31],
		"empty":         nil,
	} {
		if _, err := f.Trust(t.Context(), "default", key); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	for _, scope := range []string{"", "_store", "a\x00b", strings.Repeat("x", 257)} {
		if _, err := f.Trust(t.Context(), scope, issuer(1)); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("scope %.10q: %v, want ErrInvalid", scope, err)
		}
		if _, err := f.RotateSigning(t.Context(), scope); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("scope %.10q: %v, want ErrInvalid", scope, err)
		}
	}
}

func TestTheNumberOfKeysIsBounded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := create(t, "default")
	n := byte(1)
	for ; len(f.Accepted("default")) < keyring.MaxAccepted; n++ {
		_, err := f.Trust(ctx, "default", issuer(n))
		check(t, err)
	}
	_, err := f.Trust(ctx, "default", issuer(n))
	wantErr(t, err, keyring.ErrFull)
	_, err = f.RotateSigning(ctx, "default")
	wantErr(t, err, keyring.ErrFull)

	// Adding and retiring in turn is bounded too, and retiring itself never is.
	for {
		check(t, f.Retire(ctx, "default", issuer(n-1)))
		if _, err = f.Trust(ctx, "default", issuer(n)); err != nil {
			break
		}
		n++
	}
	wantErr(t, err, keyring.ErrFull)
	for _, key := range f.List("default") {
		if !key.Signs {
			check(t, f.Retire(ctx, "default", key.Key))
		}
	}
	f.at.Advance(keyring.RetiredKept + time.Millisecond)
	_, err = f.Trust(ctx, "default", issuer(n))
	check(t, err)
}

func TestListSaysWhatEachKeyIsFor(t *testing.T) {
	t.Parallel()
	f := create(t, "default")
	_, err := f.Trust(t.Context(), "default", issuer(1))
	check(t, err)
	f.at.Advance(time.Second)
	next, err := f.RotateSigning(t.Context(), "default")
	check(t, err)
	list := f.List("default")
	if len(list) != 3 {
		t.Fatalf("%d keys", len(list))
	}
	for i, want := range []struct{ own, signs, waits bool }{{true, true, false}, {false, false, false}, {true, false, true}} {
		if got := list[i]; got.Own != want.own || got.Signs != want.signs || got.SignsFrom.IsZero() == want.waits {
			t.Errorf("key %d: %+v", i, got)
		}
	}
	if !list[2].Key.Equal(next.Key) || !list[2].Added.Equal(start.Add(time.Second)) {
		t.Fatalf("%+v", list[2])
	}
}

func TestJWKSHasTheScopesOwnKeysByThumbprint(t *testing.T) {
	t.Parallel()
	f := create(t, "default", "acme")
	_, err := f.Trust(t.Context(), "default", issuer(1))
	check(t, err)
	next, err := f.RotateSigning(t.Context(), "default")
	check(t, err)
	set := f.JWKS("default")
	if len(set.Keys) != 2 || set.Keys[0].Kid != next.Thumbprint {
		t.Fatalf("%+v", set)
	}
	text, err := json.Marshal(f.JWKS("acme"))
	check(t, err)
	key := f.List("acme")[0]
	want := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"%s","kid":"%s","use":"sig","alg":"EdDSA"}]}`, f.JWKS("acme").Keys[0].X, key.Thumbprint)
	if string(text) != want {
		t.Fatalf("%s\nwant %s", text, want)
	}
	if text, err = json.Marshal(f.JWKS("none")); err != nil || string(text) != `{"keys":[]}` {
		t.Fatalf("unknown scope: %s, %v", text, err)
	}
}

// The key and thumbprint of RFC 8037, appendix A.
func TestThumbprintIsThatOfTheStandard(t *testing.T) {
	t.Parallel()
	k, err := keyring.NewMemory(keyring.Options{}, "default")
	check(t, err)
	public, err := ed25519PublicKey("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
	check(t, err)
	added, err := k.Trust(t.Context(), "default", public)
	check(t, err)
	if added.Thumbprint != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Fatal(added.Thumbprint)
	}
}

func ed25519PublicKey(hex string) (ed25519.PublicKey, error) {
	var key []byte
	_, err := fmt.Sscanf(hex, "%x", &key)
	return key, err
}

func TestAnInMemoryKeyringOfOneSeedIsTheSameEveryTime(t *testing.T) {
	t.Parallel()
	seeded := func(seed uint64) *keyring.Keyring {
		k, err := keyring.NewMemory(keyring.Options{Clock: clock.NewManual(start), Entropy: entropy.Seeded(seed)}, "default")
		check(t, err)
		_, err = k.RotateSigning(t.Context(), "acme")
		check(t, err)
		return k
	}
	a, b, c := seeded(1), seeded(1), seeded(2)
	for _, scope := range []string{"default", "acme"} {
		if !signs(t, a, scope).Equal(signs(t, b, scope)) || signs(t, a, scope).Equal(signs(t, c, scope)) {
			t.Fatal("keys must depend on the seed alone")
		}
	}
	if a.Integrity().WriteID() != b.Integrity().WriteID() {
		t.Fatal("integrity keys must depend on the seed alone")
	}
}

func TestNothingChangesWithoutRandomness(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	o := keyring.Options{Entropy: entropy.Failing}
	_, err := keyring.Create(t.Context(), path, o, "default")
	wantErr(t, err, entropy.ErrExhausted)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("something was created: %v", err)
	}
	f := create(t, "default")
	before, err := os.ReadFile(f.file())
	check(t, err)
	k, err := keyring.Open(f.path, o)
	check(t, err)
	_, err = k.RotateSigning(t.Context(), "default")
	wantErr(t, err, entropy.ErrExhausted)
	_, err = k.AddIntegrity(t.Context())
	wantErr(t, err, entropy.ErrExhausted)
	if after, err := os.ReadFile(f.file()); err != nil || !bytes.Equal(after, before) {
		t.Fatalf("the file changed: %v", err)
	}
}

func TestNothingThatIsShownHoldsASecret(t *testing.T) {
	t.Parallel()
	f := create(t, "default")
	data, err := os.ReadFile(f.file())
	check(t, err)
	secrets := secretsOf(t, data)
	private, err := f.SigningKey("default")
	check(t, err)
	secrets = append(secrets, fmt.Sprintf("%v", [32]byte(private.Seed())))

	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", f.Keyring)
		fmt.Fprintf(&out, verb+"\n", struct{ K *keyring.Keyring }{f.Keyring})
	}
	fmt.Fprintf(&out, "%+v %#v\n", f.List("default"), f.IntegrityKeys())
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "keyring", f.Keyring, "within", struct{ K *keyring.Keyring }{f.Keyring})
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "keyring", f.Keyring)
	check(t, json.NewEncoder(&out).Encode(map[string]any{"k": f.Keyring, "l": f.List("default"), "i": f.IntegrityKeys()}))
	for _, err := range []error{f.Retire(t.Context(), "default", signs(t, f.Keyring, "default")), f.WriteIntegrity(t.Context(), state.KeyID{1})} {
		fmt.Fprintf(&out, "%v %+v\n", err, err)
	}
	check(t, os.Truncate(f.file(), int64(len(data)-100)))
	_, err = keyring.Open(f.path, keyring.Options{})
	fmt.Fprintf(&out, "%v %+v %#v\n", err, err, err)

	for _, secret := range secrets {
		if strings.Contains(out.String(), secret) {
			t.Errorf("shown: %s", secret)
		}
	}
	if !strings.Contains(out.String(), "keyring(1 scopes, 1 integrity keys)") {
		t.Fatalf("the keyring is not shown at all:\n%s", out.String())
	}
}

// secretsOf finds the secrets of a file by its members' names, in hex and as fmt shows bytes.
func secretsOf(t *testing.T, file []byte) []string {
	t.Helper()
	var list []string
	for _, name := range []string{`"seed":"`, `"key":"`} {
		_, rest, ok := strings.Cut(string(file), name)
		if !ok {
			t.Fatalf("the file has no %s", name)
		}
		list = append(list, rest[:64], rest[:16])
	}
	return list
}

func TestConcurrentChangesOfTwoProcessesAllLast(t *testing.T) {
	t.Parallel()
	f := create(t, "default")
	processes := []*keyring.Keyring{f.Keyring, f.other()}
	var wg sync.WaitGroup
	const each = 6
	for p, k := range processes {
		for i := range each {
			wg.Go(func() {
				scope := fmt.Sprintf("scope-%d-%d", p, i)
				if _, err := k.RotateSigning(t.Context(), scope); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() { // readers see whole states meanwhile
			for range 500 {
				for _, scope := range k.Scopes() {
					key, err := k.SigningKey(scope)
					if err != nil || !accepts(k, scope, key.Public().(ed25519.PublicKey)) {
						t.Errorf("scope %s signs with what it does not accept: %v", scope, err)
						return
					}
				}
				k.Integrity().WriteID()
			}
		})
		wg.Go(func() {
			for range 20 {
				if _, err := k.Reload(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(f.other().Scopes()); got != 1+len(processes)*each {
		t.Fatalf("%d scopes, want %d: a change was lost", got, 1+len(processes)*each)
	}
}

func TestAChangeWaitsForTheLockOnlySoLong(t *testing.T) {
	t.Parallel()
	f := create(t, "default")
	ctx, cancel := context.WithCancel(t.Context())
	unlock := hold(t, filepath.Join(f.path, "lock"))
	cancel()
	_, err := f.RotateSigning(ctx, "default")
	wantErr(t, err, keyring.ErrUnavailable)
	if !strings.Contains(err.Error(), "lock") {
		t.Fatalf("it does not say why: %v", err)
	}
	unlock()
	_, err = f.RotateSigning(t.Context(), "default")
	check(t, err)
}
