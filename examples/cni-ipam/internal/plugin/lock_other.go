//go:build !unix

package plugin

import (
	"os"
	"time"
)

// lockDir opens the directory and no more: on these systems the lock of the state file alone
// keeps calls apart.
func lockDir(path string, _ bool, _ time.Duration) (*os.File, error) { return os.Open(path) }

func lockFile(path string, _ time.Duration) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o640)
}

func relock(*os.File, time.Duration) error { return nil }

func openDir(path string) (*os.File, error) { return os.Open(path) }
