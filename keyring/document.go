package keyring

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil/internal/pubkey"
	"github.com/counterfoil/counterfoil/state"
)

// Limits. They bound the file, the memory and the cost of a forged permit, which is tried with every accepted key.
const (
	MaxIntegrity = 16     // integrity keys
	MaxScopes    = 10_000 // scopes with keys
	MaxAccepted  = 32     // public keys accepted in one scope
	maxRetired   = 64     // keys of one scope that are remembered as retired; beyond, no new one is added to it
	maxFile      = 32 << 20
)

// Times of rotation. Every process takes up a change within ReloadEvery; Propagation leaves room for slow ones and for
// clocks that differ by a few seconds.
const (
	ReloadEvery = 2 * time.Second
	Propagation = 15 * time.Second
	RetiredKept = 24 * time.Hour
)

type public [ed25519.PublicKeySize]byte

func (p public) String() string { return hex.EncodeToString(p[:]) }

// document is the content of a keyring. Once it is part of a snapshot it does not change.
type document struct {
	id        [16]byte // of the keyring, drawn when it was created
	serial    uint64   // rises with every change
	write     state.KeyID
	integrity []integrityKey // in the order in which they were added
	scopes    map[string]*scopeKeys
}

type integrityKey struct {
	key   secret
	added int64 // Unix ms, as all times here
}

func (k integrityKey) id() state.KeyID { return state.IntegrityKeyID(k.key.bytes[:]) }

type scopeKeys struct {
	accepted []acceptedKey // in the order in which they were added
	retired  []retiredKey
}

type acceptedKey struct {
	public public
	seed   secret // of the private key; none if another issuer's, or once a successor signs
	own    bool   // generated here
	added  int64
	signs  int64 // own: from then on it is the one that signs
}

type retiredKey struct {
	public public
	at     int64
}

// clone copies d so that the copy can be changed.
func (d *document) clone() *document {
	c := *d
	c.integrity = slices.Clone(d.integrity)
	c.scopes = make(map[string]*scopeKeys, len(d.scopes))
	for name, s := range d.scopes {
		c.scopes[name] = &scopeKeys{accepted: slices.Clone(s.accepted), retired: slices.Clone(s.retired)}
	}
	return &c
}

// names lists the scopes in byte order.
func (d *document) names() []string { return slices.Sorted(maps.Keys(d.scopes)) }

func (d *document) findIntegrity(id state.KeyID) int {
	return slices.IndexFunc(d.integrity, func(k integrityKey) bool { return k.id() == id })
}

func (s *scopeKeys) find(pub public) int {
	return slices.IndexFunc(s.accepted, func(k acceptedKey) bool { return k.public == pub })
}

// signer returns the position of the key that signs at now, or −1. Should the clock say that none is due yet, it is the
// one that is due first: it is accepted everywhere as well.
func (s *scopeKeys) signer(now int64) int {
	at := -1
	for i, k := range s.accepted {
		switch {
		case k.seed.isZero():
		case at < 0, k.signs <= now && k.signs >= s.accepted[at].signs, s.accepted[at].signs > now && k.signs < s.accepted[at].signs:
			at = i
		}
	}
	return at
}

// tidy forgets private keys whose successor signs, and retired keys that no living permit can name.
func (d *document) tidy(now int64) {
	for _, s := range d.scopes {
		if at := s.signer(now); at >= 0 {
			for i := range s.accepted {
				if k := &s.accepted[i]; !k.seed.isZero() && i != at && k.signs <= min(now, s.accepted[at].signs) {
					k.seed = secret{}
				}
			}
		}
		s.retired = slices.DeleteFunc(s.retired, func(k retiredKey) bool { return now-k.at > RetiredKept.Milliseconds() })
	}
}

// check says what keeps d from being a keyring, or nothing. Keys that are in known as they are here were checked before.
func (d *document) check(known *document) error {
	if err := d.checkIntegrity(); err != nil {
		return err
	}
	if len(d.scopes) > MaxScopes {
		return fmt.Errorf("more than %d scopes", MaxScopes)
	}
	taken := make(map[public]bool, 2*len(d.scopes))
	for name, s := range d.scopes {
		if err := state.CheckScopeName(name); err != nil {
			return err
		}
		var before *scopeKeys
		if known != nil {
			before = known.scopes[name]
		}
		if err := s.check(before, taken); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) checkIntegrity() error {
	if len(d.integrity) > MaxIntegrity {
		return fmt.Errorf("more than %d integrity keys", MaxIntegrity)
	}
	if d.serial == 0 || d.serial > state.MaxAmount {
		return errors.New("the serial is out of range")
	}
	ids := map[state.KeyID]bool{}
	for _, k := range d.integrity {
		if ids[k.id()] {
			return errors.New("two integrity keys have the same id")
		}
		ids[k.id()] = true
		if err := checkTime(k.added); err != nil {
			return err
		}
	}
	if !ids[d.write] {
		return errors.New("the integrity key to write with is missing")
	}
	return nil
}

func (s *scopeKeys) check(before *scopeKeys, taken map[public]bool) error {
	if len(s.accepted) > MaxAccepted || len(s.retired) > maxRetired+MaxAccepted {
		return errors.New("too many keys in one scope")
	}
	for _, k := range s.accepted {
		if taken[k.public] {
			return errors.New("a public key stands twice")
		}
		taken[k.public] = true
		if err := k.check(before); err != nil {
			return err
		}
	}
	for _, k := range s.retired {
		if taken[k.public] {
			return errors.New("a retired public key stands twice")
		}
		taken[k.public] = true
		if err := checkTime(k.at); err != nil {
			return err
		}
	}
	return nil
}

func (k acceptedKey) check(before *scopeKeys) error {
	if err := checkTime(k.added, k.signs); err != nil {
		return err
	}
	if !k.own && (!k.seed.isZero() || k.signs != 0) {
		return errors.New("a key of another issuer cannot sign")
	}
	if before != nil {
		if i := before.find(k.public); i >= 0 {
			if old := before.accepted[i].seed; k.seed.isZero() || !old.isZero() && *old.bytes == *k.seed.bytes {
				return nil
			}
		}
	}
	if !k.seed.isZero() && public(publicOf(k.seed)) != k.public {
		return errors.New("a private key does not belong to its public key")
	}
	return pubkey.Vet(k.public[:])
}

func privateOf(seed secret) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(seed.bytes[:]) }

func publicOf(seed secret) ed25519.PublicKey {
	return privateOf(seed).Public().(ed25519.PublicKey) //nolint:forcetypeassert // as the package documents.
}

func checkTime(times ...int64) error {
	for _, t := range times {
		if t < 0 || t > state.MaxAmount {
			return errors.New("a time is out of range")
		}
	}
	return nil
}

// snapshot is a document made ready for readers.
type snapshot struct {
	doc       *document
	integrity *state.Keys
	scopes    map[string]*scopeSnapshot
	file      [sha256.Size]byte // of the file that it was read from or written to
}

type scopeSnapshot struct {
	signers  []signer // the latest first
	accepted []ed25519.PublicKey
}

type signer struct {
	from    int64
	private ed25519.PrivateKey
}

// newSnapshot checks d. What it shares with before is taken over from there.
func newSnapshot(d *document, before *snapshot) (*snapshot, error) {
	var known *document
	if before != nil {
		known = before.doc
	}
	if err := d.check(known); err != nil {
		return nil, err
	}
	keys := make([][]byte, len(d.integrity))
	for i, k := range d.integrity {
		keys[i] = k.key.bytes[:]
	}
	integrity, err := state.NewKeys(d.write, keys)
	if err != nil {
		return nil, err
	}
	at := &snapshot{doc: d, integrity: integrity, scopes: make(map[string]*scopeSnapshot, len(d.scopes))}
	for name, s := range d.scopes {
		at.scopes[name] = s.snapshot()
	}
	return at, nil
}

func (s *scopeKeys) snapshot() *scopeSnapshot {
	at := &scopeSnapshot{}
	byUse := slices.Clone(s.accepted)
	slices.SortStableFunc(byUse, func(a, b acceptedKey) int {
		return cmp.Or(-compareBool(!a.seed.isZero(), !b.seed.isZero()), -compareBool(a.own, b.own), cmp.Compare(b.signs, a.signs))
	})
	for _, k := range byUse {
		if !k.seed.isZero() {
			at.signers = append(at.signers, signer{from: k.signs, private: privateOf(k.seed)})
		}
		at.accepted = append(at.accepted, slices.Clone(k.public[:]))
	}
	return at
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// sum is over the exact bytes of the file's keyring member, so that it finds every damage.
func sum(body []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte("counterfoil.keyring.v1\x00"), body...))
}
