package boltstore

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// outOfRoom are what a system says when a disk or a quota is exhausted.
var outOfRoom = []syscall.Errno{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}
