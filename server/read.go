package server

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// read fills req with what the request says, and refuses what its form does not allow.
func (s *Server) read(x *exchange, req reflect.Value) error {
	f := x.route.form
	if err := f.bindPath(req, x.r); err != nil {
		return err
	}
	if err := f.bindQuery(req, x.r.URL.RawQuery); err != nil {
		return err
	}
	if x.route.Body == NoBody {
		return s.noBody(x)
	}
	body, release, err := s.body(x)
	if err != nil {
		return err
	}
	defer release()
	if len(body) == 0 && x.route.Body == OptionalBody {
		return nil
	}
	if err := canonical.Decode(body, req.Addr().Interface()); err != nil {
		return err
	}
	return f.judge(req, "")
}

// noBody refuses a body where none belongs: whoever sends one means something that would not happen.
func (s *Server) noBody(x *exchange) error {
	if x.r.ContentLength == 0 {
		return nil
	}
	return api.NewProblem(api.Malformed, "this route takes no body")
}

// body reads the whole body. The caller calls release when the bytes are no longer needed.
func (s *Server) body(x *exchange) (body []byte, release func(), err error) {
	r, most := x.r, x.route.MaxBody
	if r.ContentLength == 0 && x.route.Body == OptionalBody && len(r.Header["Content-Type"]) == 0 {
		return nil, func() {}, nil
	}
	if err := jsonInUTF8(r.Header); err != nil {
		return nil, nil, err
	}
	if r.ContentLength > most {
		return nil, nil, tooLarge(most)
	}
	release, err = s.reserve(r.ContentLength, most)
	if err != nil {
		return nil, nil, err
	}
	body, err = s.readAll(x, most)
	if err != nil {
		release()
		return nil, nil, err
	}
	return body, release, nil
}

// reserve takes the bytes of a large body from what the server holds at once.
func (s *Server) reserve(declared, most int64) (release func(), err error) {
	bytes := declared
	if bytes < 0 {
		bytes = most
	}
	if bytes <= smallBody {
		return func() {}, nil
	}
	if s.bodyBytes.Add(bytes) > s.limits.BodyBytes {
		s.bodyBytes.Add(-bytes)
		return nil, api.NewProblem(api.Overloaded, "too many large bodies are being read")
	}
	return func() { s.bodyBytes.Add(-bytes) }, nil
}

// readAll reads at most that many bytes, in time.
func (s *Server) readAll(x *exchange, most int64) ([]byte, error) {
	// The connection's deadlines are the machine's time, whatever clock decides.
	connection := http.NewResponseController(x)
	_ = connection.SetReadDeadline(clock.System{}.Now().Add(s.limits.BodyTime))
	body, err := readUpTo(x.r.Body, x.r.ContentLength, most+1)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, api.NewProblem(api.RequestTimeout, "the body was not complete within "+s.limits.BodyTime.String())
	case err != nil:
		// The client broke off, or spoke no HTTP: nobody reads this answer.
		return nil, api.NewProblem(api.Malformed, "the body is cut off or badly framed")
	case int64(len(body)) > most:
		return nil, tooLarge(most)
	}
	x.bodyRead = true
	_ = connection.SetReadDeadline(time.Time{})
	return body, nil
}

// readUpTo reads to the end, or that many bytes.
func readUpTo(from io.Reader, declared, most int64) ([]byte, error) {
	size := declared
	if size < 0 || size > most {
		size = 512
	}
	body := make([]byte, 0, size+1)
	for {
		n, err := from.Read(body[len(body):min(int64(cap(body)), most)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) || int64(len(body)) >= most {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
	}
}

func tooLarge(most int64) error {
	return api.NewProblem(api.TooLarge, "the body has more than "+strconv.FormatInt(most, 10)+" bytes")
}

// jsonInUTF8 refuses a body that is not declared as plain JSON in UTF-8.
func jsonInUTF8(h http.Header) error {
	given := h["Content-Type"]
	if len(given) != 1 {
		return api.NewProblem(api.UnsupportedMediaType, "send one header Content-Type: application/json")
	}
	media, params, err := mime.ParseMediaType(given[0])
	if err != nil || media != "application/json" {
		return api.NewProblem(api.UnsupportedMediaType, "send Content-Type: application/json")
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return api.NewProblem(api.UnsupportedMediaType, "application/json takes no parameter but charset=utf-8")
		}
	}
	if encoding := h["Content-Encoding"]; len(encoding) > 1 || len(encoding) == 1 && !strings.EqualFold(encoding[0], "identity") {
		return api.NewProblem(api.UnsupportedMediaType, "send the body uncompressed")
	}
	return nil
}
