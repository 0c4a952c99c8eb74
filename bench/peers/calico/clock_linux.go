package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime returns the CPU time that the threads of this process have used.
func processTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		return time.Since(start) // no such clock: wall time
	}
	return time.Duration(ts.Nano())
}
