package permit

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/counterfoil/counterfoil/internal/canonical"
)

// Schema is the only wire format that is understood.
const Schema = "chio.execution_nonce.v1"

// MaxSize is how many bytes an encoded permit may have.
const MaxSize = 16 << 10

// MaxWindow is the longest time between issued_at and expires_at, in seconds: the longest TTL and one second for
// rounding.
const MaxWindow = 3601

// Binding is the exact call that a permit allows.
type Binding struct {
	SubjectID     string // who acts
	RequestID     string // the one request
	CapabilityID  string // what the subject was given
	ToolServer    string // where it acts
	ToolName      string // what it runs there
	ParameterHash string // with which arguments: see ParameterHash
}

// Nonce is what the issuer signs. Times are whole Unix seconds; it is valid from IssuedAt until just before ExpiresAt.
type Nonce struct {
	ID        string
	IssuedAt  int64
	ExpiresAt int64
	BoundTo   Binding
	// A permit may come with an amount that is held for it; both are empty if it does not.
	ReservedHoldID     string
	ReservingRequestID string
}

// Permit is a signed nonce. A Permit that [Decode] returned is well-formed but not yet verified.
type Permit struct {
	Nonce     Nonce
	Signature [ed25519.SignatureSize]byte
}

// Sign signs n. It fails with [ErrInvalid] if n could not be verified by anybody or priv is no private key.
func Sign(priv ed25519.PrivateKey, n Nonce) (Permit, error) {
	if len(priv) != ed25519.PrivateKeySize {
		return Permit{}, fmt.Errorf("%w: a signing key has %d bytes", ErrInvalid, ed25519.PrivateKeySize)
	}
	if fault := n.fault(); fault != "" {
		return Permit{}, fmt.Errorf("%w: %s", ErrInvalid, fault)
	}
	p := Permit{Nonce: n}
	copy(p.Signature[:], ed25519.Sign(priv, n.appendCanonical(nil)))
	if size := len(Encode(p)); size > MaxSize {
		return Permit{}, fmt.Errorf("%w: the permit has %d bytes, more than %d", ErrInvalid, size, MaxSize)
	}
	return p, nil
}

// fault says what keeps n from being a nonce of this schema, or nothing.
func (n *Nonce) fault() string {
	if n.ID == "" {
		return "nonce_id is empty"
	}
	if n.IssuedAt < 0 || n.ExpiresAt > canonical.MaxInteger {
		return "a time is out of range"
	}
	if n.ExpiresAt <= n.IssuedAt {
		return "expires_at is not after issued_at"
	}
	if n.ExpiresAt-n.IssuedAt > MaxWindow {
		return "expires_at is more than 3601 seconds after issued_at"
	}
	b := &n.BoundTo
	for _, text := range [...]string{n.ID, b.SubjectID, b.RequestID, b.CapabilityID, b.ToolServer, b.ToolName, b.ParameterHash, n.ReservedHoldID, n.ReservingRequestID} {
		if !utf8.ValidString(text) {
			return "a string is not valid UTF-8"
		}
	}
	return ""
}

// Encode returns the wire form of p, which is canonical JSON: the same permit always gives the same bytes.
func Encode(p Permit) []byte {
	dst := make([]byte, 0, 768)
	dst = append(dst, `{"nonce":`...)
	dst = p.Nonce.appendCanonical(dst)
	dst = append(dst, `,"signature":"`...)
	dst = hex.AppendEncode(dst, p.Signature[:])
	return append(dst, `"}`...)
}

// appendCanonical appends the canonical JSON of n, its members in their canonical order. These are the bytes that are
// signed: what is verified is what is acted on.
func (n *Nonce) appendCanonical(dst []byte) []byte {
	b := &n.BoundTo
	dst = appendText(append(dst, `{"bound_to":{`...), `"capability_id":`, b.CapabilityID)
	dst = appendText(dst, `,"parameter_hash":`, b.ParameterHash)
	dst = appendText(dst, `,"request_id":`, b.RequestID)
	dst = appendText(dst, `,"subject_id":`, b.SubjectID)
	dst = appendText(dst, `,"tool_name":`, b.ToolName)
	dst = appendText(dst, `,"tool_server":`, b.ToolServer)
	dst = strconv.AppendInt(append(dst, `},"expires_at":`...), n.ExpiresAt, 10)
	dst = strconv.AppendInt(append(dst, `,"issued_at":`...), n.IssuedAt, 10)
	dst = appendText(dst, `,"nonce_id":`, n.ID)
	if n.ReservedHoldID != "" {
		dst = appendText(dst, `,"reserved_hold_id":`, n.ReservedHoldID)
	}
	if n.ReservingRequestID != "" {
		dst = appendText(dst, `,"reserving_request_id":`, n.ReservingRequestID)
	}
	dst = appendText(dst, `,"schema":`, Schema)
	return append(dst, '}')
}

func appendText(dst []byte, name, value string) []byte {
	return canonical.AppendString(append(dst, name...), value)
}

// Decode reads the wire form strictly: see the package comment for what is refused. Its errors are [ErrMalformed] and
// [ErrUnsupportedSchema].
func Decode(src []byte) (Permit, error) {
	if len(src) > MaxSize {
		return Permit{}, malformed("it has more than 16 KiB", nil)
	}
	r := reader{in: canonical.Scan(src)}
	err := r.in.Object(r.member)
	if err == nil {
		err = r.in.End()
	}
	if err != nil {
		return Permit{}, malformed(err.Error(), err)
	}
	if missing := required &^ r.seen; missing != 0 {
		return Permit{}, malformed("missing member "+memberNames[bits.TrailingZeros32(uint32(missing))], nil)
	}
	if r.schema != Schema {
		return Permit{}, &Error{Reason: ReasonUnsupportedSchema}
	}
	if fault := r.permit.Nonce.fault(); fault != "" {
		return Permit{}, malformed(fault, nil)
	}
	return r.permit, nil
}

func malformed(detail string, cause error) error {
	return &Error{Reason: ReasonMalformed, Detail: detail, Err: cause}
}

// MarshalJSON returns the wire form.
func (p Permit) MarshalJSON() ([]byte, error) { return Encode(p), nil }

// UnmarshalJSON reads the wire form as [Decode] does.
func (p *Permit) UnmarshalJSON(src []byte) error {
	decoded, err := Decode(src)
	if err != nil {
		return err
	}
	*p = decoded
	return nil
}

// members is a set of members of the wire form.
type members uint32

const (
	hasNonce members = 1 << iota
	hasSignature
	hasSchema
	hasID
	hasIssuedAt
	hasExpiresAt
	hasBoundTo
	hasSubject
	hasRequest
	hasCapability
	hasServer
	hasTool
	hasParameterHash
	hasReservedHold
	hasReservingRequest

	required = hasReservedHold - 1
)

var memberNames = [...]string{
	"/nonce", "/signature", "/nonce/schema", "/nonce/nonce_id", "/nonce/issued_at", "/nonce/expires_at", "/nonce/bound_to",
	"/nonce/bound_to/subject_id", "/nonce/bound_to/request_id", "/nonce/bound_to/capability_id",
	"/nonce/bound_to/tool_server", "/nonce/bound_to/tool_name", "/nonce/bound_to/parameter_hash",
}

// reader fills a permit while it reads the wire form once, from start to end.
type reader struct {
	in     canonical.Scanner
	permit Permit
	schema string
	seen   members
}

func (r *reader) member(name []byte) error {
	switch string(name) {
	case "nonce":
		return r.object(hasNonce, r.nonceMember)
	case "signature":
		return r.signature()
	default:
		return r.in.Unknown()
	}
}

func (r *reader) nonceMember(name []byte) error {
	n := &r.permit.Nonce
	switch string(name) {
	case "schema":
		return r.text(hasSchema, &r.schema)
	case "nonce_id":
		return r.text(hasID, &n.ID)
	case "issued_at":
		return r.seconds(hasIssuedAt, &n.IssuedAt)
	case "expires_at":
		return r.seconds(hasExpiresAt, &n.ExpiresAt)
	case "bound_to":
		return r.object(hasBoundTo, r.boundMember)
	case "reserved_hold_id":
		return r.id(hasReservedHold, &n.ReservedHoldID)
	case "reserving_request_id":
		return r.id(hasReservingRequest, &n.ReservingRequestID)
	default:
		return r.in.Unknown()
	}
}

func (r *reader) boundMember(name []byte) error {
	b := &r.permit.Nonce.BoundTo
	switch string(name) {
	case "subject_id":
		return r.text(hasSubject, &b.SubjectID)
	case "request_id":
		return r.text(hasRequest, &b.RequestID)
	case "capability_id":
		return r.text(hasCapability, &b.CapabilityID)
	case "tool_server":
		return r.text(hasServer, &b.ToolServer)
	case "tool_name":
		return r.text(hasTool, &b.ToolName)
	case "parameter_hash":
		return r.text(hasParameterHash, &b.ParameterHash)
	default:
		return r.in.Unknown()
	}
}

// first notes a member and refuses its second appearance.
func (r *reader) first(m members) error {
	if r.seen&m != 0 {
		return r.in.Duplicate()
	}
	r.seen |= m
	return nil
}

func (r *reader) object(m members, member func([]byte) error) error {
	if err := r.first(m); err != nil {
		return err
	}
	return r.in.Object(member)
}

func (r *reader) text(m members, into *string) (err error) {
	if err := r.first(m); err != nil {
		return err
	}
	*into, err = r.in.String()
	return err
}

// id reads an optional id. It is absent or it names something, else two spellings would mean the same.
func (r *reader) id(m members, into *string) error {
	if err := r.text(m, into); err != nil {
		return err
	}
	if *into == "" {
		return r.in.Mismatch("an id that is not empty")
	}
	return nil
}

func (r *reader) seconds(m members, into *int64) (err error) {
	if err := r.first(m); err != nil {
		return err
	}
	*into, err = r.in.Integer()
	return err
}

func (r *reader) signature() error {
	var text string
	if err := r.text(hasSignature, &text); err != nil {
		return err
	}
	if !lowerHex(text, 2*ed25519.SignatureSize) {
		return r.in.Mismatch("128 lower-case hex digits")
	}
	_, err := hex.Decode(r.permit.Signature[:], []byte(text))
	return err
}

// lowerHex reports whether text is digits lower-case hex digits.
func lowerHex(text string, digits int) bool {
	if len(text) != digits {
		return false
	}
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
