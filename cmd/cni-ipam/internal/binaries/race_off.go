//go:build !race

package binaries

// detector are the flags and the environment that build our programs with the race detector, if the tests have it.
var detector, detectorEnv []string
