package thread

import (
	"syscall"
	"time"
	"unsafe"
)

// The clocks of the kernel that package syscall does not name.
const (
	processCPUTime = 2 // CLOCK_PROCESS_CPUTIME_ID
	threadCPUTime  = 3 // CLOCK_THREAD_CPUTIME_ID
)

// Time returns the CPU time of the calling thread. The caller must be locked to the thread. What other programs do meanwhile
// does not count.
func Time() time.Duration { return read(threadCPUTime) }

// Process returns the CPU time of all threads of this process.
func Process() time.Duration { return read(processCPUTime) }

func read(clock uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		return time.Since(start) // no such clock: wall time
	}
	return time.Duration(ts.Nano())
}
