//go:build !unix

package plugin

import (
	"os"
	"time"
)

// lockFile opens the file and no more: on these systems the lock of the state file alone
// keeps calls apart.
func lockFile(path string, _, create bool, _ time.Duration) (*os.File, error) {
	if create {
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	return os.Open(path)
}

func openRead(path string) (*os.File, error) { return os.Open(path) }
