//go:build unix

package plugin

import (
	"os"
	"strings"
	"syscall"
)

// readBootID reads what identifies the present boot. It goes without package os, which would
// start the runtime's poller for a file of /proc.
func readBootID(path string) (string, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	var b [1024]byte
	n, err := syscall.Read(fd, b[:])
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return strings.TrimSpace(string(b[:n])), nil
}
