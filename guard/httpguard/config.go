package httpguard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/counterfoil/counterfoil"
)

// MaxConfig is how many bytes a file of options may have.
const MaxConfig = 1 << 20

// Config is the file of options of a proxy, in YAML. What it does not know, has twice or leaves empty is an error.
type Config struct {
	Owner         OwnerConfig  `yaml:"owner"`
	KeyHeader     string       `yaml:"key_header"`
	ReplayHeaders []string     `yaml:"replay_headers"`
	ReleaseHeader string       `yaml:"release_header"`
	MaxBody       int64        `yaml:"max_body"`
	MaxAnswer     int64        `yaml:"max_answer"`
	InProgress    int          `yaml:"in_progress"`
	Default       policyFile   `yaml:"default"`
	Routes        []*routeFile `yaml:"routes"`
	Unmatched     string       `yaml:"unmatched"` // default, or refuse
	ShowFigures   bool         `yaml:"show_figures"`
}

type routeFile struct {
	Match      string `yaml:"match"`
	policyFile `yaml:",inline"`
}

// policyFile is a [Policy] as the file has it.
type policyFile struct {
	Methods     []string          `yaml:"methods"`
	Keys        Keys              `yaml:"keys"`
	Record      Preset            `yaml:"record"`
	Also        []int             `yaml:"also"`
	Never       []int             `yaml:"never"`
	JSON        bool              `yaml:"canonical_json"`
	Only        []string          `yaml:"only_fields"`
	Except      []string          `yaml:"except_fields"`
	Wait        time.Duration     `yaml:"wait"`
	Lease       time.Duration     `yaml:"lease"`
	Timeout     time.Duration     `yaml:"timeout"`
	RecordFinal bool              `yaml:"record_final"`
	Spend       map[string]uint64 `yaml:"spend"`
	Meter       []meterFile       `yaml:"meter"`
	Free        []int             `yaml:"free"`
	Capability  string            `yaml:"capability"`
	Server      string            `yaml:"server"`
}

// meterFile is a [Meter] as the file has it.
type meterFile struct {
	Budget   string `yaml:"budget"`
	Request  string `yaml:"request"`
	Response string `yaml:"response"`
	Usage    Usage  `yaml:"usage"`
	Count    Count  `yaml:"count"`
	Times    uint64 `yaml:"times"`
	Hold     struct {
		Base      uint64   `yaml:"base"`
		Fields    []string `yaml:"fields"`
		Otherwise uint64   `yaml:"otherwise"`
		Factor    uint64   `yaml:"factor"`
		PerByte   uint64   `yaml:"per_byte"`
	} `yaml:"hold"`
}

// ParseConfig reads a file of options.
func ParseConfig(content []byte) (*Config, error) {
	if len(content) > MaxConfig {
		return nil, fmt.Errorf("httpguard: the options have more than %d bytes", MaxConfig)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(content, &doc); err != nil {
		return nil, fmt.Errorf("httpguard: %w", err)
	}
	if err := noNulls(&doc); err != nil {
		return nil, err
	}
	c := new(Config)
	in := yaml.NewDecoder(bytes.NewReader(content))
	in.KnownFields(true)
	if err := in.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("httpguard: %w", err)
	}
	if err := in.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("httpguard: want one YAML document")
	}
	return c, c.check()
}

// noNulls refuses options that are named and left empty, which might mean anything.
func noNulls(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return fmt.Errorf("httpguard: line %d: an option is empty; give it a value, or leave it out", n.Line)
	}
	for _, below := range n.Content {
		if err := noNulls(below); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) check() error {
	if err := c.Owner.Check(); err != nil {
		return err
	}
	if c.Unmatched != "" && c.Unmatched != "default" && c.Unmatched != "refuse" {
		return errors.New("httpguard: unmatched is default or refuse")
	}
	for _, r := range c.Routes {
		if r == nil || r.Match == "" {
			return errors.New("httpguard: every route needs match: a pattern such as POST /v1/payments/{id}")
		}
	}
	return nil
}

// Options gives the options of a [Guard], but for the caller and the log.
func (c *Config) Options() Options {
	o := Options{
		Identify: c.Owner.Identify(), KeyHeader: c.KeyHeader, ReplayHeaders: c.ReplayHeaders, MaxBody: c.MaxBody, MaxAnswer: c.MaxAnswer,
		InProgress: c.InProgress, Default: c.Default.policy(), RefuseUnmatched: c.Unmatched == "refuse", ShowFigures: c.ShowFigures,
	}
	for _, r := range c.Routes {
		o.Routes = append(o.Routes, Route{Pattern: r.Match, Policy: r.policy()})
	}
	return o
}

func (f *policyFile) policy() Policy {
	p := Policy{
		Methods: f.Methods, Keys: f.Keys, Record: f.Record, Also: f.Also, Never: f.Never, Wait: f.Wait, Lease: f.Lease, Timeout: f.Timeout,
		RecordFinal: f.RecordFinal, Free: f.Free, Capability: f.Capability, Server: f.Server,
	}
	if f.JSON || len(f.Only) > 0 || len(f.Except) > 0 {
		p.Fingerprint = &Fingerprint{JSON: f.JSON, Only: f.Only, Except: f.Except}
	}
	for i := range f.Meter {
		m := &f.Meter[i]
		p.Meters = append(p.Meters, Meter{
			Budget: m.Budget, Request: m.Request, Response: m.Response, Usage: m.Usage, Count: m.Count, Times: m.Times, Hold: Estimate(m.Hold),
		})
	}
	for name, amount := range f.Spend {
		p.Spend = append(p.Spend, counterfoil.Entry{Budget: name, Amount: amount})
	}
	slices.SortFunc(p.Spend, func(a, b counterfoil.Entry) int { return strings.Compare(a.Budget, b.Budget) })
	return p
}
