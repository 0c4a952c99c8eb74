//go:build race

package bench

// raced says that the race detector is compiled in.
const raced = true
