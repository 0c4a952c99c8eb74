package pgtest

import "syscall"

// unprivileged has a program run as the server's user, end with the process that started it, and not get the keyboard's interrupt.
func unprivileged() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential(), Pdeathsig: syscall.SIGQUIT, Setpgid: true}
}
