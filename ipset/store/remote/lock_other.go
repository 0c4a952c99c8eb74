//go:build !unix || solaris || illumos || aix

package remote

import "syscall"

// refused is the error of a connection to a socket whose process has ended, as Windows numbers it.
const refused = syscall.Errno(10061)

// lock does nothing: two services that start at one path in the same moment can both go on, and clients reach one of them.
func lock(string) (unlock func() error, err error) { return func() error { return nil }, nil }
