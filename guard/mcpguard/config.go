package mcpguard

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
	"github.com/counterfoil/counterfoil/guard/httpguard"
)

// MaxConfig is how many bytes a file of options may have.
const MaxConfig = 1 << 20

// Config is the file of options of a proxy, in YAML. What it does not know, has twice or leaves empty is an error.
type Config struct {
	Server     string                 `yaml:"server"`
	Owner      ownerFile              `yaml:"owner"`
	Run        string                 `yaml:"run"`
	RunHeader  string                 `yaml:"run_header"`
	KeyHeader  string                 `yaml:"key_header"`
	Origins    []string               `yaml:"origins"`
	MaxFrame   int                    `yaml:"max_frame"`
	InProgress int                    `yaml:"in_progress"`
	Default    policyFile             `yaml:"default"`
	Tools      map[string]*policyFile `yaml:"tools"`
}

// ownerFile says who makes the calls: one name, or how each request names its owner.
type ownerFile struct {
	Name                  string `yaml:"name"`
	httpguard.OwnerConfig `yaml:",inline"`
}

// policyFile is a [Policy] as the file has it.
type policyFile struct {
	ReadOnly     bool   `yaml:"read_only"`
	Keys         Keys   `yaml:"keys"`
	KeyArgument  string `yaml:"key_argument"`
	Record       Record `yaml:"record"`
	NotPerformed struct {
		Errors   []int `yaml:"errors"`
		Statuses []int `yaml:"statuses"`
	} `yaml:"not_performed"`
	Spend       map[string]uint64 `yaml:"spend"`
	Approval    string            `yaml:"approval"`
	Capability  string            `yaml:"capability"`
	ApprovalTTL time.Duration     `yaml:"approval_ttl"`
	Wait        time.Duration     `yaml:"wait"`
	Lease       time.Duration     `yaml:"lease"`
	Timeout     time.Duration     `yaml:"timeout"`
}

// ParseConfig reads a file of options.
func ParseConfig(content []byte) (*Config, error) {
	if len(content) > MaxConfig {
		return nil, fmt.Errorf("mcpguard: the options have more than %d bytes", MaxConfig)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(content, &doc); err != nil {
		return nil, fmt.Errorf("mcpguard: %w", err)
	}
	if err := noNulls(&doc); err != nil {
		return nil, err
	}
	c := new(Config)
	in := yaml.NewDecoder(bytes.NewReader(content))
	in.KnownFields(true)
	if err := in.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("mcpguard: %w", err)
	}
	if err := in.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("mcpguard: want one YAML document")
	}
	return c, c.check()
}

// noNulls refuses options that are named and left empty, which might mean anything.
func noNulls(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return fmt.Errorf("mcpguard: line %d: an option is empty; give it a value, or leave it out", n.Line)
	}
	for _, below := range n.Content {
		if err := noNulls(below); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) check() error {
	if c.Server == "" {
		return errors.New("mcpguard: server is missing: a name for the server of the tools, such as server: files")
	}
	if c.Owner.Name == "" {
		if err := c.Owner.Check(); err != nil {
			return fmt.Errorf("%w; or one owner for all calls: owner: {name: NAME}", err)
		}
	} else if c.Owner.Given() {
		return errors.New("mcpguard: owner: either one name for all calls, or how each request names its owner")
	}
	if err := c.Default.check(); err != nil {
		return fmt.Errorf("mcpguard: default: %w", err)
	}
	for name, f := range c.Tools {
		if err := f.check(); err != nil {
			return fmt.Errorf("mcpguard: tool %q: %w", name, err)
		}
	}
	return nil
}

func (f *policyFile) check() error {
	switch {
	case f == nil:
		return errors.New("has no options")
	case f.Approval != "" && f.Approval != "required":
		return errors.New("approval is required, or left out")
	case f.Approval != "" && f.Capability == "":
		return errors.New("an approval needs the capability that it is for")
	case f.Approval == "" && f.Capability != "":
		return errors.New("a capability has a meaning with approval: required only")
	}
	return nil
}

// Options gives the options of a [Guard], but for the caller and the log.
func (c *Config) Options() Options {
	o := Options{
		Server: c.Server, Owner: c.Owner.Name, Run: c.Run, RunHeader: c.RunHeader, KeyHeader: c.KeyHeader, Origins: c.Origins,
		MaxFrame: c.MaxFrame, InProgress: c.InProgress, Default: c.Default.policy(), Tools: map[string]Policy{},
	}
	if o.Owner == "" {
		o.Identify = c.Owner.Identify()
	}
	for name, f := range c.Tools {
		o.Tools[name] = f.policy()
	}
	return o
}

func (f *policyFile) policy() Policy {
	p := Policy{
		ReadOnly: f.ReadOnly, Keys: f.Keys, KeyArgument: f.KeyArgument, Record: f.Record, NotPerformed: f.NotPerformed.Errors,
		NotPerformedStatuses: f.NotPerformed.Statuses, Capability: f.Capability, ApprovalTTL: f.ApprovalTTL, Wait: f.Wait, Lease: f.Lease,
		Timeout: f.Timeout,
	}
	for name, amount := range f.Spend {
		p.Spend = append(p.Spend, counterfoil.Entry{Budget: name, Amount: amount})
	}
	slices.SortFunc(p.Spend, func(a, b counterfoil.Entry) int { return strings.Compare(a.Budget, b.Budget) })
	return p
}
