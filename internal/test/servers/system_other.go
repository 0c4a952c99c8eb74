//go:build !linux

package servers

import (
	"context"
	"errors"
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr   { return nil }
func unprivileged() *syscall.SysProcAttr { return nil }
func give(string) error                  { return nil }
func terminate(p *os.Process) error      { return p.Signal(syscall.SIGTERM) }
func quit(p *os.Process) error           { return p.Signal(syscall.SIGQUIT) }
func pause(*os.Process) error            { return errors.ErrUnsupported }
func resume(*os.Process) error           { return errors.ErrUnsupported }

func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
