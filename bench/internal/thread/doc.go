// Package thread is the clock of the benchmarks: the CPU time of one thread.
package thread

import "time"

var start = time.Now()
