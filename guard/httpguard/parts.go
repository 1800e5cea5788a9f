package httpguard

import (
	"errors"
	"net/http"
)

// KeyOf reads the key of a request from the header of that name, as a guard of HTTP does.
func KeyOf(h http.Header, name string) (string, error) { return keyOf(h, name) }

// CheckOwner refuses a name that stands for nobody, or that no owner can have.
func CheckOwner(owner string) error { return checkOwner(owner) }

// NewTransport makes the transport by which a proxy calls its upstream: it never sends a request twice, and knows when it
// could not connect.
func NewTransport() http.RoundTripper { return once{newTransport()} }

// Unconnected reports whether an error of [NewTransport] proves that the request was not sent.
func Unconnected(err error) bool {
	var connect *connectError
	return errors.As(err, &connect)
}
