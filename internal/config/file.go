package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile is how many bytes a file of options may have.
const maxFile = 64 << 10

// readFile finds the options in the YAML file at path; none if path is empty.
func readFile(options []option, path string) (map[string]given, error) {
	if path == "" {
		return nil, nil
	}
	content, mode, err := contentOf(path)
	if err != nil {
		return nil, fmt.Errorf("the options file: %w", err)
	}
	root, err := document(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if root == nil {
		return nil, nil
	}
	out := map[string]given{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		place := path + ", line " + strconv.Itoa(key.Line)
		at := slices.IndexFunc(options, func(o option) bool { return o.key() == key.Value })
		if at < 0 || options[at].name == "config" {
			return nil, fmt.Errorf("%s: no option of that name; %s", place, nearest(options, key.Value, (*option).key))
		}
		o := &options[at]
		if _, twice := out[o.name]; twice {
			return nil, fmt.Errorf("%s: %s is there twice", place, o.key())
		}
		if value.Kind != yaml.ScalarNode || value.Tag == "!!null" || value.Value == "" {
			return nil, fmt.Errorf("%s: %s wants one value", place, o.key())
		}
		if (o.secret || hasPassword(value.Value)) && mode.Perm()&0o077 != 0 {
			return nil, fmt.Errorf("%s: the file holds a secret and is open to others; chmod 600 it", place)
		}
		out[o.name] = given{value.Value, place + ": " + o.key()}
	}
	return out, nil
}

func contentOf(path string) ([]byte, fs.FileMode, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is no regular file", path)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return content, info.Mode(), err
}

// document returns the one mapping that the file holds, nil if it holds nothing.
func document(content []byte) (*yaml.Node, error) {
	in := yaml.NewDecoder(strings.NewReader(string(content)))
	var doc, more yaml.Node
	switch err := in.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		// The parser's own message may repeat a value.
		return nil, errors.New("not valid YAML")
	}
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one YAML document")
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("want options as `name: value`, one a line")
	}
	return doc.Content[0], nil
}
