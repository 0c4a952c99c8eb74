//go:build !linux

package boltstore

// bootID identifies the present start of the machine; here that can't be told.
func bootID() string { return "" }
