package thread

import (
	"syscall"
	"time"
	"unsafe"
)

// Time returns the CPU time of the calling thread, to which the caller must be locked. What other programs do meanwhile does not
// count.
func Time() time.Duration {
	const threadCPUTime = 3 // CLOCK_THREAD_CPUTIME_ID, which package syscall does not name
	var ts syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPUTime, uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		return time.Since(start) // no such clock: wall time
	}
	return time.Duration(ts.Nano())
}
