package keyring

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/private"
	"github.com/counterfoil/counterfoil/state"
)

// Options says where time and randomness come from. The zero value means the machine's.
type Options struct {
	Clock   clock.Clock
	Entropy entropy.Source
}

func (o Options) orSystem() Options {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Entropy == nil {
		o.Entropy = entropy.System
	}
	return o
}

// Keyring gives the keys of a store. All methods may be called concurrently. Those that only read ([Keyring.Integrity],
// [Keyring.SigningKey], [Keyring.Accepted] and the lists) take no lock and touch no file, and each call sees one whole
// state of the keyring.
type Keyring struct {
	clock   clock.Clock
	entropy entropy.Source
	storage storage
	current atomic.Pointer[snapshot]

	mu    sync.Mutex    // of what follows, and of replacing current
	stamp private.Stamp // of the file that current was read from
}

// Create makes a keyring with one integrity key, and one signing key for each of the scopes, in the directory at path,
// which is created if absent; its parent must exist. It fails with [ErrExists] if there is a keyring and with
// [ErrForeign] if there is anything else.
func Create(ctx context.Context, path string, o Options, scopes ...string) (*Keyring, error) {
	o = o.orSystem()
	data, err := first(o, scopes)
	if err != nil {
		return nil, err
	}
	if err := directory(path).create(ctx, data); err != nil {
		return nil, err
	}
	return Open(path, o)
}

// Open reads the keyring in the directory at path. It creates and changes nothing.
func Open(path string, o Options) (*Keyring, error) { return open(directory(path), o.orSystem()) }

// NewMemory makes a keyring like [Create] that lives in this process alone. With [entropy.Seeded] it is the same every
// time, for tests.
func NewMemory(o Options, scopes ...string) (*Keyring, error) {
	o = o.orSystem()
	data, err := first(o, scopes)
	if err != nil {
		return nil, err
	}
	return open(&memory{data: data}, o)
}

// first is the file of a new keyring.
func first(o Options, scopes []string) ([]byte, error) {
	now := o.Clock.Now().UnixMilli()
	d := &document{serial: 1, scopes: map[string]*scopeKeys{}}
	if err := o.Entropy.Fill(d.id[:]); err != nil {
		return nil, err
	}
	key, err := newIntegrity(o.Entropy, now)
	if err != nil {
		return nil, err
	}
	d.integrity, d.write = []integrityKey{key}, key.id()
	for _, name := range scopes {
		if _, err := d.rotate(o.Entropy, name, now); err != nil {
			return nil, err
		}
	}
	if _, err := newSnapshot(d, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return encode(d)
}

func open(s storage, o Options) (*Keyring, error) {
	k := &Keyring{clock: o.Clock, entropy: o.Entropy, storage: s}
	if _, err := k.reload(); err != nil {
		return nil, err
	}
	return k, nil
}

// Reload takes up what other processes changed, and reports whether anything was. It costs next to nothing if the file
// is the same. On an error the keys stay as they were: the caller should say so and turn its health red, because a key
// that was retired meanwhile would still be accepted. A file with an older or another keyring than the one that is open
// is [ErrForeign].
func (k *Keyring) Reload() (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reload()
}

func (k *Keyring) reload() (bool, error) {
	data, stamp, err := k.storage.load(k.stamp)
	if err != nil {
		return false, err
	}
	if data == nil {
		return false, nil
	}
	before := k.current.Load()
	if before != nil && before.file == sha256.Sum256(data) {
		k.stamp = stamp
		return false, nil
	}
	at, err := decode(data, before)
	if err == nil {
		err = at.follows(before)
	}
	if err != nil {
		return false, k.name(err)
	}
	k.stamp = stamp
	k.current.Store(at)
	return true, nil
}

// follows refuses to go from one keyring to another, or back.
func (s *snapshot) follows(before *snapshot) error {
	switch {
	case before == nil:
		return nil
	case s.doc.id != before.doc.id:
		return fmt.Errorf("%w: another keyring stands in the place of the one that was opened; put it back, or restart", ErrForeign)
	case s.doc.serial <= before.doc.serial:
		return fmt.Errorf("%w: the keyring was put back to an older state; put the newest one back, or restart", ErrForeign)
	}
	return nil
}

// name adds to an error which file it is about and what to do.
func (k *Keyring) name(err error) error {
	path, ok := k.storage.(directory)
	switch {
	case !ok:
		return err
	case errors.Is(err, ErrCorrupt):
		return fmt.Errorf("%w; restore %s/%s from a backup, then run: counterfoil key list", err, path, fileName)
	}
	return fmt.Errorf("%w (%s/%s)", err, path, fileName)
}

// Watch calls [Keyring.Reload] every [ReloadEvery] until ctx ends, and report, if not nil, after each call.
func (k *Keyring) Watch(ctx context.Context, report func(changed bool, err error)) {
	tick := time.NewTicker(ReloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			changed, err := k.Reload()
			if report != nil {
				report(changed, err)
			}
		}
	}
}

// Integrity returns the integrity keys, to seal and open records with. The value is the same until the keyring changes.
func (k *Keyring) Integrity() *state.Keys { return k.current.Load().integrity }

// SigningKey returns the key that signs the scope's permits now, or [ErrNoSigningKey]. The caller must not change, show
// or keep it.
func (k *Keyring) SigningKey(scope string) (ed25519.PrivateKey, error) {
	s := k.current.Load().scopes[scope]
	if s == nil || len(s.signers) == 0 {
		return nil, fmt.Errorf("%w; run: counterfoil key rotate --scope NAME", ErrNoSigningKey)
	}
	if len(s.signers) > 1 {
		now := k.clock.Now().UnixMilli()
		for _, signer := range s.signers {
			if signer.from <= now {
				return signer.private, nil
			}
		}
	}
	return s.signers[len(s.signers)-1].private, nil
}

// Accepted returns the public keys whose permits the scope accepts, its own first; none for a scope without keys. Each
// has been vetted. The slice is the same until the keyring changes, and must not be changed.
func (k *Keyring) Accepted(scope string) []ed25519.PublicKey {
	s := k.current.Load().scopes[scope]
	if s == nil {
		return nil
	}
	return s.accepted
}

// change makes a change durable and then visible: it reads the newest state under the lock, lets edit change a copy,
// and writes it.
func (k *Keyring) change(ctx context.Context, edit func(d *document, now int64) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	save, unlock, err := k.storage.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := k.reload(); err != nil {
		return err
	}
	before := k.current.Load()
	now := k.clock.Now().UnixMilli()
	d := before.doc.clone()
	d.serial++
	d.tidy(now)
	if err := edit(d, now); err != nil {
		return err
	}
	at, err := newSnapshot(d, before)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	data, err := encode(d)
	if err != nil {
		return err
	}
	if err := save(data); err != nil {
		return err
	}
	// From here on the change lasts.
	at.file = sha256.Sum256(data)
	k.current.Store(at)
	return nil
}
