// Package cause has the errors of the engine that are more than a sentinel: each says what stands in the way and matches one
// sentinel of package ipalloc. They stand below all rooms, so that a room can compare with a cause that another one returns, and
// package ipset names those that callers branch on.
//
// It imports package ipalloc alone.
package cause
