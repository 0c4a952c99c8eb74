//go:build !linux

package boltstore

import "os"

// openFile is os.OpenFile.
func openFile(path string, flag int, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, mode)
}

// giveName gives a file another name, unless that is taken.
func giveName(from, to string) error { return os.Link(from, to) }
