//go:build unix && !linux

package pgtest

import "syscall"

func unprivileged() *syscall.SysProcAttr { return &syscall.SysProcAttr{Credential: credential()} }
