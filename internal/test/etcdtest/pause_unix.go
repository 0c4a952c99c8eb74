//go:build unix && !linux

package etcdtest

import (
	"os"
	"syscall"
)

func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
