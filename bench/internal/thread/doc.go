// Package thread has the clocks of the benchmarks: the CPU time of one thread, and of the process.
package thread

import "time"

var start = time.Now()
