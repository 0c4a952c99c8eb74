// Package boltstore keeps the records of package ipset in a bbolt file.
package boltstore
