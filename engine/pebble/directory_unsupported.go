//go:build !unix

package pebble

import "errors"

type directory struct{ name string }

func openDirectory(string, bool) (*directory, error) {
	return nil, errors.New("the embedded engine needs the file system of a Unix")
}

func (d *directory) path() string              { return d.name }
func (d *directory) setHolder(string) error    { return nil }
func (d *directory) checkEntries(string) error { return nil }
func (d *directory) close() error              { return nil }
