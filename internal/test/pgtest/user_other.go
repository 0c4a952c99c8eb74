//go:build !unix

package pgtest

import (
	"os"
	"syscall"
)

func unprivileged() *syscall.SysProcAttr { return nil }
func give(string) error                  { return nil }
func quit(p *os.Process) error           { return p.Kill() }
