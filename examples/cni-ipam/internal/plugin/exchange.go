package plugin

import (
	"errors"
	"io/fs"
	"os"
)

// replace is exchange in two steps: between them, a call of host-local can make the file
// again, and the last step fails.
func replace(path, temp string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(temp, path)
}

// makeDir makes an empty directory in the place of what a killed call left.
func makeDir(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Mkdir(path, 0o700)
}
