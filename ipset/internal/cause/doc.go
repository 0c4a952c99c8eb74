// Package cause has the engine's errors with a text: each names an obstacle and matches one sentinel of package ipalloc,
// which callers branch on. It is below all other packages of the engine, so that each can compare an error with the cause
// that another package returns.
//
// It imports only package ipalloc.
package cause
