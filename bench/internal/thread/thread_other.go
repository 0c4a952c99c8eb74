//go:build !linux

package thread

import "time"

// Time is wall time where there is no clock of a thread to read.
func Time() time.Duration { return time.Since(start) }

// Process is wall time, too.
func Process() time.Duration { return time.Since(start) }
