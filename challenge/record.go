package challenge

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// The bodies of challenge records, by their first byte. A pending one is the nonce; a marker is when the challenge was
// issued and when it would have expired, both in ms, 8 bytes big-endian each.
const (
	bodyPending byte = 1
	bodyMarker  byte = 2
)

func pendingBody(nonce Nonce) []byte {
	return append([]byte{bodyPending}, nonce[:]...)
}

// nonceOf reads the nonce of a pending record.
func nonceOf(r *state.Record) (Nonce, error) {
	var n Nonce
	if len(r.Body) != 1+len(n) || r.Body[0] != bodyPending {
		return n, corrupt(r)
	}
	copy(n[:], r.Body[1:])
	return n, nil
}

// markerBody is what a marker keeps of the pending record r.
func markerBody(r *state.Record) []byte {
	body := append(make([]byte, 0, 17), bodyMarker)
	body = binary.BigEndian.AppendUint64(body, uint64(r.Updated)) //nolint:gosec // a record's times are never negative.
	return binary.BigEndian.AppendUint64(body, uint64(r.Expires)) //nolint:gosec // as above.
}

// window tells when a challenge was issued and when it expires or would have. A pending record is written only by an
// issue, so that its last update is when it was issued.
func window(r *state.Record) (issued, expires int64, err error) {
	if r.State == state.Pending {
		return r.Updated, r.Expires, nil
	}
	if len(r.Body) != 17 || r.Body[0] != bodyMarker {
		return 0, 0, corrupt(r)
	}
	issued = int64(binary.BigEndian.Uint64(r.Body[1:]))  //nolint:gosec // checked below.
	expires = int64(binary.BigEndian.Uint64(r.Body[9:])) //nolint:gosec // checked below.
	if issued < 0 || expires < issued || expires > state.MaxAmount {
		return 0, 0, corrupt(r)
	}
	return issued, expires, nil
}

// over reports whether a pending record can be consumed no more.
func over(r *state.Record, s *state.Scope, now int64) bool {
	return r.Epoch != s.Epoch || r.Generation != s.Generation || now >= r.Expires
}

func corrupt(r *state.Record) error {
	return fmt.Errorf("challenge: %w: the body of a %s record", state.ErrCorrupt, r.State)
}

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
