//go:build !linux

package boltstore

// lockHolder returns 0: this system does not say which process has a lock.
func lockHolder(string) (pid int, name string) { return 0, "" }
