// Package cause has the errors of the engine that are more than a sentinel: each says what stands in the way and matches one
// sentinel of package ipalloc. They are below all other packages of the engine, so that each can compare with a cause that
// another returns; package ipset names those that callers branch on.
//
// It imports only package ipalloc.
package cause
