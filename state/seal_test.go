package state_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/state"
)

func secret(b byte) []byte { return bytes.Repeat([]byte{b}, state.IntegrityKeyBytes) }

func newKeys(t testing.TB, write byte, more ...byte) *state.Keys {
	t.Helper()
	all := [][]byte{secret(write)}
	for _, b := range more {
		all = append(all, secret(b))
	}
	keys, err := state.NewKeys(state.IntegrityKeyID(secret(write)), all)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// everyRecord gives a sealed record of each kind, with all its fields.
func everyRecord(t testing.TB) (map[state.Key]*state.Sealed, *state.Keys) {
	t.Helper()
	r := newRig(t)
	r.define("a/b", 100, state.Window{Kind: state.WindowMonth, Zone: "America/New_York"})
	r.define("a/c", 1000, lifetime, "a/b")
	r.give(held(start+hour), 5, "a/b")
	r.give(held(start+day), 6, "a/b")
	r.give(fenced, 7, "a/b")
	spends := &state.Batch{Scope: "s", Ops: anchored(r.moves(state.Move{Window: state.CurrentWindow, Give: spent, GiveAmount: 8}, "a/b")...), Keep: true}
	r.run(spends)
	r.applies(state.Raise{Key: key(state.KindFloor, "f"), To: start})
	r.applies(state.Add{Key: key(state.KindCounter, "c"), Amount: state.MaxAmount})
	r.applies(state.PutKeyCheck{Key: key(state.KindKeyCheck, "k"), Digest: state.Digest{1}})
	for _, k := range []state.Key{key(state.KindMarker, "m"), key(state.KindChallenge, "j"), hold("h"), op("pending"), op("receipt"), op("void"), op("tomb"), key(state.KindCredential, "c"), key(state.KindApproval, "a")} {
		r.applies(change(claim(k), func(o *state.Claim) {
			if o.State == state.Pending {
				o.Lease = start + hour
			}
		}))
	}
	r.applies(state.Settle{Key: op("receipt"), Token: state.Token{1}, NewToken: state.Token{2}, Given: state.Digest{3}, Body: bytes.Repeat([]byte("r"), 500), Retain: start + day, Expires: start + 2*day})
	r.applies(state.Settle{Key: op("tomb"), Token: state.Token{1}, Body: bytes.Repeat([]byte("r"), 500), Retain: start + 1, Expires: start + 30*day})
	r.applies(state.Drop{Key: op("void"), Token: state.Token{1}, Why: []byte("why")})
	r.change(func(s *state.Scope) { s.Quarantine, s.Note, s.Lineage, s.Floor = "why", "note", "replid", start })
	r.Now++
	r.applies(state.Sweep{Key: op("tomb")})
	writer := state.NewWriterRecord(state.Writer{Instance: [16]byte{1}, Mark: start, Lease: start + minute}, state.Version{7}, start)
	r.Records[state.WriterKey("s", 1)] = r.Keys.Seal(state.WriterKey("s", 1), writer)
	return r.Records, r.Keys
}

func TestEveryKindIsSealedAndOpened(t *testing.T) {
	t.Parallel()
	records, keys := everyRecord(t)
	seen := map[state.Kind]bool{}
	for k, s := range records {
		seen[k.Kind] = true
		rec, err := keys.Open(k, s)
		if err != nil {
			t.Errorf("%s: %v", k.Kind, err)
			continue
		}
		if again := keys.Seal(k, rec); !reflect.DeepEqual(s, again) {
			t.Errorf("%s: sealed again it differs", k.Kind)
		}
		if rec.Version != s.Version {
			t.Errorf("%s: the version is lost", k.Kind)
		}
	}
	for _, k := range state.Kinds() {
		if !seen[k] {
			t.Errorf("no %s record", k)
		}
	}
	if w := opened(t, keys, records, state.WriterKey("s", 1)).Writer(); w.Instance != [16]byte{1} || w.Mark != start || w.Lease != start+minute {
		t.Errorf("writer %+v", w)
	}
	scope := *opened(t, keys, records, state.ScopeKey("s")).Scope()
	if scope.Quarantine != "why" || scope.Note != "note" || scope.Lineage != "replid" || scope.Floor != start || scope.Writers != 3 || scope.Caps != state.DefaultCaps() {
		t.Errorf("scope %+v", scope)
	}
}

func opened(t *testing.T, keys *state.Keys, records map[state.Key]*state.Sealed, k state.Key) *state.Record {
	t.Helper()
	rec, err := keys.Open(k, records[k])
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestSealedRecordIsStable: the format is what is on disks already. The data is
// format 1, the key's id, the fields and the HMAC.
func TestSealedRecordIsStable(t *testing.T) {
	t.Parallel()
	keys := newKeys(t, 7)
	rec := &state.Record{
		Version: state.Version{1, 2, 3}, State: state.Settled, Shard: 2, Token: state.Token{4}, Owner: "ann", Digest: state.Digest{5}, Given: state.Digest{6},
		Created: start, Updated: start + 1, Expires: start + day, Retain: start + hour, Fence: start * 1000, Body: []byte("receipt"), Result: []byte{0},
	}
	const want = "0109b2246d02fd1a02809cecc48c34819cecc48c3403616e6e04000000000000000000000000000000" +
		"0500000000000000000000000000000000000000000000000000000000000000060000000000000000000000000000000000000000000000000000000000000080" +
		"d485ee8c3480f9c7c68c3480e0baedf981970307726563656970740100bfd977ec8188f69a63584063f2cacc89a9599c7c726c87935d2e2dd319dbfe58"
	if got := hex.EncodeToString(keys.Seal(op("x"), rec).Data); got != want {
		t.Errorf("sealed as\n%s, want\n%s", got, want)
	}
}

// TestTamperedRecordIsCorrupt: every bit of the data, and all that stands in
// the clear beside it.
func TestTamperedRecordIsCorrupt(t *testing.T) {
	t.Parallel()
	records, keys := everyRecord(t)
	corrupt := func(what string, k state.Key, s *state.Sealed, want error) {
		t.Helper()
		rec, err := keys.Open(k, s)
		var of *state.RecordError
		if rec != nil || !errors.Is(err, want) || !errors.As(err, &of) || of.Key != k {
			t.Errorf("%s of a %s record: %v", what, k.Kind, err)
		}
	}
	for k, s := range records {
		for i := range s.Data {
			for _, bit := range []byte{1, 0x80} {
				c := *s
				c.Data = bytes.Clone(s.Data)
				c.Data[i] ^= bit
				want := state.ErrCorrupt
				if i >= 1 && i <= len(state.KeyID{}) {
					want = state.ErrKeyUnknown
				}
				corrupt("byte", k, &c, want)
			}
		}
		for n := range s.Data {
			c := *s
			c.Data = s.Data[:n]
			corrupt("length", k, &c, state.ErrCorrupt)
		}
		for what, c := range map[string]state.Sealed{
			"version":   {Version: state.Version{9}, Expiry: s.Expiry, Lease: s.Lease, Data: s.Data},
			"no vers":   {Expiry: s.Expiry, Lease: s.Lease, Data: s.Data},
			"expiry":    {Version: s.Version, Expiry: s.Expiry + 1, Lease: s.Lease, Data: s.Data},
			"lease":     {Version: s.Version, Expiry: s.Expiry, Lease: s.Lease + 1, Data: s.Data},
			"more data": {Version: s.Version, Expiry: s.Expiry, Lease: s.Lease, Data: append(bytes.Clone(s.Data), 0)},
			"no data":   {Version: s.Version, Expiry: s.Expiry, Lease: s.Lease},
		} {
			corrupt(what, k, &c, state.ErrCorrupt)
		}
		other := k
		other.ID += "x"
		corrupt("id", other, s, state.ErrCorrupt)
		other = k
		other.Scope = "t"
		corrupt("scope", other, s, state.ErrCorrupt)
		for _, kind := range state.Kinds() {
			if other = k; kind != k.Kind {
				other.Kind = kind
				corrupt("kind", other, s, state.ErrCorrupt)
			}
		}
	}
}

func TestIntegrityKeysRotate(t *testing.T) {
	t.Parallel()
	rec := &state.Record{Version: state.Version{1}, State: state.Pending, Created: 1, Updated: 1}
	old, both, next := newKeys(t, 1), newKeys(t, 2, 1), newKeys(t, 2)
	sealed := old.Seal(op("x"), rec)
	if _, err := both.Open(op("x"), sealed); err != nil {
		t.Errorf("under an accepted key: %v", err)
	}
	if _, err := next.Open(op("x"), sealed); !errors.Is(err, state.ErrKeyUnknown) || errors.Is(err, state.ErrCorrupt) {
		t.Errorf("under a key that is gone: %v", err)
	}
	if _, err := next.Open(op("x"), both.Seal(op("x"), rec)); err != nil {
		t.Errorf("written under the new key: %v", err)
	}
	if both.WriteID() != state.IntegrityKeyID(secret(2)) || len(both.IDs()) != 2 {
		t.Error("ids")
	}
	a, ok := both.CheckValue(state.IntegrityKeyID(secret(1)))
	b, _ := old.CheckValue(state.IntegrityKeyID(secret(1)))
	c, _ := both.CheckValue(state.IntegrityKeyID(secret(2)))
	if _, unknown := next.CheckValue(state.IntegrityKeyID(secret(1))); !ok || unknown || a != b || a == c {
		t.Error("check values")
	}
}

func TestIntegrityKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write byte
		keys  [][]byte
	}{
		"none": {1, nil}, "short": {1, [][]byte{secret(1)[:31]}}, "long": {1, [][]byte{append(secret(1), 0)}},
		"twice": {1, [][]byte{secret(1), secret(1)}}, "not among them": {1, [][]byte{secret(2)}},
	} {
		if _, err := state.NewKeys(state.IntegrityKeyID(secret(c.write)), c.keys); err == nil || strings.Contains(err.Error(), string(secret(1)[:8])) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTombstoneIsSmall: at most 100 bytes, whatever the receipt was.
func TestTombstoneIsSmall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Now = 1<<42 - 1 // as late as year 2109
	owner := strings.Repeat("o", 256)
	r.appliesAs(2, change(claim(op("x")), func(o *state.Claim) { o.Owner = owner }))
	r.applies(state.Settle{Key: op("x"), Token: state.Token{1}, Body: make([]byte, 1<<20), Retain: r.Now + 1, Expires: r.Now + 30*day})
	r.Now++
	r.applies(state.Sweep{Key: op("x")})
	if n := len(r.Records[op("x")].Data); n > 100 {
		t.Errorf("a tombstone has %d bytes", n)
	}
}

func TestRecordsAreSealedAndOpenedEqual(t *testing.T) {
	t.Parallel()
	keys := newKeys(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]state.Kind{state.KindOperation, state.KindChallenge, state.KindHold, state.KindCredential}).Draw(t, "kind")
		at := rapid.Int64Range(0, state.MaxAmount)
		fixed := func(label string, n int) []byte {
			b := make([]byte, n)
			if rapid.Bool().Draw(t, label) {
				b[n-1] = 1
			}
			return b
		}
		body := rapid.SliceOfN(rapid.Byte(), 0, 200)
		rec := &state.Record{
			Version: state.Version{1}, State: rapid.SampledFrom([]state.State{state.Pending, state.Settled, state.Void}).Draw(t, "state"),
			Shard: rapid.Uint16Range(0, state.MaxWriters-1).Draw(t, "shard"), Token: state.Token(fixed("token", 16)), Digest: state.Digest(fixed("digest", 32)),
			Given: state.Digest(fixed("given", 32)), Created: at.Draw(t, "created"), Updated: at.Draw(t, "updated"), Expires: at.Draw(t, "expires"),
			Retain: at.Draw(t, "retain"), Lease: at.Draw(t, "lease"), Fence: rapid.Uint64().Draw(t, "fence"), Epoch: rapid.Uint64().Draw(t, "epoch"),
			Generation: rapid.Uint64().Draw(t, "generation"), Body: body.Draw(t, "body"), Result: body.Draw(t, "result"),
			Owner: rapid.StringN(0, 20, 256).Draw(t, "owner"),
		}
		if rec.OwnerTag = state.TagOwner(rec.Owner); rec.Owner == "" {
			rec.OwnerTag = state.OwnerTag(fixed("tag", 16))
		}
		rec.Tomb = rec.State == state.Settled && rapid.Bool().Draw(t, "tomb")
		k := key(kind, "x")
		sealed := keys.Seal(k, rec)
		got, err := keys.Open(k, sealed)
		if err != nil {
			t.Fatal(err)
		}
		if len(rec.Body) == 0 {
			rec.Body = nil
		}
		if len(rec.Result) == 0 {
			rec.Result = nil
		}
		if !reflect.DeepEqual(got, rec) {
			t.Fatalf("%+v was opened as %+v", rec, got)
		}
	})
}
