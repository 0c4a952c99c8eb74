//go:build !linux

package plugin

// exchange puts a directory in the place of the file at path.
func exchange(path, temp string) error {
	if err := makeDir(temp); err != nil {
		return err
	}
	return replace(path, temp)
}
