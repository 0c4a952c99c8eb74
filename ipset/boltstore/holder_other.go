//go:build !linux

package boltstore

import "os"

// lockHolder returns 0: this system does not say which process has a lock.
func lockHolder(*os.File) (pid int, name string) { return 0, "" }
