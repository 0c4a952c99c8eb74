//go:build !windows

package boltstore

import "syscall"

// outOfRoom are what a system says when a disk, a quota or a limit of the process is exhausted.
var outOfRoom = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}
