//go:build unix && !linux

package pebble

// path names the directory by its path: a rename while the store is open makes
// the next new file fail, which latches the engine.
func (d *directory) path() string { return d.name }
