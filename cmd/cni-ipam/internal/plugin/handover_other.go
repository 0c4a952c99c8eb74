//go:build !linux

package plugin

import (
	"errors"
	"os"
	"path/filepath"
)

// exchange reports that the system cannot swap two names in one step.
func exchange(string, string) bool { return false }

// syncAll writes the files of a directory to the disk.
func syncAll(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type().IsRegular() && err == nil {
			var f *os.File
			if f, err = os.OpenFile(filepath.Join(dir, e.Name()), os.O_RDWR, 0); err == nil {
				err = errors.Join(f.Sync(), f.Close())
			}
		}
	}
	return err
}

// mayWrite finds nothing.
func mayWrite(string) error { return nil }

// unopened reports that the system does not say who has a file open.
func unopened(*os.File) (unopened, known bool) { return false, false }
