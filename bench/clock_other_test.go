//go:build !linux

package bench

import "time"

// threadTime is wall time where there is no clock of a thread to read.
func threadTime() time.Duration { return time.Since(start) }
