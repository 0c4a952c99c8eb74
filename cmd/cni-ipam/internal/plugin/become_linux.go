package plugin

import (
	"os"

	"golang.org/x/sys/unix"
)

// become runs another program in this process.
func become(path string, args []string, stdin []byte) error {
	if stdin != nil {
		fd, err := unix.MemfdCreate("stdin", 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "stdin")
		if _, err := f.WriteAt(stdin, 0); err != nil {
			return err
		}
		if err := unix.Dup3(fd, 0, 0); err != nil {
			return err
		}
		f.Close()
	}
	return unix.Exec(path, append([]string{path}, args...), os.Environ())
}
