package plugin

import "golang.org/x/sys/unix"

// exchange puts a directory in the place of the file at path, in one step if the file system
// can, so that no call finds neither.
func exchange(path, temp string) error {
	if err := makeDir(temp); err != nil {
		return err
	}
	if unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, temp, unix.RENAME_EXCHANGE) == nil {
		return nil // temp is a stray now
	}
	return replace(path, temp)
}
