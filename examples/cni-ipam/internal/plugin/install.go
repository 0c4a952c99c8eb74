package plugin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// installing installs once, or again and again.
func (w *word) installing(args []string) error {
	for {
		err := w.install(args)
		if w.every <= 0 {
			return err
		}
		if err != nil {
			logf("%v", err)
		}
		time.Sleep(w.every)
	}
}

// install puts this program into a directory of plugins under the name of the one it
// replaces, and the command for shared networks beside it if it is there.
func (w *word) install(args []string) error {
	if len(args) != 1 {
		return errors.New("install needs the directory of the plugins")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	helper := filepath.Join(filepath.Dir(self), helperName)
	if _, err := os.Stat(helper); err == nil {
		if err := w.installFile(helper, filepath.Join(args[0], helperName), false); err != nil {
			return err
		}
	}
	return w.installFile(self, filepath.Join(args[0], w.as), true)
}

// installFile replaces a program in one step, so that every call finds one or the other. If
// keep is true, what was there first stays beside it.
func (w *word) installFile(self, dest string, keep bool) error {
	if same, err := sameContent(self, dest); err != nil || same {
		return err
	}
	original := dest + ".original"
	if _, err := os.Lstat(original); keep && errors.Is(err, fs.ErrNotExist) {
		if err := os.Link(dest, original); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	temp := fmt.Sprintf("%s.new-%d", dest, os.Getpid())
	defer os.Remove(temp)
	if err := copyFile(self, temp); err != nil {
		return err
	}
	if err := os.Rename(temp, dest); err != nil {
		return err
	}
	fmt.Fprintf(w.stdout, "%s: installed\n", dest)
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o755), out.Sync(), out.Close())
}

// sameContent reports whether two files are alike; a missing one is not.
func sameContent(a, b string) (bool, error) {
	x, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	y, err := os.ReadFile(b)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && string(x) == string(y), err
}
