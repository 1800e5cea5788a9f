package operation

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

// Limits of what an operation takes.
const (
	MinLease        = time.Second
	MaxLease        = time.Hour
	DefaultLease    = 30 * time.Second
	MaxMetadata     = 4 << 10  // bytes
	MaxText         = 1024     // bytes of a reason or note
	MaxStatus       = 999      // of a receipt
	MaxHeaderNames  = 64       // of a receipt
	MaxHeaderBytes  = 16 << 10 // of a receipt's headers together
	MaxContentType  = 256      // bytes
	MaxReceiptLimit = 15 << 20 // bytes: the largest size limit of receipts that can be set
)

// ID is the id of an owner's operation, as a client can compute it too: 64 lower-case hex digits.
func ID(owner, key string) string { return ids.Operation(owner, key) }

// recordKey is the key of the record of an operation.
func recordKey(scope, id string) (state.Key, error) {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != sha256.Size || hex.EncodeToString(raw) != id {
		return state.Key{}, invalidf("the id of an operation is 64 lower-case hex digits")
	}
	return state.Key{Scope: scope, Kind: state.KindOperation, ID: string(raw)}, nil
}

func checkName(what, name string) error {
	if err := state.CheckName(name); err != nil {
		return invalidf("%s: %v", what, err)
	}
	return nil
}

// leaseOf gives a lease in ms, the default one for 0.
func leaseOf(lease time.Duration) (int64, error) {
	if lease == 0 {
		lease = DefaultLease
	}
	if lease < MinLease || lease > MaxLease {
		return 0, invalidf("a lease is %s to %s", MinLease, MaxLease)
	}
	return lease.Milliseconds(), nil
}

func checkMetadata(metadata []byte) error {
	if metadata == nil {
		return nil
	}
	var object map[string]jsontext.Value
	if err := canonical.DecodeLimited(metadata, MaxMetadata, &object); err != nil {
		return invalidf("the metadata must be a JSON object of at most %d bytes: %v", MaxMetadata, err)
	}
	return nil
}

func checkText(what, text string, required bool) error {
	switch {
	case text == "" && required:
		return invalidf("the %s is missing", what)
	case len(text) > MaxText:
		return invalidf("the %s has %d bytes, the limit is %d", what, len(text), MaxText)
	case !utf8.ValidString(text):
		return invalidf("the %s is not valid UTF-8", what)
	}
	return nil
}

func (r *Receipt) validate() error {
	if r.Status < 0 || r.Status > MaxStatus {
		return invalidf("the status of a receipt is 0 to %d", MaxStatus)
	}
	if len(r.ContentType) > MaxContentType || !utf8.ValidString(r.ContentType) {
		return invalidf("the content type of a receipt has at most %d bytes of UTF-8", MaxContentType)
	}
	if len(r.Headers) > MaxHeaderNames {
		return invalidf("a receipt has at most %d headers", MaxHeaderNames)
	}
	size := 0
	for name, values := range r.Headers {
		if name == "" || !utf8.ValidString(name) {
			return invalidf("a header of a receipt has no name of UTF-8")
		}
		size += len(name)
		for _, v := range values {
			if size += len(v) + 1; !utf8.ValidString(v) {
				return invalidf("a header of a receipt is not valid UTF-8")
			}
		}
	}
	if size > MaxHeaderBytes {
		return invalidf("the headers of a receipt have more than %d bytes", MaxHeaderBytes)
	}
	if r.JSON {
		var value jsontext.Value
		if err := canonical.Decode(r.Body, &value); err != nil {
			return invalidf("the JSON body of a receipt: %v", err)
		}
	}
	return nil
}

// notRetained describes a receipt that is not kept.
func notRetained(r *Receipt) *NotRetained {
	return &NotRetained{Digest: sha256.Sum256(r.Body), Length: len(r.Body)}
}

// given is the digest of what a holder or operator gave to settle an operation, by which a repetition is recognised.
// Retention and limits are policy and no part of it.
func given(outcome Outcome, receipt *Receipt, capture *[]Amount) state.Digest {
	var captured []byte
	if capture != nil {
		captured = appendAmounts([]byte{1}, *capture)
	}
	return ids.Hash("counterfoil.given.v1", []byte(outcome), appendReceipt(nil, receipt), captured)
}
