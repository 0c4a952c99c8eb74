package boltstore

import (
	"strings"
	"sync"
	"syscall"
)

// bootID identifies the present start of the machine, empty if that can't be told.
var bootID = sync.OnceValue(func() string {
	// Not by package os, which would start the runtime's poller for a file of this kind.
	fd, err := syscall.Open("/proc/sys/kernel/random/boot_id", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	var b [65]byte
	n, err := syscall.Read(fd, b[:])
	if err != nil || n == len(b) {
		return ""
	}
	return strings.TrimSpace(string(b[:n]))
})
