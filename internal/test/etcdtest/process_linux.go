package etcdtest

import "syscall"

// attributes has a member die with whoever started it, however that ends, and keeps
// the keyboard's interrupt for the latter.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
