//go:build unix

package etcdtest

import (
	"os"
	"syscall"
)

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
func resume(p *os.Process) error    { return p.Signal(syscall.SIGCONT) }
