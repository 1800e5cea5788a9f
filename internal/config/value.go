package config

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Each type below is a pflag.Value that writes through a pointer and refuses, without repeating it, what it cannot read.

type textValue struct{ to *string }

func text(to *string) textValue { return textValue{to} }

func (v textValue) String() string {
	if v.to == nil {
		return ""
	}
	return *v.to
}

func (v textValue) Set(s string) error {
	if strings.ContainsAny(s, "\x00\r\n") {
		return errors.New("want one line")
	}
	*v.to = s
	return nil
}

func (textValue) Type() string { return "string" }

type truthValue struct{ to *bool }

func truth(to *bool) truthValue { return truthValue{to} }

func (v truthValue) String() string { return strconv.FormatBool(v.to != nil && *v.to) }

func (v truthValue) Set(s string) error {
	switch s {
	case "true":
		*v.to = true
	case "false":
		*v.to = false
	default:
		return errors.New("want true or false")
	}
	return nil
}

func (truthValue) Type() string { return "bool" }

type countValue struct{ to *int }

func count(to *int) countValue { return countValue{to} }

func (v countValue) String() string {
	if v.to == nil {
		return ""
	}
	return strconv.Itoa(*v.to)
}

func (v countValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 1<<20 {
		return errors.New("want an integer from 1 to 1048576")
	}
	*v.to = n
	return nil
}

func (countValue) Type() string { return "number" }

type spanValue struct {
	to   *time.Duration
	none bool // 0 has a meaning
}

func span(to *time.Duration) spanValue       { return spanValue{to: to} }
func spanOrNone(to *time.Duration) spanValue { return spanValue{to: to, none: true} }

func (v spanValue) String() string {
	if v.to == nil {
		return ""
	}
	return v.to.String()
}

// maxSpan bounds every duration: ten years.
const maxSpan = 10 * 366 * 24 * time.Hour

func (v spanValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxSpan || d == 0 && !v.none {
		return errors.New("want a duration such as 30s, 5m or 24h")
	}
	*v.to = d
	return nil
}

func (spanValue) Type() string { return "duration" }

type choiceValue struct {
	to *string
	of []string
}

func choice(to *string, of ...string) choiceValue { return choiceValue{to, of} }

func (v choiceValue) String() string {
	if v.to == nil {
		return ""
	}
	return *v.to
}

func (v choiceValue) Set(s string) error {
	if !slices.Contains(v.of, s) {
		return errors.New("want one of " + strings.Join(v.of, ", "))
	}
	*v.to = s
	return nil
}

func (choiceValue) Type() string { return "word" }

// Size is a number of bytes, written as 64KiB, 4MiB or plain digits.
type Size int64

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String writes the size in the largest unit that divides it.
func (s *Size) String() string {
	for _, u := range units {
		if n := int64(*s); n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Set reads a size from 1 byte to 1 TiB.
func (s *Size) Set(text string) error {
	factor := int64(1)
	for _, u := range units {
		if digits, ok := strings.CutSuffix(text, u.name); ok {
			text, factor = digits, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 41)
	if err != nil || n < 1 || n > 1<<40/factor {
		return errors.New("want a size such as 64KiB or 4MiB")
	}
	*s = Size(n * factor)
	return nil
}

// Type is what help shows.
func (*Size) Type() string { return "size" }
