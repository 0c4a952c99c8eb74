//go:build !linux

package thread

import "time"

// Time returns wall time on systems without a clock of the thread.
func Time() time.Duration { return time.Since(start) }

// Process is wall time, too.
func Process() time.Duration { return time.Since(start) }
