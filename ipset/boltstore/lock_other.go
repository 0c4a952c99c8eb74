//go:build !windows && (!unix || solaris || illumos || aix)

package boltstore

import (
	"errors"
	"os"
)

// lockFile leaves it to bbolt to take the lock.
func lockFile(*os.File, bool) (bool, error) { return true, nil }

// unlockFile leaves it to bbolt to give the lock back.
func unlockFile(*os.File) error { return errors.ErrUnsupported }
